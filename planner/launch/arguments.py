"""Flags of `gpuplan launch` and `export` as typed; a flag that was not typed is None or empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from ..errors import UsageError
from ..limits import MAX_AMOUNT
from ..records import Flag
from ..settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchArgs:
    """The plan, the flags, and the settings.

    Raises:
        UsageError: A limit is not a finite number above zero.
    """

    path: Path = Path()
    rank: Annotated[int | None, Flag("Number of the offer in the plan, from 1. Default: the recommended one.")] = (
        None
    )
    script: Annotated[str | None, Flag("Script to run if the plan's MODEL is not one.")] = None
    arguments: tuple[str, ...] = ()
    source: Annotated[
        str | None,
        Flag(
            "Location of the code: a folder, git:URL@REF, image:NAME, s3:BUCKET/KEY, gs:BUCKET/KEY. "
            "Default: the current folder."
        ),
    ] = None
    max_usd: Annotated[float | None, Flag("Maximum cost of the run, all attempts together.")] = None
    max_hours: Annotated[float | None, Flag("Maximum lifetime of the machine.")] = None
    options: Mapping[str, str] = field(default_factory=dict)
    name: Annotated[str, Flag("Name that distinguishes runs of the same plan.")] = ""
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
