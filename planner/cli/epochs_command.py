"""`gpuplan epochs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..plain import to_plain
from .next_step import format_command, suggest_next

__all__ = ["register"]

EPILOG = """Examples:

  gpuplan epochs history.json --metric val_accuracy --target 0.93

  gpuplan epochs training.csv --metric val_loss --target 0.25 --json
"""


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command(epilog=EPILOG)(epochs)


def epochs(
    history: Annotated[Path, typer.Argument(help="`History.history` as JSON, or a file of CSVLogger.")],
    target: Annotated[float, typer.Option(help="What the metric should reach.")],
    metric: Annotated[str, typer.Option(help="Which metric.")] = "val_accuracy",
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Extrapolate how many epochs a metric takes to a target, or say that it cannot be known."""
    from ..errors import NoAnswerError
    from ..plan.compare.learning_curve import SCHEMA, forecast_epochs, read_history
    from ..render.output import Column, emit_json, emit_rows
    from ..render.progress import status

    with status(f"extrapolating {metric}"):
        found = forecast_epochs(read_history(history), metric=metric, target=target)
    row = to_plain(found)
    if json_:
        emit_json(SCHEMA, row)
    else:
        emit_rows([Column(key=key, header=key) for key in row], [row])
    if found.epochs is None:
        raise NoAnswerError(
            f"{metric} {target:g}: {found.reason}", hint="train a few more epochs, or ask for less"
        )
    suggest_next(format_command("estimate", "MODEL", epochs=found.epochs), as_json=json_)
