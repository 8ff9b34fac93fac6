"""Conversion of records into JSON values, the same for all records, and parsing of JSON that a user gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import cache
from pathlib import PurePath
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

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


def from_plain(kind: Any, value: Any, *, skip: frozenset[str] = frozenset()) -> Any:
    """Convert the JSON value of a record back into it: the inverse of `to_plain`.

    Objects become the records, lists the tuples and texts the enumerations that the annotations of fields name.

    Args:
        kind: Record, or another type: a tuple of one type, an optional one, an enumeration.
        value: JSON value; TypeError, ValueError or AttributeError where it does not fit.
        skip: Keys of objects that are left out.

    Example:
        >>> from_plain(tuple[float, ...], [1.0, 2.0]), from_plain(date | None, None)
        ((1.0, 2.0), None)
    """
    reader = _find_reader(kind)
    return value if reader is None else reader(value, skip)


_Reader = Callable[[Any, frozenset[str]], Any]


@cache
def _find_reader(kind: Any) -> _Reader | None:
    """Return the conversion of JSON values into a type; None where they stay as they are."""
    parts = get_args(kind)
    if is_dataclass(kind):
        return lambda data, skip: _read_record(kind, data, skip)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda value, _: kind(value)
    if get_origin(kind) is tuple:
        inner = _find_reader(parts[0])
        return lambda row, skip: tuple(row) if inner is None else tuple([inner(one, skip) for one in row])
    readers = [reader for reader in map(_find_reader, parts) if reader] if NoneType in parts else []
    return (lambda value, skip: None if value is None else readers[0](value, skip)) if readers else None


def _read_record(kind: Any, data: Mapping[str, Any], skip: frozenset[str]) -> Any:
    values = {name: value for name, value in data.items() if name not in skip}
    for name, reader in _find_field_readers(kind):
        if name in values:
            values[name] = reader(values[name], skip)
    return kind(**values)


@cache
def _find_field_readers(kind: Any) -> list[tuple[str, _Reader]]:
    hints = get_type_hints(kind)
    readers = ((one.name, _find_reader(hints[one.name])) for one in fields(kind))
    return [(name, reader) for name, reader in readers if reader]


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; ValueError for invalid, undecodable or too deeply nested text."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
