"""Prior spreads, chosen by cross-validation among the rows of one fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lab.priors import NEVER_LINEAR, ROBUST_LOG
from lab.spread_choice import LinearizedFit, choose_factors

OFF = 1e-4  # far below `ROBUST_LOG`, so that all rows have the weight 1 / ROBUST_LOG^2


def fit_of(classes: tuple[str, ...] = ("latency",), groups: tuple[str, ...] = ("a", "b")) -> LinearizedFit:
    """Return a fit of one coefficient to two rows, one as much too slow as the other is too fast.

    The prior is as sure as a row is: spread = ROBUST_LOG.
    """
    ones = np.ones(1)
    return LinearizedFit(
        residuals=np.array([OFF, -OFF]), slopes=np.ones((2, 1)), groups=groups, classes=classes,
        point=0.0 * ones, start=0.0 * ones, low=-ones, high=ones,
        spread=ROBUST_LOG * ones, robust=NEVER_LINEAR * ones,
    )  # fmt: skip


@pytest.mark.parametrize(("factor", "moved"), [(0.5, 1 / 5), (1.0, 1 / 2), (2.0, 4 / 5)])
def test_a_left_out_row_is_off_by_where_the_other_moves_the_fit(factor: float, moved: float) -> None:
    """By hand: one row of weight 1 and a prior of weight 1 / factor^2 move the fit by 1 / (1 + 1 / factor^2)."""
    assert fit_of().compute_errors({"latency": factor}).sum() == pytest.approx(OFF * (1.0 + moved), rel=1e-5)


def test_the_spread_with_the_least_error_is_chosen() -> None:
    """Rows that contradict each other say nothing about one another: the smallest spread."""
    assert choose_factors(fit_of()) == {"latency": 0.5}


def test_nothing_is_chosen_of_one_group_or_without_a_class() -> None:
    """There is nothing to leave out, or nothing to choose."""
    assert choose_factors(fit_of(groups=("a", "a"))) == {}
    assert choose_factors(fit_of(classes=("",))) == {}


def test_a_step_ends_at_the_bounds() -> None:
    """The other row would move the fit by half of its distance; the bound is nearer."""
    near = replace(fit_of(), low=np.array([-OFF / 10]), high=np.array([OFF / 10]))
    assert near.compute_errors({}).sum() == pytest.approx(OFF * 1.1, rel=1e-5)


def test_a_gain_within_its_standard_error_chooses_nothing() -> None:
    """Of two pairs of rows one is better with a smaller spread, the other as much better with a larger one."""
    one = fit_of(groups=("a", "b", "c", "d"), classes=("latency", "stack"))
    pair, apart = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), np.array([OFF, -OFF, OFF, OFF])
    two = replace(
        one, residuals=apart, slopes=pair, point=np.zeros(2), start=np.zeros(2), low=-np.ones(2), high=np.ones(2),
        spread=ROBUST_LOG * np.ones(2), classes=("latency", "latency"),
    )  # fmt: skip
    assert choose_factors(replace(two, classes=("latency", "stack"))) == {"latency": 0.5, "stack": 4.0}
    assert choose_factors(two) == {}
