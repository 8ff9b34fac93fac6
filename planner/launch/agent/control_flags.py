"""What the run's surroundings want of it, and the code with which it leaves when it is told to."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LEAVE", "ControlFlags"]

LEAVE = 75  # "try again later": sysexits.h, EX_TEMPFAIL


@dataclass(slots=True)
class ControlFlags:
    """What signals and the stop-loss set, and training looks at after each batch.

    Args:
        every_s: Longest work that a crash can lose [s].
        leave: Whether to save and leave.
        in_fit: Whether training is going on; if it is not, there is nothing to save.
    """

    every_s: float = 60.0
    leave: bool = False
    in_fit: bool = False
