"""Flags of `gpuplan launch` as typed; a flag that was not typed is None or empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from ..errors import UsageError
from ..limits import MAX_AMOUNT
from ..settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchArgs:
    """The flags of `gpuplan launch`, see its help, and the settings.

    Raises:
        UsageError: A limit is not a finite number above zero.
    """

    path: Path
    rank: int | None = None
    script: str | None = None
    arguments: tuple[str, ...] = ()
    source: str | None = None
    max_usd: float | None = None
    max_hours: float | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    settings: Settings = field(default_factory=lambda: Settings(origins={}))

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

    @property
    def full_source(self) -> str:
        """The source with its kind as prefix; a bare path is a folder, by default the current one."""
        kind, colon, _ = (self.source or "").partition(":")
        if self.source and colon and kind in {"git", "s3", "gs", "image"}:
            return self.source
        return f"folder:{Path((self.source or '.').removeprefix('folder:')).resolve()}"
