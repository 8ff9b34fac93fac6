"""Conversion of records into JSON values, the same for all records, and parsing of JSON that a user gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from decimal import Decimal
from pathlib import PurePath
from typing import Any

_known: dict[type, Callable[[Any], Any]] = {}  # conversions by type, filled on first use


def to_plain(value: object) -> Any:
    """Convert a value into JSON values.

    A record (a dataclass or a `Frozen`) becomes an object with its fields in order, a mapping an object, another
    sequence (a NamedTuple too) a list, a set a sorted list, a Decimal its digits without an exponent, a date its
    ISO 8601 form and a path its text. None, numbers, strings and Booleans stay as they are.

    Args:
        value: Record, container or single value; TypeError for an object without conversion.

    Example:
        >>> to_plain({"usd": Decimal("1E+2"), "on": date(2026, 11, 1), "sizes": (1, 2)})
        {'usd': '100', 'on': '2026-11-01', 'sizes': [1, 2]}
    """
    kind = type(value)
    if kind not in _known:
        _known[kind] = _find_conversion(kind)
    return _known[kind](value)


def _find_conversion(kind: type) -> Callable[[Any], Any]:
    """Return the conversion of all values of a type."""
    if is_dataclass(kind):
        return _make_record_conversion(tuple(one.name for one in fields(kind)))
    for base, conversion in _CONVERSIONS:
        if issubclass(kind, base):
            return conversion
    raise TypeError(f"{kind.__name__} has no JSON form")


def _make_record_conversion(names: tuple[str, ...]) -> Callable[[Any], dict[str, Any]]:
    """Return the conversion of records with these fields."""
    return lambda record: {name: to_plain(getattr(record, name)) for name in names}


_CONVERSIONS: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    ((type(None), str, int, float), lambda value: value),
    (Decimal, lambda value: format(value, "f")),
    (date, lambda value: value.isoformat()),
    (PurePath, str),
    (Mapping, lambda value: {key: to_plain(member) for key, member in value.items()}),
    ((set, frozenset), lambda value: sorted(map(to_plain, value))),
    (Sequence, lambda value: list(map(to_plain, value))),
)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; ValueError for invalid, undecodable or too deeply nested text."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
