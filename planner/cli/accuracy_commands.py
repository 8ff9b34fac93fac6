"""`gpuplan accuracy` and `gpuplan calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..predict.accuracy import Scoreboard

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command()(accuracy)
    app.command()(calibrate)


def accuracy(
    file: Annotated[
        Path | None, typer.Argument(help="CSV of your own measurements; without it, the packaged corpus.")
    ] = None,
    *,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            help="Compute one setting (architecture, profet, source, accelerator ...); repeat for more."
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Compute what a profile on this accelerator says of the others."),
    ] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Print what was computed last and shipped, at once.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 3 when anything is worse than what was recorded.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also record the scores in this file.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a page of documentation.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
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

    about_settings = {
        "--setting": bool(setting), "--from": from_ is not None, "--recorded": recorded, "--check": check,
        "--output": output is not None,
        "--markdown": markdown,
    }  # fmt: skip
    _refuse(about_settings, file=file, recorded=recorded, as_json=json_)
    if file is not None:
        _emit_own(judged_file(file), as_json=json_)
        return
    if from_ is not None:
        board = settings_from(from_)
    else:
        board = recorded_board(setting or []) if recorded else settings_board(setting or [])
    emit_settings(board, output=output, markdown=markdown, as_json=json_)
    if check:
        _stop_when_worse(board)


def _refuse(options: dict[str, bool], *, file: Path | None, recorded: bool, as_json: bool) -> None:
    """UsageError for options that contradict each other."""
    from ..errors import UsageError

    given = [name for name, is_given in options.items() if is_given]
    if file is not None and given:
        raise UsageError(
            f"`{given[0]}` is about the published measurements, not about `{file}`",
            hint=f"leave out `{given[0]}`, or the file",
        )
    if recorded and (options["--check"] or options["--output"]):
        other = "--check" if options["--check"] else "--output"
        raise UsageError(
            f"`--recorded` computes nothing that `{other}` could use", hint="leave out one of them"
        )
    if options["--from"] and (options["--setting"] or recorded):
        other = "--setting" if options["--setting"] else "--recorded"
        raise UsageError(f"`--from` is a setting of its own, beside `{other}`", hint="leave out one of them")
    if as_json and options["--markdown"]:
        raise UsageError("`--markdown` and `--json` both say what to print", hint="leave out one of them")


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
