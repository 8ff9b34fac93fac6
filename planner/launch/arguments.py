"""Flags of `gpuplan launch` as typed; a flag that was not typed is None or empty."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import UsageError
from ..limits import MAX_AMOUNT
from ..plan.request import parse_duration_s

if TYPE_CHECKING:
    from ..settings import Settings


SOURCE_KINDS = ("folder", "git", "s3", "gs", "image")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchArgs:
    """The flags of `gpuplan launch`, see its help, and the settings on how runs are launched.

    Raises:
        UsageError: A limit is not a finite number above zero.
    """

    path: Path
    rank: int | None = None
    fallbacks: int = 3
    script: str | None = None
    arguments: tuple[str, ...] = ()
    source: str | None = None
    requirements: str | None = None
    max_usd: float | None = None
    max_hours: float | None = None
    stop_loss: Literal["off", "warn", "stop"] = "warn"
    checkpoint_every_s: float | None = None
    accept_old_prices: bool = False
    guest_cap_only: bool = False
    options: dict[str, str]
    name: str = ""

    def __post_init__(self) -> None:
        for flag, value, unit in (("max-usd", self.max_usd, "dollars"), ("max-hours", self.max_hours, "hours")):
            if value is not None and not 0 < value <= MAX_AMOUNT:
                raise UsageError(
                    f"`--{flag} {value:g}` is not a valid limit",
                    hint=f"give a number of {unit} above zero, at most {MAX_AMOUNT:g}: `--{flag} 5`",
                )

    @property
    def most_usd(self) -> Decimal | None:
        """Value of `--max-usd` as Decimal; None when it was not typed [USD]."""
        return None if self.max_usd is None else Decimal(str(self.max_usd))


def build_launch_preferences(settings: Settings) -> dict[str, Any]:
    """Return the fields of `LaunchArgs` that are settings; UsageError for an invalid interval of checkpoints."""
    every = settings.checkpoint_every
    return {
        "fallbacks": settings.fallbacks,
        "requirements": settings.requirements or None,
        "stop_loss": settings.stop_loss,
        "checkpoint_every_s": parse_duration_s(every, flag="checkpoint_every") if every else None,
        "accept_old_prices": settings.accept_old_prices,
        "guest_cap_only": settings.guest_cap_only,
    }


def parse_source(text: str | None) -> str:
    """Return a source with its kind as prefix; a bare path is a folder, None the current folder.

    Example:
        >>> parse_source("git:https://example.org/x@main")
        'git:https://example.org/x@main'
    """
    kind, colon, _ = (text or "").partition(":")
    if text and colon and kind in SOURCE_KINDS[1:]:
        return text
    return f"folder:{Path((text or '.').removeprefix('folder:')).resolve()}"
