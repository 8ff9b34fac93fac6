"""How the user's code may be run: for how long, with which variables, and who is told where it is."""

from __future__ import annotations

from collections.abc import Callable

from ...frozen import Frozen

__all__ = ["DEFAULT_TIMEOUT_S", "ScriptOptions", "format_typed_duration"]

DEFAULT_TIMEOUT_S = 600.0
_MINUTE_S = 60.0


def _silent(line: str) -> None:
    """Show nothing."""


class ScriptOptions(Frozen):
    """The terms on which a process runs the user's code.

    Args:
        timeout_s: Longest time of one process, from the first line of the user's code on [s].
        variables: Environment variables that it sees beside those that every script sees.
        tell: Takes one line on where the script is, once it has taken a while.
    """

    timeout_s: float = DEFAULT_TIMEOUT_S
    variables: tuple[str, ...] = ()
    tell: Callable[[str], None] = _silent


def format_typed_duration(duration_s: float) -> str:
    """Return a duration as it is typed on the command line.

    Example:
        >>> format_typed_duration(600.0), format_typed_duration(90.0), format_typed_duration(0.5)
        ('10m', '90s', '0.5s')
    """
    minutes, rest_s = divmod(duration_s, _MINUTE_S)
    return f"{minutes:g}m" if minutes and not rest_s else f"{duration_s:g}s"
