"""Messages on standard error: progress of the work, and the suggested next command."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ..records import Flag, iter_field_parameters
from ..render.progress import say

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ..plan.compilation import StepCompiler

DRY_RUN = "--dry-run"
WITHOUT_DRY_RUN = f"the same without `{DRY_RUN}`"


def suggest_next(*steps: str, as_json: bool = False) -> None:
    """Print suggested commands on standard error of a terminal, unless the output is JSON or redirected.

    Args:
        steps: Alternative commands, or sentences with one.
        as_json: Whether the output is JSON.
    """
    if steps and not as_json and sys.stdout.isatty() and sys.stderr.isatty():
        say(f"next: {', or '.join(steps)}")


def format_command(*words: str, arguments: Sequence[str] | None = None, **flags: object) -> str:
    """Format a command line of gpuplan, omitting flags without a value.

    Args:
        words: Command and arguments.
        arguments: Arguments of a script, after `--`.
        flags: Flags by name with underscores; a list repeats its flag, True adds no value.

    Example:
        >>> format_command("estimate", "my train.py", accelerator=["T4", "L4"], batch_size=None, devices=8.0)
        "gpuplan estimate 'my train.py' --accelerator T4 --accelerator L4 --devices 8"
    """
    parts = [part for name, value in flags.items() for part in _flag(name, value)]
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


def _flag(name: str, value: object) -> Iterator[str]:
    """Yield a flag once for each of its values."""
    for one in value if isinstance(value, (list, tuple)) else (value,):
        if one is None or one is False:
            continue
        yield f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
        if one is not True:
            yield f"{one:g}" if isinstance(one, float) else str(one)


def show_estimate_progress(model: str) -> AbstractContextManager[Callable[[str], None]]:
    """Show progress of tracing and planning a model; yields a function that sets the current item."""
    from ..render.progress import status

    return status(f"building, tracing and planning {model} (nothing is trained)")


def build_step_compiler(tell: Callable[[str], None]) -> StepCompiler:
    """Build the compilation function, with progress messages."""
    from ..plan.compilation import StepCompiler

    def told(accelerator: str, done: int, total: int) -> None:
        tell(f"compiling for {accelerator}, {done} of {total} done")

    def warn(line: str) -> None:
        sys.stderr.write(f"warning: {line}\n")

    return StepCompiler(tell=told, warn=warn)
