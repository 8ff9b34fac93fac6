"""Flags of `gpuplan launch` as typed; a flag that was not typed is None or empty."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal

from ...errors import UsageError
from ...limits import MAX_AMOUNT

FALLBACKS = 3
SOURCE_KINDS = ("folder", "git", "s3", "gs", "image")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchArgs:
    """The flags of `gpuplan launch`; see its help.

    Raises:
        UsageError: A limit is not a finite number above zero.
    """

    path: Path
    rank: int | None = None
    fallbacks: int | None = None
    script: str | None = None
    arguments: tuple[str, ...] = ()
    source: str | None = None
    requirements: str | None = None
    max_usd: float | None = None
    max_hours: float | None = None
    stop_loss: Literal["off", "warn", "stop"] | None = None
    checkpoint_every_s: float | None = None
    accept_old_prices: bool = False
    guest_cap_only: bool = False
    options: dict[str, str]
    name: str = ""

    def __post_init__(self) -> None:
        for flag, value, unit in (
            ("max-usd", self.max_usd, "dollars"),
            ("max-hours", self.max_hours, "hours"),
        ):
            if value is not None and not 0 < value <= MAX_AMOUNT:
                raise UsageError(
                    f"`--{flag} {value:g}` is not a valid limit",
                    hint=f"give a number of {unit} above zero, at most {MAX_AMOUNT:g}: `--{flag} 5`",
                )

    @property
    def most_usd(self) -> Decimal | None:
        """Value of `--max-usd` as Decimal; None when it was not typed [USD]."""
        return None if self.max_usd is None else Decimal(str(self.max_usd))


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
