"""What a question about a model shows while it takes longer than a second."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..plan.compiling import Compiling

__all__ = ["compiling", "working_out"]


def working_out(model: str) -> AbstractContextManager[Callable[[str], None]]:
    """Show that a model is traced and planned; yields what says where that is."""
    from ..render.progress import status

    return status(f"building, tracing and planning {model} (nothing is trained)")


def compiling(tell: Callable[[str], None]) -> Compiling:
    """Return how steps are compiled, its progress told."""
    from ..plan.compiling import Compiling

    def told(accelerator: str, done: int, total: int) -> None:
        tell(f"compiling for {accelerator}, {done} of {total} done")

    def warn(line: str) -> None:
        sys.stderr.write(f"warning: {line}\n")

    return Compiling(tell=told, warn=warn)
