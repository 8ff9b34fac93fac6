"""What is going on, while it takes: a line on stderr, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["status"]


@contextmanager
def status(label: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner with a label; yields the function that says what is being worked on.

    Nothing is shown, and rich is not imported, when stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(label) as spinner:
        yield lambda detail: spinner.update(f"{label}: {detail}")
