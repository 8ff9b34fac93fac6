"""Stop and checkpoint requests to the training process, and its exit code."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LEAVE", "ControlFlags"]

LEAVE = 75  # "try again later": sysexits.h, EX_TEMPFAIL


@dataclass(slots=True)
class ControlFlags:
    """Requests set by signals and the stop-loss, read by training after each batch.

    Args:
        every_s: Checkpoint interval [s].
        leave: Whether to save and leave.
        in_fit: Whether `fit` is running; otherwise there is nothing to save.
    """

    every_s: float = 60.0
    leave: bool = False
    in_fit: bool = False
