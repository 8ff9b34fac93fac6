"""What a user can cause and can fix.

    GpuplanError            1   base: something failed
    ├── UsageError          2   wrong flag, argument or file
    ├── NoAnswerError       3   the answer is no: nothing fits, over budget or deadline
    └── CredentialsError    4   a provider needs credentials that were not found

The number is the exit code. Only ``cli`` turns an error into an exit; anything else that is raised is a
bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["CredentialsError", "GpuplanError", "NoAnswerError", "UsageError", "near_names_hint"]


class GpuplanError(Exception):
    """Base of everything a user can cause and can fix.

    Args:
        message: One line: what, where.
        hint: One line: how to fix it.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(GpuplanError):
    """A flag, an argument or a file that the user gave cannot be used as it is."""

    exit_code = 2


class NoAnswerError(GpuplanError):
    """The question was understood and the answer is no: nothing fits, over budget or past the deadline."""

    exit_code = 3


class CredentialsError(GpuplanError):
    """A provider needs credentials that were not found."""

    exit_code = 4


def near_names_hint(name: str, known: Iterable[str], *, see_all: str) -> str:
    """Return a hint that names what the user may have meant.

    Example:
        >>> near_names_hint("A1O0-40GB", ["A100-40GB", "T4"], see_all="gpuplan accelerators")
        'did you mean `A100-40GB`? See all with `gpuplan accelerators`'
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]
    if not near:
        return f"see all with `{see_all}`"
    return f"did you mean {' or '.join(f'`{n}`' for n in near)}? See all with `{see_all}`"
