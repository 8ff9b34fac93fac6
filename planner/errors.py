"""Errors that a user can cause and fix.

    GpuplanError            1   base: something failed
    ├── UsageError          2   wrong flag, argument or file
    ├── NoAnswerError       3   the answer is no: nothing fits, over budget or deadline
    └── CredentialsError    4   a provider needs credentials that were not found

The number is the exit code. Only ``cli`` converts errors to exit codes; any other exception is a bug and
keeps its traceback.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType


class GpuplanError(Exception):
    """Base class of errors that a user can cause and fix.

    Args:
        message: One line naming thing and place.
        hint: One line with the fix.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(GpuplanError):
    """Invalid flag, argument or file."""

    exit_code = 2


class NoAnswerError(GpuplanError):
    """A valid question with a negative answer: nothing fits, over budget or past the deadline."""

    exit_code = 3


class CredentialsError(GpuplanError):
    """Missing credentials of a provider."""

    exit_code = 4


# C0 but tab and line feed, DEL, C1, what reorders or breaks a line (unicode.org/reports/tr9), and surrogates,
# which no encoding has.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str) -> str:
    r"""Return a text whose control characters are escaped as in JSON, so that none of them reaches a terminal.

    Example:
        >>> print(escape_controls("a\x1b[2Jb\u202ec\n"), end="")
        a\u001b[2Jb\u202ec
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


CUTOFF = 0.6  # least share of equal characters of similar names
NO_ALIASES: Mapping[str, str] = MappingProxyType({})


def near_names_hint(
    name: str, known: Iterable[str], *, see_all: str, aliases: Mapping[str, str] = NO_ALIASES
) -> str:
    """Return a hint with the known name that a name stands for, or else with those of similar names.

    Args:
        see_all: Command that lists all names.
        aliases: Other names in lower case, with the known name that each stands for.

    Example:
        >>> near_names_hint("A1O0-40GB", ["A100-40GB", "T4"], see_all="gpuplan accelerators")
        'did you mean `A100-40GB`? See all with `gpuplan accelerators`'
        >>> near_names_hint("Gogle", ["aws", "gcp"], see_all="gpuplan offers", aliases={"google": "gcp"})
        'did you mean `gcp`? See all with `gpuplan offers`'
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    meanings = {alias: meant for alias, meant in aliases.items() if meant in by_lower.values()} | by_lower
    exact = meanings.get(name.strip().lower())
    close = difflib.get_close_matches(name.lower(), meanings, n=3, cutoff=CUTOFF)
    near = [exact] if exact is not None else list(dict.fromkeys(meanings[match] for match in close))
    if not near:
        return f"see all with `{see_all}`"
    return f"did you mean {' or '.join(f'`{n}`' for n in near)}? See all with `{see_all}`"
