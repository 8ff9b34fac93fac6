"""What happens while a plan is applied, one event at a time: a line for people, a JSON object for scripts."""

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
    """One thing that happened.

    Args:
        at: By this computer's clock, in UTC.
        event: What.
        run: Whose.
        attempt: Which; 0 when it is about the run.
        step: Of the attempt; empty when it is about the whole of it.
        message: For people, in one line.
        details: For scripts.
    """

    at: datetime
    event: EventName
    run: str
    attempt: int = 0
    step: str = ""
    message: str
    details: dict[str, Any] = Field(default_factory=dict)
