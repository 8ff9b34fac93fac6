"""Which coefficients a single odd generation is let off with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gpuplan.predict.coefficients import GenerationCoefficients, field_names

from lab.parameter_vector import RANGES, VectorLayout, compute_robust_scales
from lab.priors import ERA_SPREAD_LOG, NEVER_LINEAR, ROBUST_SPREADS


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
