"""What a prediction of a step says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..frozen import Frozen
from ..units import Interval

__all__ = ["Basis", "Limiter", "NoPrediction", "StatedMemory", "StepTime", "join_notes"]

Basis = Literal["measured", "compiled", "modelled", "datasheet"]
Limiter = Literal["compute", "memory bandwidth", "launch", "input", "link"]


class StatedMemory(Frozen):
    """What the accelerator's own compiler says that a step needs.

    Args:
        needed_bytes: On one accelerator; None where the compiler refuses a step and does not say [bytes].
        fits: The compiler's verdict; None where it gives none, and the size alone decides.
    """

    needed_bytes: int | None
    fits: bool | None


class StepTime(Frozen):
    """Wall time of one step on one offer's devices.

    Args:
        time_s: 80 % prediction interval [s].
        basis: How it is known.
        limiter: What most of the time goes to.
        parts_s: Where the central estimate goes, adding up to it [s].
        note: One sentence on what was borrowed or assumed; empty when nothing was.
        memory: As the compiler states it; None where it was not asked.
    """

    time_s: Interval
    basis: Basis
    limiter: Limiter
    parts_s: dict[str, float] = field(default_factory=dict)
    note: str = ""
    memory: StatedMemory | None = None


def join_notes(*notes: str) -> str:
    """Return several notes as one, those that say nothing left out.

    Example:
        >>> join_notes("", "borrowed", "assumed")
        'borrowed; assumed'
    """
    return "; ".join(filter(None, notes))


@dataclass(frozen=True, slots=True)
class NoPrediction:
    """Why no time can be given (an unknown peak, a precision that the chip lacks)."""

    reason: str
