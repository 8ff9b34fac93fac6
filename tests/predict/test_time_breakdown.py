"""Shares of a step's time by kind of kernel, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from gpuplan.predict.intervals import compute_time_breakdown
from gpuplan.predict.kernel_table import CATEGORIES

KERNELS_S = {"conv_fprop": 4.0, "depthwise": 1.0, "dot": 2.0, "attention_fprop": 0.5, "stream": 1.5, "pool": 1.0}


@pytest.mark.parametrize(
    ("step_s", "shares"),
    [
        (20.0, (0.25, 0.125, 0.125, 0.5)),  # half of the time nothing computes
        (10.0, (0.5, 0.25, 0.25, 0.0)),
        (5.0, (0.5, 0.25, 0.25, 0.0)),  # kernels that take longer than the step are all of it
    ],
)
def test_shares_of_a_step_add_up(step_s: float, shares: tuple[float, ...]) -> None:
    """5 s of convolutions, 2.5 s of products and attention, 2.5 s of the rest."""
    assert set(KERNELS_S) <= set(CATEGORIES)
    category = np.array([CATEGORIES.index(name) for name in KERNELS_S])
    found = compute_time_breakdown(category, np.array(list(KERNELS_S.values())), step_s=step_s)

    assert tuple(found) == pytest.approx(shares)
    assert sum(found) == pytest.approx(1.0)
