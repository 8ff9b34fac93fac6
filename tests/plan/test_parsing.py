"""Durations and limits as people write them."""

from __future__ import annotations

import pytest
from gpuplan.errors import UsageError
from gpuplan.plan.question import Question
from gpuplan.plan.request import parse_duration_s
from gpuplan.plan.select import Filters, select


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("12h", 43_200), ("2d", 172_800), ("1.5h", 5400), (" 1H30M ", 5400)],
)
def test_durations(text: str, seconds: float) -> None:
    """Closed form: 60 s, 3,600 s and 86,400 s to the minute, hour and day."""
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "12", "h", "12 h", "-3h", "1h-2m", "1y", "infs"])
def test_invalid_durations(text: str) -> None:
    """One line, with a valid example as the hint."""
    with pytest.raises(UsageError, match="is not a duration") as caught:
        parse_duration_s(text)

    assert caught.value.hint == "write s, m, h or d after the number: `12h`"


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_limits_must_be_positive_and_finite(value: float) -> None:
    """No offer can meet a limit of zero dollars or hours."""
    with pytest.raises(UsageError, match="--budget must be above zero"):
        Question(budget_usd=value)
    with pytest.raises(UsageError, match="--deadline must be above zero"):
        Question(deadline_s=value)
    with pytest.raises(UsageError, match="--devices must be above zero"):
        Filters(devices=(value,))


def test_accelerators_without_offers_are_named() -> None:
    """A K80 can no longer be rented: it is missing without `--retired`, in the catalog's spelling."""
    names = ("nvidia k80", "T4")

    assert select(Filters(accelerators=names)).unmatched == ("K80",)
    assert select(Filters(accelerators=names, include_retired=True)).unmatched == ()
