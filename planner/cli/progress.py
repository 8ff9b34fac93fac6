"""Progress of model questions that take longer than a second."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..plan.compilation import StepCompiler

__all__ = ["build_step_compiler", "show_estimate_progress"]


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
