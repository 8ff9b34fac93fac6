"""Medians, their intervals, and whether values hold still."""

from __future__ import annotations

import random
import statistics

import pytest
from gpuplan.profile.statistics import T_975, compute_drift, compute_median_interval, is_settled, summarize
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats


@pytest.mark.parametrize(
    ("count", "rank"), [(6, 1), (8, 1), (9, 2), (10, 2), (15, 4), (20, 6), (25, 8), (30, 10), (40, 14), (50, 18)]
)
def test_ranks_are_those_of_the_published_table(count: int, rank: int) -> None:
    """Sign-test ranks of a 95 % interval of the median (Conover, 1999, section 3.2, table A3)."""
    values = [float(i) for i in range(1, count + 1)]

    assert compute_median_interval(values) == (rank, count + 1 - rank)


def test_five_values_are_too_few() -> None:
    """Their whole range covers the median with 1 - 2/32 = 93.75 %."""
    assert compute_median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert summarize([1.0] * 5, [1] * 5)["width"] is None


def test_intervals_cover_the_median_as_often_as_they_say() -> None:
    """2,000 draws of 21 values from a skewed distribution: the true median (log 2) is covered 95 % of the time."""
    draw = random.Random(0)
    covered = 0
    for _ in range(2000):
        interval = compute_median_interval([draw.expovariate(1.0) for _ in range(21)])
        assert interval is not None
        covered += interval[0] <= 0.6931 <= interval[1]

    assert 0.94 <= covered / 2000 <= 1.0


@given(st.lists(st.floats(1e-6, 1e3), min_size=6, max_size=60))
def test_the_median_lies_in_its_interval(values: list[float]) -> None:
    """Whatever the values are, and in whatever order."""
    interval = compute_median_interval(values)

    assert interval is not None
    assert interval[0] <= statistics.median(values) <= interval[1]
    assert interval == compute_median_interval(values[::-1])


def test_a_step_change_is_drift_and_no_rest() -> None:
    """Ten windows at 1, ten at 1.1: 10 % of drift; only the end holds still."""
    values = [1.0] * 10 + [1.1] * 10

    assert compute_drift(values) == pytest.approx(0.1)
    assert not is_settled(values[:13], last=6, within=0.03)
    assert is_settled(values, last=6, within=0.03)


def test_the_mean_weighs_windows_by_their_steps() -> None:
    """One step of 3 s and three of 1 s are four steps in 6 s."""
    assert summarize([3.0, 1.0], [1, 3])["mean_s"] == pytest.approx(1.5)


def test_quantiles_are_those_of_students_distribution() -> None:
    """`scipy.stats`, to the three decimals of the published table, from one degree of freedom on."""
    assert pytest.approx(stats.t.ppf(0.975, range(1, 16)), abs=5e-4) == T_975


@pytest.mark.parametrize(
    ("values", "drift"), [((1.0, 1.0, 9.0), 0.0), ((2.0, 2.0, 3.0, 3.0), 0.5), ((2.0, 2.0, 7.0, 1.0, 1.0), -0.5)]
)
def test_drift_by_hand(values: tuple[float, ...], drift: float) -> None:
    """Three values have no halves of two; of five, the one in the middle belongs to none."""
    assert compute_drift(values) == drift


@pytest.mark.parametrize(
    ("values", "settled"),
    [
        ((1.0, 1.0, 1.0, 1.0625), True),  # halves differ by 1/32, the last is off by 1/16: just within both
        ((1.0, 1.0, 1.0), False),  # too few
        ((1.0, 1.0, 1.0, 1.5), False),
        ((1.0, 1.0, 1.5, 1.0), False),
    ],
)
def test_values_are_settled_up_to_the_limit(values: tuple[float, ...], settled: bool) -> None:
    """Four values within 1/32 = 3.125 %, single ones within twice that."""
    assert is_settled(values, last=4, within=1 / 32) is settled


@pytest.mark.parametrize(("odd", "settled"), [(3, True), (4, False), (5, False)])
def test_only_the_last_two_values_must_be_no_outliers(odd: int, settled: bool) -> None:
    """One of six takes half as long again: the medians of both halves are 1 all the same."""
    assert is_settled([1.0] * odd + [1.5] + [1.0] * (5 - odd), last=6, within=0.03) is settled


def test_spread_by_hand() -> None:
    """Quartiles of 1, 2, 3, 4 at ranks 5/4 and 15/4: 2.5 apart, as much as the median; one value has none."""
    assert summarize([1.0, 2.0, 3.0, 4.0], [1] * 4)["spread"] == 1.0
    assert summarize([1.0, 3.0], [1, 1])["spread"] is not None
    assert summarize([1.0], [1])["spread"] is None
