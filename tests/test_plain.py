"""Conversion of records into JSON values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from gpuplan.records import Frozen, to_plain
from gpuplan.units import Interval


class _Pair(NamedTuple):
    first: int
    second: str


class _Run(Frozen):
    time_s: Interval | None
    usd: Decimal = Decimal("1E+2")


@dataclass(frozen=True, slots=True)
class _Report:
    runs: tuple[_Run, ...]
    options: dict[str, Any]


def test_records_become_objects_with_their_fields_in_order() -> None:
    report = _Report(
        runs=(_Run(time_s=Interval(low=1.0, mid=2.0, high=3.0)), _Run(time_s=None)),
        options={"pair": _Pair(1, "a")},
    )

    found = to_plain(report)

    assert found == {
        "runs": [{"time_s": {"low": 1.0, "mid": 2.0, "high": 3.0}, "usd": "100"}, {"time_s": None, "usd": "100"}],
        "options": {"pair": [1, "a"]},
    }
    assert list(found) == ["runs", "options"]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (Path("a/b"), "a/b"),
        (datetime(2026, 11, 1, tzinfo=UTC), "2026-11-01T00:00:00+00:00"),
        (frozenset({"b", "a"}), ["a", "b"]),
    ],
)
def test_single_values(value: object, plain: object) -> None:
    assert to_plain(value) == plain


def test_an_object_without_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        to_plain([object()])
