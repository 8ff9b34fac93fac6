"""The current date, which `GPUPLAN_TODAY` can set: outputs that must repeat depend on the age of prices."""

from __future__ import annotations

import os
from datetime import date

from .errors import UsageError

VARIABLE = "GPUPLAN_TODAY"


def get_today() -> date:
    """Return the current date, or that of the environment; UsageError if it is not a date."""
    stated = os.environ.get(VARIABLE)
    if not stated:
        return date.today()
    try:
        return date.fromisoformat(stated)
    except ValueError as error:
        message = f"`{stated}` in `{VARIABLE}` is not a date"
        raise UsageError(message, hint="write it as 2026-11-25") from error
