"""Rows as the conversions read them, and as pydantic does: the same, or left to pydantic."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from gpuplan.offers.catalog_files import CsvForm, read_csv
from gpuplan.offers.rows import UNREAD, Constraint, Pattern, Positive, Row, _build_readers, _build_validator
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError


class Made(Row):
    """A row with every kind of value that the catalog has."""

    text: str = ""
    word: Literal["a", "b"] = "a"
    usd: Annotated[Decimal, Constraint(ge=0)] | None = None
    number: Positive | None = None
    count: Annotated[int, Constraint(gt=0, le=9)] = 1
    flag: bool = False
    day: date | None = None
    at: datetime | None = None
    names: tuple[Pattern, ...] = ()
    month: Annotated[str, Constraint(pattern=r"^\d{4}-\d{2}$")] = "2026-01"


FIELDS = sorted(Made._blank)
values: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.floats()
    | st.decimals()
    | st.dates()
    | st.lists(st.sampled_from(["a", "(", "\\d", 1]), max_size=2)
    | st.text(max_size=4)
    | st.sampled_from(["a", "true", "1", "1.50", "-1", "1e3", "1_0", " 2", "²", "nan", "2026-02", "2026-02-03"])
)


@settings(max_examples=400)
@given(field=st.sampled_from(FIELDS), value=values)
def test_a_conversion_takes_no_more_than_pydantic_and_gives_the_same(field: str, value: object) -> None:
    """Law: equal values of equal types; whatever pydantic refuses is not converted."""
    try:
        converted = _build_readers(Made)[field](value)
    except UNREAD:
        return
    validated = getattr(_build_validator(Made).validate_python({field: value}), field)

    assert converted == validated
    assert type(converted) is type(validated)
    assert str(converted) == str(validated)  # a Decimal with its trailing zeros


@pytest.mark.parametrize("values", [{"text": "x", "count": "3"}, {"count": 1.0}, {"number": "1e3"}, {"at": 0}])
def test_what_the_conversions_leave_is_read_by_pydantic(values: Mapping[str, object]) -> None:
    """Numbers and times in other forms are read all the same."""
    assert Made.read(values) == _build_validator(Made).validate_python(values)


@pytest.mark.parametrize("values", [{"text": 1}, {"word": "c"}, {"count": 10}, {"usd": "-1"}, {"unknown": 1}])
def test_an_invalid_row_is_refused(values: Mapping[str, object]) -> None:
    """Wrong types, values outside of their bounds, and unknown fields."""
    with pytest.raises(ValidationError):
        Made.read(values)


def test_columns_and_lines_give_the_same_rows() -> None:
    """By columns where every cell is valid, else line by line; other columns are ignored, empty is unknown."""
    good = "text,usd,else\nx,1.50,?\nx,,?\n"
    form = CsvForm("made.csv", ("text", "usd", "else"))

    rows, findings = read_csv(Made, good, form, month="2026-02")
    again, found = read_csv(Made, f"{good}y,-1,?\nz,2\n", form, month="2026-02")

    made = [Made(text="x", usd=usd, month="2026-02") for usd in (Decimal("1.50"), None)]
    assert [one.row for one in rows] == [one.row for one in again] == made
    assert [one.line for one in rows] == [2, 3]
    assert findings == []
    assert [str(one).partition(": input")[0] for one in found] == [
        "made.csv:4: usd",
        "made.csv:5: columns: 2 cells where 3 are expected",
    ]


def test_the_packaged_catalog_is_read_without_pydantic() -> None:
    """Importing it takes longer than reading all files."""
    code = (
        "import sys; from gpuplan.offers.catalog import load_catalog;"
        "from gpuplan.offers.spot import load_preemption_data;"
        "from gpuplan.offers.compat import load_compatibility; c = load_catalog();"
        "assert len(c.offers) > 3000;"
        "c.accelerators, c.names, c.hosts, c.host_series, c.links, c.availability, c.images, c.notebooks,"
        "c.providers, c.costs, load_preemption_data(), load_compatibility();"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
