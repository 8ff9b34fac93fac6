"""Start-up script of an EC2 instance: the first command sets the timer, the last powers off, which terminates.

It contains no secret: permissions come from the instance profile, private code from a bucket.
"""

from __future__ import annotations

import math

from ....errors import UsageError
from ...core.request import LaunchCandidate, LaunchRequest
from ...prepare.startup import BootConfig, require_fetchable
from ...prepare.startup import build_startup_script as build_common_script
from .options import AwsOptions

__all__ = ["USER_DATA_BYTES", "build_startup_script"]

USER_DATA_BYTES = (
    16 * 1024
)  # docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html, raw form


def build_startup_script(
    request: LaunchRequest, candidate: LaunchCandidate, number: int, options: AwsOptions
) -> str:
    """Return the script.

    Raises:
        UsageError: The code cannot be fetched from its source, or the script is too long.
    """
    _require_fetchable(request.spec.source, options)
    script = build_common_script(request, candidate, number, _boot(request, candidate, options))
    if len(script.encode()) > USER_DATA_BYTES:
        raise UsageError(
            f"the start-up script has {len(script.encode())} bytes, and EC2 takes {USER_DATA_BYTES}",
            hint="shorten the script's arguments",
        )
    return script


def _boot(request: LaunchRequest, candidate: LaunchCandidate, options: AwsOptions) -> BootConfig:
    """Return the EC2-specific parts of the script."""
    minutes = math.floor(candidate.cap_s / 60)
    return BootConfig(
        timer=f"shutdown -h +{minutes} # the cap, before anything can fail",
        end="shutdown -h now",
        packages=("keras", "jax[cuda12]"),
        notices="aws",
        copy_="aws s3 sync --only-show-errors {source} {target}",
        unpack="aws s3 cp --only-show-errors {source} -",
        bucket=f"s3://{options.bucket}" if options.bucket else "",
    )


def _require_fetchable(source: str, options: AwsOptions) -> None:
    """Raise UsageError unless an instance can fetch the code by itself, without a secret."""
    kind = source.partition(":")[0]
    if kind == "folder" and not options.bucket:
        raise UsageError(
            f"`--source {source}`: a machine at AWS cannot read a folder of this computer",
            hint="add `-O bucket=NAME -O profile=NAME`, or `--source git:URL@REF` or `image:NAME`",
        )
    require_fetchable(source, kinds=("folder", "git", "s3", "image"), provider="AWS")
