"""Coefficients in which one generation may be odd, and prior means of the members of a group."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from gpuplan.predict.coefficients import GenerationCoefficients, field_names
from gpuplan.predict.run_config import KERAS_TORCH

from lab.parameter_vector import INFER_SPREAD_LOG, MEANS, VectorLayout, compute_robust_scales, unpack_coefficients
from lab.priors import GROUPS, NEVER_LINEAR, ROBUST_SPREADS


class Run(NamedTuple):
    """What a layout asks of a case."""

    generation: str
    year: int
    stack: str = "keras"
    host: str = "keras"


CASES = (Run("Kepler", 2014), Run("Volta", 2017))


def test_an_odd_generation_counts_linearly_but_for_its_launches() -> None:
    """Two generations: all coefficients of both but `launch_s` may be odd; means and other members may not."""
    scale = compute_robust_scales(VectorLayout.of(CASES))
    names = field_names(GenerationCoefficients)
    first = MEANS + len(INFER_SPREAD_LOG)
    own = scale[first : first + 2 * len(names)].reshape(2, len(names))
    launches = names.index("launch_s")
    assert np.all(own[:, launches] == NEVER_LINEAR)
    assert np.all(np.delete(own, launches, axis=1) == ROBUST_SPREADS)
    assert np.all(np.delete(scale, np.s_[first : first + 2 * len(names)]) == NEVER_LINEAR)


def test_keras_on_pytorch_lies_around_pytorch() -> None:
    """By hand: a log of 0.3 of the parent and 0.1 of its own make exp(0.4) of the mean; alone, exp(0.1)."""
    parent, own = (Run("Volta", 2017, name, name) for name in ("pytorch eager", KERAS_TORCH))
    stacks = next(group for group in GROUPS if group.name == "stack")
    for cases, expected in (((parent, own), 0.4), ((own,), 0.1)):
        layout = VectorLayout.of(cases)
        logs = np.zeros(layout.size)
        for case, log in ((parent, 0.3), (own, 0.1)):
            if case in cases:
                logs[list(layout.columns_of(stacks, case.stack))] = log
        found = unpack_coefficients(logs, layout).stacks

        assert found[KERAS_TORCH].stream == pytest.approx(math.exp(expected), rel=1e-5)
        parents, grandparents = layout.ancestor_columns(own)
        assert sum(column >= 0 for column in parents) == (7 if parent in cases else 0)
        assert max(grandparents) == -1


def test_inference_has_the_rates_of_training_with_the_same_software() -> None:
    """Logs of 0.3 and 0.1 make exp(0.4), without calls in the fit exp(0.3); Inductor's as its libraries'."""
    stacks = next(group for group in GROUPS if group.name == "stack")
    step, call = (Run("Volta", 2017, name, name) for name in ("pytorch eager", "pytorch eager infer"))
    for cases, expected in (((step, call), 0.4), ((step,), 0.3)):
        layout = VectorLayout.of(cases)
        logs = np.zeros(layout.size)
        for case, log in zip(cases, (0.3, 0.1), strict=False):
            logs[list(layout.columns_of(stacks, case.stack))] = log
        found = unpack_coefficients(logs, layout).stacks

        assert found["pytorch eager infer"].stream == pytest.approx(math.exp(expected), rel=1e-5)
        assert found["inductor infer"].tensor == pytest.approx(math.exp(expected), rel=1e-5)
        assert found["inductor infer"].stream == 1.0, "it fuses kernels of its own"


def test_inference_is_dispatched_at_a_ratio_that_all_hosts_share() -> None:
    """By hand: the ratio exp(-0.7) times training's exp(0.3); calls that were measured add their own exp(0.1)."""
    hosts = next(group for group in GROUPS if group.name == "host")
    dispatch = list(hosts.ranges).index("dispatch_s")
    step, call = (Run("Volta", 2017, name, name) for name in ("mxnet tuned", "mxnet tuned infer"))
    for cases, expected in (((step, call), -0.3), ((step,), -0.4)):
        layout = VectorLayout.of(cases)
        logs = np.zeros(layout.size)
        logs[MEANS] = -0.7
        for case, log in zip(cases, (0.3, 0.1), strict=False):
            logs[layout.columns_of(hosts, case.host)[dispatch]] = log
        found = unpack_coefficients(logs, layout).hosts

        assert found["mxnet tuned"].dispatch_s == pytest.approx(math.exp(0.3), rel=1e-5)
        assert found["mxnet tuned infer"].dispatch_s == pytest.approx(math.exp(expected), rel=1e-5)
        columns = layout.infer_columns(cases[-1])
        assert [column for column in columns if column >= 0] == ([MEANS] if call in cases else [])


def test_a_tie_is_closer_only_where_there_is_something_to_tie_to() -> None:
    """Calls lie within 0.1 of steps by the same software, as the table says, and 0.25 of the mean without."""
    stacks = next(group for group in GROUPS if group.name == "stack")
    assert stacks.spreads_log("caffe infer", ("caffe", "caffe infer")) == [0.1] * 4
    assert stacks.spreads_log("caffe infer", ("caffe infer",)) == stacks.spreads_log("caffe", ("caffe",))
    assert stacks.spreads_log("caffe", ("caffe",)) == [0.25, 0.25, 0.25, 0.7]
