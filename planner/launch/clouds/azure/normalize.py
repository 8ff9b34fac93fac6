"""Canonical spelling of Azure's answers, so that they can be compared with requests.

Paths in Azure are case-insensitive and returned in any case; dates have any offset, with or without fractions of
a second.
https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

__all__ = ["DATE", "normalize_reply"]

DATE = "%Y-%m-%dT%H:%M:%SZ"
_CASELESS = {"targetResourceId", "roleDefinitionId", "resourceId", "vmId"}
_DATES = {"deadline"}


def normalize_reply(value: Any) -> Any:
    """Return an answer with paths and ids in lower case and dates in UTC, to the second.

    Example:
        >>> normalize_reply({"targetResourceId": "/subscriptions/S/resourceGroups/G", "status": "Enabled"})
        {'targetResourceId': '/subscriptions/s/resourcegroups/g', 'status': 'Enabled'}
        >>> normalize_reply({"deadline": "2026-11-21T14:01:00.0000000+01:00"})
        {'deadline': '2026-11-21T13:01:00Z'}
    """
    if isinstance(value, list):
        return [normalize_reply(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {key: _field(key, inner) for key, inner in value.items()}


def _field(key: str, value: Any) -> Any:
    """Return a normalized field; a date without an offset is unchanged."""
    if key in _CASELESS and isinstance(value, str):
        return value.lower()
    if key not in _DATES or not isinstance(value, str):
        return normalize_reply(value)
    try:
        date = datetime.fromisoformat(value)
    except ValueError:
        return value
    return value if date.tzinfo is None else date.astimezone(UTC).strftime(DATE)
