"""`gpuplan accuracy`: the recorded errors of the predictions, and those on a user's measurements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from ..records import Flag
from ..render.output import emit_result
from ..render.progress import say, status
from .flags import AsJson
from .messages import format_command, suggest_next


def accuracy(
    file: Annotated[
        Path | None, typer.Argument(help="CSV of your own measurements; without it, the packaged record.")
    ] = None,
    *,
    setting: Annotated[Sequence[str], Flag("One setting (architecture, profet, source, accelerator ...).")] = (),
    json_: AsJson = False,
) -> None:
    """Print prediction errors on held-out data.

    Without FILE, the recorded errors on published measurements: each setting predicts them with coefficients
    fitted without one architecture, source or accelerator, beside three rules of thumb. With FILE your
    measurements are predicted with the packaged coefficients.

    Examples:
      gpuplan accuracy
      gpuplan accuracy --setting source --setting accelerator
      gpuplan accuracy my_runs.csv --json
    """
    if file is None:
        _emit_recorded(setting, as_json=json_)
        suggest_next(format_command("profile", "MODEL", o="profile.json"), as_json=json_)
        return
    if setting:
        raise UsageError(
            f"`--setting` applies to the published measurements, not to `{file}`",
            hint="leave out `--setting`, or the file",
        )
    _emit_own(file, as_json=json_)
    suggest_next(format_command("accuracy"), as_json=json_)


def _emit_recorded(settings: Sequence[str], *, as_json: bool) -> None:
    from ..plan.accuracy import load_recorded_board
    from ..render.accuracy import build_setting_columns, build_setting_rows

    board = load_recorded_board(settings)
    rows = build_setting_rows(board["settings"])
    emit_result("gpuplan.accuracy/1", board, build_setting_columns(), rows, as_json=as_json)


def _emit_own(file: Path, *, as_json: bool) -> None:
    from ..offers.catalog import load_catalog, resolve_accelerator
    from ..plan.accuracy import score_measurements
    from ..predict.measurements import read_measurements
    from ..predict.predictor import Predictor
    from ..render.accuracy import build_scoreboard_columns, build_scoreboard_rows

    resolve, measured = partial(resolve_accelerator, load_catalog()), read_measurements(file)
    with status("predicting") as progress:
        board = score_measurements(measured, resolve, Predictor.load(), progress=progress)
    columns, rows = build_scoreboard_columns(), build_scoreboard_rows(board)
    emit_result("gpuplan.accuracy/1", board.to_json(), columns, rows, as_json=as_json, title=board.protocol)
    for measurement, reason in board.unpredicted:
        say(f"not predicted: {measurement.model} on {measurement.accelerator}: {reason}")
