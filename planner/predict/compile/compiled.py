"""Result of the compilation of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fault = Literal["missing", "does not fit", "timed out", "out of memory", "killed", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStep:
    """A step as compiled for one device, or the reason why it is not.

    Args:
        compiler: Compiler and package versions; empty if it failed.
        needed_bytes: Peak memory including arguments; None if the compiler does not state it [bytes].
        fault: Reason; `does not fit` is a result of the compiler, the others are failures; None for none.
        message: One-line description of the fault.
        hint: Remedy; empty if there is none.
    """

    compiler: str = ""
    needed_bytes: int | None = None
    fault: Fault | None = None
    message: str = ""
    hint: str = ""

    @property
    def has_failed(self) -> bool:
        """Whether the compiler gave no result, so that another attempt may succeed."""
        return self.fault not in (None, "does not fit")
