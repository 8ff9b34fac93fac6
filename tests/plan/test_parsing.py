"""Durations and limits as people write them."""

from __future__ import annotations

import pytest
from gpuplan.errors import UsageError
from gpuplan.plan.question import Filters, Question, select
from gpuplan.plan.request import parse_duration_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("12h", 43_200), ("2d", 172_800), ("1.5h", 5400), (" 1H30M ", 5400)],
)
def test_durations(text: str, seconds: float) -> None:
    """Closed form: 60 s, 3,600 s and 86,400 s to the minute, hour and day."""
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "12", "h", "12 hs", "-3h", "1h-2m", "1y", "infs"])
def test_invalid_durations(text: str) -> None:
    """One line, with a valid example as the hint."""
    with pytest.raises(UsageError, match=r"is not a duration|has no unit") as caught:
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


def test_a_chip_that_is_named_is_answered_though_it_can_no_longer_be_rented() -> None:
    """A K80 is selected as retired where it is named; retired T4 are not, since others can be had."""
    chosen = select(Filters(accelerators=("nvidia k80", "T4"))).offers
    gone = {one.offer.accelerator for one in chosen if one.availability == "retired"}

    assert gone == {"K80"}
    assert "K80" not in {one.offer.accelerator for one in select(Filters()).offers}


def test_accelerators_without_offers_are_named() -> None:
    """Nobody rents a K80 in Taiwan: it is missing, in the catalog's spelling."""
    assert select(Filters(accelerators=("nvidia k80", "T4"), regions=("asia-east2",))).unmatched == ("K80",)
