"""The application: its commands, and the mapping of errors to exit codes.

0 done · 1 failed · 2 usage · 3 the answer is no · 4 credentials missing · 130 interrupted
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib import import_module
from itertools import takewhile
from typing import Annotated, Any

import typer

from ..errors import GpuplanError
from ..files import cache_dir_restored
from ..render.progress import say
from .option_values import bypass_adapters
from .parse_errors import describe_parse_error

USAGE = 2
INTERRUPTED = 130
LONGEST_WORD = 200
FULL = "free some space on that disk, then repeat the command"
MODELLING = ("jax", "keras", "numpy", "scipy")  # packages that a light installation leaves out

# Modules in the order of the help page, with the functions (or groups) that are commands, and constants as
# `REPORT_EPILOG` for text below their help; only the module of the executed command is loaded.
COMMANDS = {
    "estimate_commands": ("estimate", "report", "epochs"),
    "comparison_commands": ("breakeven", "rig", "sweep"),
    "catalog_commands": ("offers", "accelerators", "quota"),
    "refresh_commands": ("catalog",),
    "accuracy_commands": ("accuracy",),
    "profile_commands": ("profile", "reconcile"),
    "benchmark_command": ("benchmark",),
    "launch_commands": ("launch", "ps", "stop", "reap"),
    "doctor_command": ("doctor",),
    "export_command": ("export",),
    "mcp_command": ("mcp",),
}


def _print_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        from .._version import __version__

        typer.echo(f"gpuplan {__version__}")
        raise typer.Exit


def gpuplan(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of every error.")] = False,
) -> None:
    """How long a Keras model trains, and what it costs, on every accelerator that can be rented.

    Start with: gpuplan estimate ResNet50 --samples 50000 --epochs 10
    """
    if context.invoked_subcommand is None:
        say(context.get_help())
        raise typer.Exit(USAGE)


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """Build the application with the command of a command line, or with all commands."""
    wanted = next((name for name, commands in COMMANDS.items() if arguments and arguments[0] in commands), None)
    return _build_app(tuple(COMMANDS) if wanted is None else (wanted,))


def _command_for(arguments: Sequence[str]) -> Callable[..., Any]:
    """Return a function that parses a command line and runs it."""
    command = typer.main.get_command(app_for(arguments))
    bypass_adapters(command)
    return command


@cache
def _build_app(modules: Iterable[str]) -> typer.Typer:
    made = typer.Typer(
        name="gpuplan",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    made.callback(invoke_without_command=True)(gpuplan)
    for module in modules:
        home = import_module(f".{module}", __package__)
        for name in COMMANDS[module]:
            found = getattr(home, name)
            if isinstance(found, typer.Typer):
                made.add_typer(found, name=name)
            else:
                made.command(name, epilog=getattr(home, f"{name.upper()}_EPILOG", None))(found)
    return made


def __getattr__(name: str) -> Any:
    """Return the application with all of its commands as ``app``."""
    if name == "app":
        return app_for(())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache_dir_restored()
def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code; user errors are printed on standard error.

    Args:
        arguments: Arguments without the program name.
    """
    debug = "--debug" in takewhile(lambda argument: argument.startswith("-"), arguments)
    try:
        with _script_output_shown() if debug else nullcontext():
            code = _command_for(arguments)(
                args=list(arguments), obj=tuple(arguments), prog_name="gpuplan", standalone_mode=False
            )
    except ModuleNotFoundError as error:
        if debug or error.name not in MODELLING:
            raise
        _print_error(
            f"{error.name} is not installed, but tracing a model needs it",
            hint="`pip install gpuplan` installs it",
        )
        return USAGE
    except GpuplanError as error:
        if debug:
            raise
        _print_error(str(error), hint=error.hint)
        return error.exit_code
    except typer.TyperException as error:
        described = describe_parse_error(error, arguments)
        _print_error(described.message, hint=described.hint)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except OSError as error:
        return _end_writing(error, debug=debug)
    if code == INTERRUPTED:
        say("interrupted")
    return code if isinstance(code, int) else 0


def _end_writing(error: OSError, *, debug: bool) -> int:
    """Return the exit code after the reader has closed the pipe, or the disk is full; other errors are raised."""
    if isinstance(error, BrokenPipeError):
        from ..render.output import discard_output

        discard_output()
        return 0
    if debug or error.errno not in {errno.ENOSPC, errno.EDQUOT}:
        raise error
    _print_error(f"{error.filename or 'a file'} cannot be written: {error.strerror}", hint=FULL)
    return 1


@contextmanager
def _script_output_shown() -> Iterator[None]:
    """Show what the user's script prints."""
    from ..workload.capture.process import show_script_output

    token = show_script_output.set(True)
    try:
        yield
    finally:
        show_script_output.reset(token)


def _print_error(message: str, *, hint: str | None) -> None:
    """Print an error with its place, a blank line, and the hint."""
    say(f"error: {_shorten(message)}")
    if hint:
        say(f"\nhint: {_shorten(hint)}")


def _shorten(message: str) -> str:
    """Return one line, in which very long words (a pasted file as a name) are cut."""
    words = " ".join(message.splitlines()).split(" ")
    return " ".join(word if len(word) <= LONGEST_WORD else f"{word[:LONGEST_WORD]}…" for word in words)
