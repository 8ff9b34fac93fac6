"""Options of a launch on EC2, `-O NAME=VALUE`, and the start-up script that follows from them.

The script's first command sets the timer, the last powers off, which terminates the instance. It contains no
secret: permissions come from the instance profile, private code from a bucket.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ....errors import UsageError
from ...core.request import LaunchCandidate, LaunchRequest
from ...prepare.startup import BootConfig, require_fetchable
from ...prepare.startup import build_startup_script as build_common_script
from ..base import require_disk_size, require_known_options, require_narrow_network

# docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html: the name's form, and this one as the example
DLAMI = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsOptions:
    """Options with safe defaults.

    Args:
        image: Id of an image, or name of a public SSM parameter that contains one.
        disk_gb: Size of the disk [GB].
        zones: Availability zones to try in turn, by their last letter: `abc`; empty: AWS chooses.
        subnet: Subnet of the instance; empty: the default network.
        vpc: VPC of the subnet; empty: the default network.
        profile: IAM instance profile; required for a bucket and for access through SSM.
        scheduler_role: ARN of the role with which EventBridge Scheduler ends the instance; empty:
            `gpuplan-scheduler` of the account, created if needed.
        bucket: S3 bucket for code, checkpoints and the result; empty: checkpoints are lost with the instance.
        bucket_owner: Number of the account that owns the bucket; empty: the launching account.
        key: Name of a key pair for SSH.
        ssh_from: Addresses that may reach port 22 (CIDR); empty: no open port.
    """

    image: str = DLAMI
    disk_gb: str = "100"
    zones: str = ""
    subnet: str = ""
    vpc: str = ""
    profile: str = ""
    scheduler_role: str = ""
    bucket: str = ""
    bucket_owner: str = ""
    key: str = ""
    ssh_from: str = ""


def parse_options(options: Mapping[str, str]) -> AwsOptions:
    """Return validated options.

    Raises:
        UsageError: An option is unknown, malformed, or lacks another that it needs.
    """
    require_known_options(options, [field.name for field in fields(AwsOptions)], provider="aws")
    chosen = AwsOptions(**options)
    require_disk_size(chosen.disk_gb)
    if chosen.bucket_owner and not re.fullmatch(r"\d{12}", chosen.bucket_owner):
        raise UsageError(
            f"`--option bucket_owner={chosen.bucket_owner}` is not an account number", hint="it has 12 digits"
        )
    for name, needs in (
        ("bucket", "profile"),
        ("bucket_owner", "bucket"),
        ("ssh_from", "key"),
        ("subnet", "vpc"),
    ):
        if getattr(chosen, name) and not getattr(chosen, needs):
            raise UsageError(f"`--option {name}` needs `--option {needs}` too", hint=f"add `-O {needs}=…`")
    if chosen.ssh_from:
        require_narrow_network(chosen.ssh_from, option="ssh_from")
    return chosen


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
    boot = BootConfig(
        timer=f"shutdown -h +{math.floor(candidate.cap_s / 60)} # the cap, before anything can fail",
        end="shutdown -h now",
        packages=("keras", "jax[cuda12]"),
        notices="aws",
        copy_="aws s3 sync --only-show-errors {source} {target}",
        unpack="aws s3 cp --only-show-errors {source} -",
        bucket=f"s3://{options.bucket}" if options.bucket else "",
    )
    script = build_common_script(request, candidate, number, boot)
    if len(script.encode()) > USER_DATA_BYTES:
        raise UsageError(
            f"the start-up script has {len(script.encode())} bytes, and EC2 takes {USER_DATA_BYTES}",
            hint="shorten the script's arguments",
        )
    return script


def _require_fetchable(source: str, options: AwsOptions) -> None:
    """Raise UsageError unless an instance can fetch the code by itself, without a secret."""
    kind = source.partition(":")[0]
    if kind == "folder" and not options.bucket:
        raise UsageError(
            f"`--source {source}`: a machine at AWS cannot read a folder of this computer",
            hint="add `-O bucket=NAME -O profile=NAME`, or `--source git:URL@REF` or `image:NAME`",
        )
    require_fetchable(source, kinds=("folder", "git", "s3", "image"), provider="AWS")
