"""A sign of life while something takes longer than a second: on standard error, on a terminal, only then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..plan.compiling import Compiling

__all__ = ["compiling", "tracing"]

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


@contextmanager
def compiling(*, wanted: bool) -> Iterator[Compiling | None]:
    """Yield how steps are compiled, a bar shown on a terminal; None when that is not wanted."""
    if not wanted:
        yield None
        return
    from ..plan.compiling import Compiling
    from ..render.progress import bar

    shown = None
    with ExitStack() as stack:

        def tell(accelerator: str, done: int, total: int) -> None:
            nonlocal shown
            shown = shown or stack.enter_context(bar("compiling for"))
            shown(accelerator, done, total)

        def warn(line: str) -> None:
            sys.stderr.write(f"warning: {line}\n")

        yield Compiling(tell=tell, warn=warn)
