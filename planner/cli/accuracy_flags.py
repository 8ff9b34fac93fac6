"""Flags of `gpuplan accuracy` on the published measurements."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["SettingFlags"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFlags:
    """Flags that select settings, and the destination of their scores."""

    setting: Annotated[
        list[str] | None,
        typer.Option(
            help="Compute one setting (architecture, profet, source, accelerator ...); repeat for more."
        ),
    ] = None
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Compute what a profile on this accelerator says of the others."),
    ] = None
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Print what was computed last and shipped, at once.")
    ] = False
    memory: Annotated[
        bool, typer.Option("--memory", help="Memory: beside XLA's word, and published limits.")
    ] = False
    laws: Annotated[
        bool,
        typer.Option("--laws", help="Laws that all predictions keep; exit with 3 when one is broken."),
    ] = False
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 3 when anything is worse than what was recorded.")
    ] = False
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also record the scores in this file.")
    ] = None
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a page of documentation.")] = False
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False

    def refuse(self, file: Path | None) -> None:
        """Raise UsageError for flags that contradict each other or FILE."""
        from ..errors import UsageError

        given = self._list_given_flags()
        if file is not None and given:
            raise UsageError(
                f"`{given[0]}` applies to the published measurements, not to `{file}`",
                hint=f"leave out `{given[0]}`, or the file",
            )
        for flag, others, why in CONTRADICTIONS:
            other = next((other for other in others if other in given), None)
            if flag in given and other is not None:
                raise UsageError(why.format(flag, other), hint="leave out one of them")
        if self.json_ and self.markdown:
            raise UsageError("`--markdown` and `--json` exclude each other", hint="leave out one of them")

    def _list_given_flags(self) -> list[str]:
        """Return the flags that do not apply to a user's file."""
        flags = {
            "--setting": self.setting, "--from": self.from_, "--recorded": self.recorded,
            "--memory": self.memory, "--laws": self.laws, "--check": self.check, "--output": self.output,
            "--markdown": self.markdown,
        }  # fmt: skip
        return [name for name, value in flags.items() if value]


# A flag, the flags it excludes, and the error message.
CONTRADICTIONS = (
    ("--laws", ("--setting", "--from", "--recorded", "--memory", "--check", "--output", "--markdown"),
     "`{}` scores nothing that `{}` could apply to"),
    ("--memory", ("--setting", "--from"), "`{}` has no step times that `{}` could choose from"),
    ("--recorded", ("--check", "--output"), "`{}` computes nothing that `{}` could use"),
    ("--from", ("--setting", "--recorded"), "`{}` is a setting of its own, beside `{}`"),
)  # fmt: skip
