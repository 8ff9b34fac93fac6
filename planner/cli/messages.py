"""Messages on standard error: progress of the work, and the suggested next command."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from ..records import Flag, iter_field_parameters
from ..render.progress import say

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ..plan.compilation import StepCompiler

TRACING = "building, tracing and planning {} (nothing is trained)"
WITHOUT_DRY_RUN = "the same without `--dry-run`"


def suggest_next(*steps: str, as_json: bool = False) -> None:
    """Print alternative commands, or sentences with one, on a terminal, unless the output goes to a program."""
    if steps and not as_json and sys.stdout.isatty() and sys.stderr.isatty():
        say(f"next: {', or '.join(steps)}")


def get_callbacks() -> dict[str, Any]:
    """Return the functions that tell and ask a user at a terminal, by name; empty elsewhere."""
    if not sys.stderr.isatty():
        return {}
    return {"say": say, "ask": partial(typer.confirm, default=True, err=True) if sys.stdin.isatty() else None}


def format_command(*words: str, arguments: Sequence[str] | None = None, **flags: object) -> str:
    """Format a command line of gpuplan, with `arguments` of a script after `--`, omitting flags without a value.

    Names of flags have underscores; a list repeats its flag, True adds no value.

    Example:
        >>> format_command("estimate", "my train.py", accelerator=["T4", "L4"], batch_size=None, devices=8.0)
        "gpuplan estimate 'my train.py' --accelerator T4 --accelerator L4 --devices 8"
    """
    parts = []
    for name, value in flags.items():
        flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if one is not None and one is not False:
                parts += [flag] if one is True else [flag, f"{one:g}" if isinstance(one, float) else str(one)]
    return shlex.join(["gpuplan", *words, *parts, *(["--", *arguments] if arguments else [])])


def changed_flags(flags: DataclassInstance, *names: str) -> dict[str, Any]:
    """Return by flag the named fields of a record that differ from their defaults; all fields for no names."""
    found = {}
    for one in iter_field_parameters(type(flags)):
        value = getattr(flags, one.name)
        if value != one.default and (not names or one.name in names):
            flag = next((x for x in getattr(one.annotation, "__metadata__", ()) if isinstance(x, Flag)), None)
            name, _, negated = ((flag and flag.name) or one.name).partition("/--")
            found[negated if negated and value is False else name] = True if negated else value
    return found


def build_step_compiler(tell: Callable[[str], None]) -> StepCompiler:
    """Build the compilation function, with progress messages."""
    from ..plan.compilation import StepCompiler

    return StepCompiler(
        tell=lambda accelerator, done, total: tell(f"compiling for {accelerator}, {done} of {total} done"),
        warn=lambda line: say(f"warning: {line}"),
    )
