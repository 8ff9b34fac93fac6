"""`gpuplan accuracy` and `gpuplan calibrate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .spread import spread

if TYPE_CHECKING:
    from ..predict.accuracy import Scoreboard

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command()(accuracy)
    app.command()(calibrate)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFlags:
    """What is computed of the published measurements, and what becomes of it."""

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
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 3 when anything is worse than what was recorded.")
    ] = False
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also record the scores in this file.")
    ] = None
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a page of documentation.")] = False
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False

    def refuse(self, file: Path | None) -> None:
        """Raise UsageError for flags that contradict each other, or the file."""
        from ..errors import UsageError

        given = self._given()
        if file is not None and given:
            raise UsageError(
                f"`{given[0]}` is about the published measurements, not about `{file}`",
                hint=f"leave out `{given[0]}`, or the file",
            )
        for flag, others, why in CONTRADICTIONS:
            other = next((other for other in others if other in given), None)
            if flag in given and other is not None:
                raise UsageError(why.format(flag, other), hint="leave out one of them")
        if self.json_ and self.markdown:
            raise UsageError("`--markdown` and `--json` both say what to print", hint="leave out one of them")

    def _given(self) -> list[str]:
        """Return the flags that are not about a user's own file."""
        flags = {
            "--setting": self.setting, "--from": self.from_, "--recorded": self.recorded,
            "--check": self.check, "--output": self.output, "--markdown": self.markdown,
        }  # fmt: skip
        return [name for name, value in flags.items() if value]


# A flag, the flags that it excludes, and what is wrong with both.
CONTRADICTIONS = (
    ("--recorded", ("--check", "--output"), "`{}` computes nothing that `{}` could use"),
    ("--from", ("--setting", "--recorded"), "`{}` is a setting of its own, beside `{}`"),
)


@spread
def accuracy(
    file: Annotated[
        Path | None, typer.Argument(help="CSV of your own measurements; without it, the packaged corpus.")
    ] = None,
    *,
    flags: SettingFlags,
) -> None:
    """Print how far off predictions are, on what nothing was fitted to.

    Without FILE the published measurements are predicted in several settings, each by coefficients fitted
    without an architecture, a source or an accelerator, beside three rules of thumb. With FILE your
    measurements are predicted with the packaged coefficients.

    Examples:

      gpuplan accuracy --recorded

      gpuplan accuracy --setting source --setting accelerator

      gpuplan accuracy --from T4

      gpuplan accuracy my_runs.csv --json
    """
    from .accuracy_settings import emit_settings, judged_file, recorded_board, settings_board, settings_from

    flags.refuse(file)
    if file is not None:
        _emit_own(judged_file(file), as_json=flags.json_)
        return
    if flags.from_ is not None:
        board = settings_from(flags.from_)
    else:
        board = (recorded_board if flags.recorded else settings_board)(flags.setting or [])
    emit_settings(board, output=flags.output, markdown=flags.markdown, as_json=flags.json_)
    if flags.check:
        _stop_when_worse(board)


def _emit_own(board: Scoreboard, *, as_json: bool) -> None:
    from ..render.accuracy import scoreboard_columns, scoreboard_rows
    from ..render.output import emit_json, emit_rows

    if as_json:
        emit_json("gpuplan.accuracy/1", board.to_json())
    else:
        emit_rows(scoreboard_columns(), scoreboard_rows(board), title=board.protocol)
    for measurement, reason in board.unpredicted:
        typer.echo(f"not predicted: {measurement.model} on {measurement.accelerator}: {reason}", err=True)


def _stop_when_worse(board: dict[str, Any]) -> None:
    """NoAnswerError (exit 3) when a score is worse than the packaged record, by more than noise."""
    from ..errors import NoAnswerError
    from ..predict.record import packaged_record, worsened

    lines = worsened(packaged_record()["settings"], board["settings"])
    if lines:
        hint = "if it is meant, record it with `gpuplan accuracy --output profiles/accuracy.json`"
        raise NoAnswerError("worse than recorded: " + "; ".join(lines), hint=hint)


def calibrate(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder that the coefficients and the index are written to."),
    ] = Path("profiles"),
) -> None:
    """Fit the coefficients on the packaged measurements and write them down.

    Writes efficiency.json (what was fitted, on what, with which intervals) and measured_steps.json (the
    look-up table of published steps).

    Examples:

      gpuplan calibrate

      gpuplan calibrate -o /tmp/coefficients
    """
    from ..errors import UsageError
    from ..offers.load import load_catalog
    from ..predict.calibrate import calibrate as fit_all
    from ..predict.calibrate import measured_index, write_json
    from ..predict.corpus import packaged_corpus
    from ..render.progress import status

    if not output.is_dir():
        raise UsageError(f"`{output}` is not a folder", hint="create it, or name another with `-o`")
    catalog, corpus = load_catalog(), packaged_corpus()
    with status("fitting") as progress:
        coefficients = fit_all(corpus, catalog.accelerators, progress=progress)
        index: dict[str, Any] = measured_index(corpus)
    write_json(output / "efficiency.json", coefficients.to_json())
    write_json(output / "measured_steps.json", index, indent=None)
    typer.echo(f"wrote {output}/efficiency.json and {output}/measured_steps.json", err=True)
