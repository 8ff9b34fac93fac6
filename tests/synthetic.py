"""Coefficients that no fit has made: the starting points of the priors, so that tests need no calibration file."""

from __future__ import annotations

from typing import Any

from gpuplan.predict.coefficients import Coefficients
from gpuplan.predict.intervals import FEATURES, IntervalModel

from lab.priors import ERA_SPREAD_LOG, GROUPS

__all__ = ["build_synthetic_coefficients"]


def build_synthetic_coefficients() -> Coefficients:
    """Return coefficients at their starting points, with one measured generation, stack and host by name."""
    generation, shared, stack, host = (_start(group) for group in GROUPS)
    return Coefficients(
        generations={"": generation, "Turing": generation},
        era=dict.fromkeys(ERA_SPREAD_LOG, 0.0),
        shared=shared,
        stacks={"": stack, "tensorflow2 keras": stack},
        hosts={"": host, "keras": host},
        measured_log=0.05,
        intervals=IntervalModel(intercept=-2.0, slopes=dict.fromkeys(FEATURES, 0.1), low=-1.3, high=1.3),
        fitted_on={
            "runs": ["T4 float32"], "chips": ["T4"], "stacks": ["tensorflow2 keras"], "vendors": ["NVIDIA"],
            "architectures": [], "sources": {}, "rows": 1,
        },
    )  # fmt: skip


def _start(group: Any) -> Any:
    return group.kind(**{name: start for name, (start, _, _) in group.ranges.items()})
