"""Events of applying a plan: printed as a line, or as a JSON object for scripts."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from .api_call import Data

__all__ = ["EventName", "LaunchEvent"]

EventName = Literal[
    "attempt",
    "sending",
    "done",
    "retry",
    "refused",
    "adopted",
    "armed",
    "up",
    "ending",
    "ended",
    "removed",
    "left",
]


class LaunchEvent(Data):
    """One event.

    Args:
        at: Time by this computer's clock, in UTC.
        event: Its kind.
        run: Name of the run.
        attempt: Number of the attempt; 0: the whole run.
        step: Step of the attempt; empty: the whole attempt.
        message: One line of text.
        details: Values for scripts.
    """

    at: datetime
    event: EventName
    run: str
    attempt: int = 0
    step: str = ""
    message: str
    details: dict[str, Any] = Field(default_factory=dict)
