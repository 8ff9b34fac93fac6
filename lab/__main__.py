"""Command line of the lab, run from the root of a clone: `python -m lab`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer
from gpuplan.errors import GpuplanError, UsageError

from .accuracy_command import accuracy
from .calibrate_command import calibrate
from .campaign import campaign

INTERRUPTED = 130
COMMANDS = (accuracy, calibrate, campaign)  # each a function with typer's options, in the order of the help page

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def lab() -> None:
    """Fit the packaged coefficients on published measurements, and score predictions."""
    if not Path("profiles").is_dir():
        raise UsageError("there is no folder `profiles` here", hint="run it in the root of a clone")


for command in COMMANDS:
    app.command()(command)


def main(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code; user errors are printed on standard error."""
    try:
        code = app(args=list(arguments), prog_name="python -m lab", standalone_mode=False)
    except GpuplanError as error:
        typer.echo(f"error: {error}", err=True)
        if error.hint:
            typer.echo(f"\nhint: {error.hint}", err=True)
        return error.exit_code
    except typer.TyperException as error:
        typer.echo(f"error: {error.format_message()}", err=True)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
