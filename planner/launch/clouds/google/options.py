"""Options of a launch on Google Cloud: `--option NAME=VALUE`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ....errors import UsageError
from ...prepare.startup import require_fetchable

IMAGE = "projects/deeplearning-platform-release/global/images/family/common-cu128-ubuntu-2204-nvidia-570"
LABEL = re.compile(r"[a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleOptions:
    """Options and their defaults.

    Args:
        project: Project that pays; default `GOOGLE_CLOUD_PROJECT`.
        zones: Zones in order, separated by commas; default: all of the offer's region.
        image: Image of a GPU machine.
        disk_gb: Size of its disk [GB].
        network: Network of the project; its rules are not changed.
        external_ip: Whether the machine has an external address.
        service_account: Service account of the machine; none by default.
        bucket: `gs://…` for checkpoints and logs.
        wait_s: Maximum time to wait for a TPU [s].
    """

    project: str
    zones: tuple[str, ...] = ()
    image: str = IMAGE
    disk_gb: int = 100
    network: str = "default"
    external_ip: bool = True
    service_account: str = ""
    bucket: str = ""
    wait_s: int = 900


def parse_options(options: Mapping[str, str], *, project: str | None) -> GoogleOptions:
    """Return validated options.

    Args:
        options: Options as typed.
        project: Project of the environment.

    Raises:
        UsageError: An option is unknown or malformed, or the project is missing.
    """
    names = {field.name for field in fields(GoogleOptions)}
    for name in options:
        if name not in names:
            raise UsageError(
                f"`-O {name}`: unknown option of provider gcp", hint=f"options: {', '.join(sorted(names))}"
            )
    owner = options.get("project") or project
    if not owner:
        raise UsageError(
            "no project is given to pay for the machine",
            hint="`-O project=NAME`, or set GOOGLE_CLOUD_PROJECT",
        )
    defaults = GoogleOptions(project=owner)
    chosen = GoogleOptions(
        project=owner,
        zones=tuple(filter(None, options.get("zones", "").split(","))),
        image=options.get("image", defaults.image),
        disk_gb=_whole("disk_gb", options.get("disk_gb"), defaults.disk_gb),
        network=options.get("network", defaults.network),
        external_ip=options.get("external_ip", "true") != "false",
        service_account=options.get("service_account", ""),
        bucket=options.get("bucket", "").rstrip("/"),
        wait_s=_whole("wait_s", options.get("wait_s"), defaults.wait_s),
    )
    if chosen.bucket and not (chosen.bucket.startswith("gs://") and chosen.service_account):
        raise UsageError(
            "`-O bucket` needs a `gs://…` address and `-O service_account=…` that may write there",
            hint="give both, or no bucket: then checkpoints are lost with the machine",
        )
    return chosen


def require_launchable(*, owner: str, source: str, bucket: str) -> None:
    """Raise UsageError unless owner and source are supported."""
    if not LABEL.fullmatch(owner):
        raise UsageError(
            f"the owner `{owner}` is not a valid label on Google Cloud",
            hint="set `GPUPLAN_OWNER` to lower case letters, digits and hyphens, 63 at most",
        )
    kinds = ("git", "gs", "image", "folder") if bucket else ("git", "gs", "image")
    if source.startswith("folder:") and not bucket:
        raise UsageError(
            f"`--source {source}`: a machine at Google Cloud cannot read a folder of this computer",
            hint="add `-O bucket=gs://NAME -O service_account=EMAIL`, or `--source git:https://…` or `image:NAME`",
        )
    require_fetchable(source, kinds=kinds, provider="Google Cloud")


def _whole(name: str, text: str | None, default: int) -> int:
    """Return a whole number."""
    if text is None:
        return default
    if not text.isdecimal():
        raise UsageError(f"`-O {name}={text}` is not a whole number", hint=f"the default is {default}")
    return int(text)
