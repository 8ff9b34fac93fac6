"""A sign of life while something takes longer than a second: on standard error, on a terminal, only then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

__all__ = ["tracing"]

PATIENCE_S = 1.0


@contextmanager
def tracing(model: str) -> Iterator[None]:
    """Show, from the first second on, that a model is being traced."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    status = Console(stderr=True).status(f"building and tracing {model} (nothing is trained)", spinner="dots")
    timer = Timer(PATIENCE_S, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()
