"""Options for running the user's code: time limit, environment variables, progress callback."""

from __future__ import annotations

from collections.abc import Callable

from ...frozen import Frozen

__all__ = ["DEFAULT_TIMEOUT_S", "ScriptOptions", "format_typed_duration"]

DEFAULT_TIMEOUT_S = 600.0
_MINUTE_S = 60.0


def _silent(line: str) -> None:
    """Ignore progress."""


class ScriptOptions(Frozen):
    """Options for a process that runs the user's code.

    Args:
        timeout_s: Time limit of one process, from the first line of the user's code [s].
        variables: Environment variables to pass in addition to the default ones.
        tell: Callback for one line on the script's position, once it has run for a while.
    """

    timeout_s: float = DEFAULT_TIMEOUT_S
    variables: tuple[str, ...] = ()
    tell: Callable[[str], None] = _silent


def format_typed_duration(duration_s: float) -> str:
    """Format a duration as on the command line.

    Example:
        >>> format_typed_duration(600.0), format_typed_duration(90.0), format_typed_duration(0.5)
        ('10m', '90s', '0.5s')
    """
    minutes, rest_s = divmod(duration_s, _MINUTE_S)
    return f"{minutes:g}m" if minutes and not rest_s else f"{duration_s:g}s"
