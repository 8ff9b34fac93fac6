"""The application: its commands, and the one place where errors become exit codes.

0 done · 1 failed · 2 usage · 3 the answer is no · 4 credentials missing · 130 interrupted
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated

import typer

from ..errors import GpuplanError
from . import (
    accuracy_commands,
    breakeven_command,
    catalog_commands,
    decision_commands,
    doctor_command,
    epochs_command,
    estimate_command,
    export_command,
    launch_commands,
    profile_commands,
    quota_command,
    report_command,
)

__all__ = ["app", "run"]

USAGE = 2
INTERRUPTED = 130

app = typer.Typer(
    name="gpuplan",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        from .._version import __version__

        typer.echo(f"gpuplan {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def gpuplan(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of every error.")] = False,
) -> None:
    """How long a Keras model trains, and what it costs, on every accelerator that can be rented.

    Start with: gpuplan estimate ResNet50 --samples 50000 --epochs 10
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(USAGE)


estimate_command.register(app)
report_command.register(app)
epochs_command.register(app)
breakeven_command.register(app)
decision_commands.register(app)
catalog_commands.register(app)
quota_command.register(app)
accuracy_commands.register(app)
profile_commands.register(app)
launch_commands.register(app)
doctor_command.register(app)
export_command.register(app)


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code; what the user can fix is told on standard error.

    Args:
        arguments: Without the program's own name.
    """
    debug = "--debug" in takewhile(lambda argument: argument.startswith("-"), arguments)
    try:
        code = app(args=list(arguments), prog_name="gpuplan", standalone_mode=False)
    except GpuplanError as error:
        if debug:
            raise
        _tell(str(error), hint=error.hint)
        return error.exit_code
    except typer.TyperException as error:
        _tell(_one_line(error.format_message()), hint=f"see `{_command_of(error)} --help`")
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        _send_output_nowhere()
        return 0
    if code == INTERRUPTED:
        typer.echo("interrupted", err=True)
    return code if isinstance(code, int) else 0


def _tell(message: str, *, hint: str | None) -> None:
    """Print an error: what and where, a blank line, and the way out."""
    typer.echo(f"error: {message}", err=True)
    if hint:
        typer.echo(f"\nhint: {hint}", err=True)


def _one_line(message: str) -> str:
    """Return typer's message as our own begin: lower case, one line, no full stop."""
    text = " ".join(message.split()).replace("Value error, ", "").rstrip(".")
    return text[:1].lower() + text[1:]


def _command_of(error: typer.TyperException) -> str:
    """Return the command whose arguments were wrong."""
    context = getattr(error, "ctx", None)
    return "gpuplan" if context is None else context.command_path


def _send_output_nowhere() -> None:
    """Let what is still buffered for a reader that went away disappear without a word."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
