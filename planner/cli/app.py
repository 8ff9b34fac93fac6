"""The application: its commands, and the mapping of errors to exit codes.

0 done · 1 failed · 2 usage · 3 the answer is no · 4 credentials missing · 130 interrupted
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from functools import cache
from importlib import import_module
from itertools import takewhile
from typing import Annotated, Any

import typer

from .._version import __version__
from ..errors import GpuplanError
from ..files import cache_dir_restored
from ..render.progress import say
from .flags import expand_flag_groups
from .help_pages import CommandGroup, PanelCommand, split_examples
from .option_values import bypass_adapters
from .parse_errors import describe_parse_error

USAGE = 2
INTERRUPTED = 130
LONGEST_WORD = 200
FULL = "free some space on that disk, then repeat the command"
MODELLING = ("jax", "keras", "numpy", "scipy")  # packages that a light installation leaves out

# Group of the help page -> command -> what it does. The group's module, which is loaded for its commands only, has
# a function for each of them, or a tuple of functions for the commands below it.
GROUPS = {
    "Estimate": {
        "estimate": "Time and cost of a training run, wherever it can be rented.",
        "breakeven": "Compare notebooks, your machine and the clouds over runs.",
        "rig": "Compare buying a machine with renting.",
        "sweep": "Try batch sizes, precisions and devices: the best points.",
        "report": "Write a plan as one HTML page.",
    },
    "Launch": {
        "launch": "Start the machine of a plan, run the script, end it.",
        "ps": "List machines that may cost money.",
        "stop": "End runs or machines for good.",
        "reap": "End machines that are past their cap.",
        "export": "Write an offer as a file for another launcher.",
    },
    "Measure": {
        "profile": "Measure a model's step time on this machine.",
        "benchmark": "Measure canonical workloads on this device.",
        "reconcile": "Compare a run with its prediction, and keep it.",
        "accuracy": "Show how far predictions are off on held-out data.",
    },
    "Data": {
        "offers": "List what can be rented, with prices.",
        "accelerators": "List accelerators: memory, bandwidth, peaks.",
        "quota": "Show how many accelerators your account may start.",
        "catalog": "Refresh and check prices.",
    },
    "Installation": {
        "doctor": "Show versions, devices, credentials and folders.",
        "mcp": "Serve commands to an assistant (Model Context Protocol).",
    },
}
COMMANDS = {name: group for group, commands in GROUPS.items() for name in commands}


def _print_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
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
    """Build the application with the command of a command line, with none for its own help, or with all."""
    first = arguments[0] if arguments else ""
    if first in ("-h", "--help"):
        return _build_app(())
    return _build_app((first,) if first in COMMANDS else tuple(COMMANDS))


def _command_for(arguments: Sequence[str]) -> Callable[..., Any]:
    """Return a function that parses a command line and runs it."""
    command = typer.main.get_command(app_for(arguments))
    bypass_adapters(command)
    return command


@cache
def _build_app(commands: Iterable[str]) -> typer.Typer:
    CommandGroup.groups = GROUPS
    made = typer.Typer(
        name="gpuplan",
        cls=CommandGroup,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    made.callback(invoke_without_command=True)(gpuplan)
    for name in commands:
        text = GROUPS[COMMANDS[name]][name]
        home = import_module(f".{COMMANDS[name].lower()}_commands", __package__)
        found = getattr(home, name)
        if callable(found):
            _add_command(made, found, cls=PanelCommand, short_help=text)
            continue
        group = typer.Typer(cls=CommandGroup, help=home.HELP, rich_markup_mode=None)
        for one in found:
            _add_command(group, one)
        made.add_typer(group, name=name, short_help=text)
    return made


def _add_command(group: typer.Typer, command: Callable[..., Any], **how: Any) -> None:
    name = command.__name__
    text, epilog = split_examples(command.__doc__ or "", below=name in GROUPS["Estimate"])
    flat = expand_flag_groups(command)
    group.command(name, help=text, epilog=epilog, **how)(flat)


def __getattr__(name: str) -> Any:
    """Return the application with all of its commands as ``app``."""
    if name == "app":
        return app_for(())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache_dir_restored()
def run(arguments: Sequence[str]) -> int:
    """Run a command line without its program name; return its exit code, and print user errors."""
    debug = "--debug" in takewhile(lambda argument: argument.startswith("-"), arguments)
    context = copy_context()
    if debug:
        from ..workload.capture.process import show_script_output

        context.run(show_script_output.set, True)
    try:
        command, line = _command_for(arguments), {"args": list(arguments), "obj": tuple(arguments)}
        code = context.run(command, **line, prog_name="gpuplan", standalone_mode=False)
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
        _print_error(str(described), hint=described.hint)
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


def _print_error(message: str, *, hint: str | None) -> None:
    """Print an error with its place, a blank line, and the hint."""
    say(f"error: {_shorten(message)}")
    if hint:
        say(f"\nhint: {_shorten(hint)}")


def _shorten(message: str) -> str:
    """Return one line, in which very long words (a pasted file as a name) are cut."""
    words = " ".join(message.splitlines()).split(" ")
    return " ".join(word if len(word) <= LONGEST_WORD else f"{word[:LONGEST_WORD]}…" for word in words)
