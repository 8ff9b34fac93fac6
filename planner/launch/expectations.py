"""What a reply must say: the expectations of a call, held against it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .calls import Kept, look_up, resolve

__all__ = ["unmet"]


def unmet(expects: Mapping[str, Any], reply: Mapping[str, Any], known: Kept) -> str:
    """Return the first expectation that does not hold; empty when all do.

    Args:
        expects: Of a call; references are resolved.
        reply: To the call.
        known: What earlier calls kept.

    Example:
        >>> unmet({"State": "ENABLED"}, {"State": "DISABLED"}, {})
        "State is 'DISABLED', not 'ENABLED'"
        >>> unmet({"Of": {"$ref": "machine.id"}}, {"Of": "i-1"}, {"machine": {"id": "i-1"}})
        ''
    """
    for path, expected in expects.items():
        found = look_up(reply, path)
        wanted = resolve(expected, known)
        if not _holds(found, wanted):
            return f"{path} is {found!r}, not {_described(wanted)}"
    return ""


def _holds(found: Any, wanted: Any) -> bool:
    """Return whether a value of a reply is what is wanted."""
    if found is None:
        return False
    if isinstance(wanted, Mapping) and set(wanted) == {"$not_after"}:
        return datetime.fromisoformat(str(found)) <= datetime.fromisoformat(wanted["$not_after"])
    return wanted is None or found == wanted


def _described(wanted: Any) -> str:
    """Return what is wanted, for people."""
    if isinstance(wanted, Mapping) and set(wanted) == {"$not_after"}:
        return f"{wanted['$not_after']} or earlier"
    return "set" if wanted is None else repr(wanted)
