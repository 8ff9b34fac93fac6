"""`gpuplan accuracy` and `gpuplan calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..predict.accuracy import Scoreboard

__all__ = ["register"]

FITTED = "profet_keras_aws"


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command()(accuracy)
    app.command()(calibrate)


def accuracy(
    file: Annotated[
        Path | None, typer.Argument(help="CSV of your own measurements; without it, the packaged corpus.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Print how far off predictions are, on models that nothing was fitted to.

    Without FILE every published architecture is predicted by coefficients fitted on the others, beside three
    rules of thumb. With FILE your measurements are predicted with the packaged coefficients.

    Examples:

      gpuplan accuracy

      gpuplan accuracy my_runs.csv --json
    """
    from ..render.accuracy import scoreboard_columns, scoreboard_rows
    from ..render.output import emit_json, emit_rows

    board = _scoreboard(file)
    if json_:
        emit_json("gpuplan.accuracy/1", board.to_json())
    else:
        emit_rows(scoreboard_columns(), scoreboard_rows(board), title=board.protocol)
    for measurement, reason in board.unpredicted:
        typer.echo(f"not predicted: {measurement.model} on {measurement.accelerator}: {reason}", err=True)


def _scoreboard(file: Path | None) -> Scoreboard:
    from ..offers.load import load_catalog, resolve_accelerator
    from ..predict.accuracy import judge, leave_one_architecture_out
    from ..predict.corpus import collection, read_measurements
    from ..predict.predictor import Predictor
    from ..render.progress import status

    catalog = load_catalog()
    with status("predicting") as progress:
        if file is None:
            return leave_one_architecture_out(collection(FITTED), catalog.accelerators, progress=progress)
        rows = read_measurements(file)
        return judge(
            rows, lambda name: resolve_accelerator(catalog, name), Predictor.load(), progress=progress
        )


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
    from ..predict.corpus import collection
    from ..render.progress import status

    if not output.is_dir():
        raise UsageError(f"`{output}` is not a folder", hint="create it, or name another with `-o`")
    catalog, corpus = load_catalog(), collection(FITTED)
    with status("fitting") as progress:
        coefficients = fit_all(corpus, catalog.accelerators, progress=progress)
        index: dict[str, Any] = measured_index(corpus)
    write_json(output / "efficiency.json", coefficients.to_json())
    write_json(output / "measured_steps.json", index, indent=None)
    typer.echo(f"wrote {output}/efficiency.json and {output}/measured_steps.json", err=True)
