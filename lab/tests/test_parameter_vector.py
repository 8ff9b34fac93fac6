"""Coefficients in which one generation may be odd, and prior means of the members of a group."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from gpuplan.predict.coefficients import GenerationCoefficients, field_names
from gpuplan.predict.run_config import KERAS_TORCH

from lab.parameter_vector import RANGES, VectorLayout, compute_robust_scales, unpack_coefficients
from lab.priors import ERA_SPREAD_LOG, GROUPS, NEVER_LINEAR, ROBUST_SPREADS


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
    first = len(RANGES) + len(ERA_SPREAD_LOG)
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
        columns = [column for column in layout.parent_columns(own) if column >= 0]
        assert len(columns) == (7 if parent in cases else 0)
