"""How a user wants a script to be run, as it was typed."""

from __future__ import annotations

from collections.abc import Sequence

from ..settings import load_settings
from ..workload.script_environment import require_variables
from ..workload.script_terms import ScriptTerms
from .limits import duration_s_of, require_positive

__all__ = ["script_terms_of"]

FLAG = "--script-timeout"


def script_terms_of(*, timeout: str | float | None, variables: Sequence[str]) -> ScriptTerms:
    """Return the terms on which a script runs.

    Args:
        timeout: Longest time, like `90s` or `30m`, or in seconds; None: the setting `script_timeout`.
        variables: Names of environment variables that it may see.

    Raises:
        UsageError: No duration, one that is not above zero, or a variable that is not set.
    """
    require_variables(tuple(variables))
    flag = FLAG
    if timeout is None:
        settings = load_settings()
        timeout, flag = settings.script_timeout, f"script_timeout ({settings.origins['script_timeout']})"
    timeout_s = duration_s_of(timeout, flag=flag) if isinstance(timeout, str) else timeout
    require_positive(timeout_s, what=flag, example="10m")
    return ScriptTerms(timeout_s=timeout_s, variables=tuple(variables))
