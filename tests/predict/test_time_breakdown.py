"""Shares of a step's time by kind of kernel, and its parts, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict import modelled_step
from gpuplan.predict.coefficients import load_coefficients
from gpuplan.predict.intervals import compute_time_breakdowns
from gpuplan.predict.kernel_table import CATEGORIES, Kernel, build_kernel_table
from gpuplan.predict.modelled_step import model_step, place_step
from gpuplan.predict.step_time import NoPrediction, find_limiter

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
    """5 s of convolutions, 1 s of them depthwise, 2.5 s of products and attention, 2.5 s of the rest."""
    assert set(KERNELS_S) <= set(CATEGORIES)
    category = np.array([CATEGORIES.index(name) for name in KERNELS_S])
    (found,) = compute_time_breakdowns(category, np.array([list(KERNELS_S.values())]), np.array([step_s]))

    assert tuple(found)[:4] == pytest.approx(shares)
    assert sum(found) - found.depthwise == pytest.approx(1.0)
    assert found.depthwise == pytest.approx(shares[0] / 5)


def test_parts_of_a_step_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two products of 1 s and two streams of 0.75 s, each launched with a gap of 0.25 s; input of 1/8 s.

    Products take as long for arithmetic as for memory, which counts as arithmetic: 2 - 0.5 s. Streams wait for
    memory: 1.5 - 0.5 s. The rest is the host's: the gaps, and what is left beside kernels and input.
    """
    coefficients = load_coefficients()
    shape = {"dtype": "float32", "flops": 1e9, "bytes_moved": 1e6}
    table = build_kernel_table(
        [Kernel(category="stream", count=2.0, **shape), Kernel(category="dot", count=2.0, m=9, n=9, k=9, **shape)]  # type: ignore[arg-type]
    )
    t4, input_bytes = load_catalog().accelerators["T4"], coefficients.hosts[""].feed_bytes_per_s / 8
    given = place_step(table, t4, precision="float32", compiled=True, input_bytes=input_bytes)
    assert not isinstance(given, NoPrediction)
    times_s = [np.array([row]) for row in ([0.25], [2.0, 1.5], [1.0, 0.2], [1.0, 0.9])]
    monkeypatch.setattr(modelled_step, "compute_kernel_times_s", lambda *_: times_s)
    step = model_step(given, coefficients)

    parts_s = step.parts_s
    assert [parts_s[name] for name in ("compute", "memory bandwidth", "input")] == pytest.approx([1.5, 1.0, 0.125])
    assert parts_s["launch"] == pytest.approx(step.total_s - 1.5 - 1.0 - 0.125)
    assert parts_s["launch"] >= 1.0
    assert find_limiter(parts_s) == "compute"
    assert find_limiter({**parts_s, "input": 9.0}) == "input"
