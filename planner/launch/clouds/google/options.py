"""What `--option NAME=VALUE` may say on Google Cloud."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ....errors import UsageError
from ...prepare.startup import require_fetchable

__all__ = ["GoogleOptions", "parse_options", "require_launchable"]

IMAGE = "projects/deeplearning-platform-release/global/images/family/common-cu128-ubuntu-2204-nvidia-570"
LABEL = re.compile(r"[a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleOptions:
    """The options, with what holds when they are not given.

    Args:
        project: Who pays; else `GOOGLE_CLOUD_PROJECT`.
        zones: Where, in order, separated by commas; else all of the offer's region.
        image: What a GPU machine boots.
        disk_gb: Size of its disk [GB].
        network: Of the project; no rule of it is changed.
        external_ip: Whether the machine reaches the internet by an address of its own.
        service_account: Its rights are the machine's; none by default.
        bucket: `gs://…`, where checkpoints and logs outlive the machine.
        wait_s: How long a TPU may be waited for [s].
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
    """Return options as typed.

    Args:
        options: As the user gave them.
        project: Of the environment.

    Raises:
        UsageError: One is unknown, or cannot be read, or the project is missing.
    """
    names = {field.name for field in fields(GoogleOptions)}
    for name in options:
        if name not in names:
            raise UsageError(
                f"`-O {name}`: unknown to the provider gcp", hint=f"it knows {', '.join(sorted(names))}"
            )
    owner = options.get("project") or project
    if not owner:
        raise UsageError(
            "no project is named that pays for the machine",
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
            hint="give both, or leave the bucket out: then checkpoints go with the machine",
        )
    return chosen


def require_launchable(*, owner: str, source: str, bucket: str) -> None:
    """Raise UsageError unless owner and source can be written into what is sent."""
    if not LABEL.fullmatch(owner):
        raise UsageError(
            f"the owner `{owner}` cannot be a label on Google Cloud",
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
        raise UsageError(f"`-O {name}={text}` is no whole number", hint=f"the default is {default}")
    return int(text)
