"""Answers of boto3's as the engine takes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from .faults import fault_of_state

__all__ = ["plain", "require_starting"]


def require_starting(reply: Mapping[str, Any]) -> None:
    """Raise what it means when an instance ended while it was to start."""
    for reservation in reply["Reservations"]:
        for instance in reservation["Instances"]:
            fault = fault_of_state(instance)
            if fault is not None:
                raise fault


def plain(value: Any) -> Any:
    """Return an answer in JSON's types; times as ISO 8601, and nothing of the transport."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items() if key != "ResponseMetadata"}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
