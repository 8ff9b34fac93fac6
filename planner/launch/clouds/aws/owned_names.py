"""Names of an attempt's resources at AWS; they contain the owner, so those of two owners never collide."""

from __future__ import annotations

import re

from ...core.request import LaunchRequest

__all__ = ["PREFIX", "build_owned_name", "parse_owned_name"]

PREFIX = "gpuplan."
_UNFIT = re.compile(r"[^0-9A-Za-z_-]")  # names of schedules: `[0-9a-zA-Z-_.]+`, 64 at most


def build_owned_name(request: LaunchRequest, number: int) -> str:
    """Return the name of an attempt's security group and schedule: prefix, owner, run and attempt.

    A list of schedules has no tags: only names identify the owner.
    """
    return f"{PREFIX}{_UNFIT.sub('-', request.owner)}.{request.run}.{number}"


def parse_owned_name(name: str) -> tuple[str, str, int] | None:
    """Return owner, run and attempt of such a name, or None.

    Example:
        >>> parse_owned_name("gpuplan.own-1a2b.r64879f7d-1.2")
        ('own-1a2b', 'r64879f7d-1', 2)
    """
    match = re.fullmatch(r"gpuplan\.([^.]+)\.([^.]+)\.(\d+)", name)
    return (match[1], match[2], int(match[3])) if match else None
