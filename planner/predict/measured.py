"""Look-up of measured steps by what they compute, not by what they are called."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

from ..workload.model import Workload
from .kernels import kernels_of

__all__ = ["FORMAT", "Measured", "MeasuredStep", "fingerprint", "load_measured"]

FORMAT = "gpuplan.measured-steps/1"


def fingerprint(workload: Workload) -> str:
    """Return a name for the work of a step: equal kernels, precision, mode and way of running, equal name."""
    kernels = sorted(
        (k.category, k.dtype, k.count, k.flops, k.bytes_moved, k.m, k.n, k.k, k.batch)
        for k in kernels_of(workload, compiled=workload.compiled)
    )
    what = [workload.mode, workload.precision, workload.compiled, workload.batch_size, kernels]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """One measured step of known work."""

    accelerator: str
    step_s: float
    source: str


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured steps by fingerprint."""

    steps: dict[str, tuple[MeasuredStep, ...]]

    def find(self, workload: Workload, accelerator: str) -> MeasuredStep | None:
        """Return the median measurement of this work on that accelerator, or None."""
        if not self.steps:
            return None
        rows = [row for row in self.steps.get(fingerprint(workload), ()) if row.accelerator == accelerator]
        rows.sort(key=lambda row: row.step_s)
        return rows[(len(rows) - 1) // 2] if rows else None


@cache
def load_measured() -> Measured:
    """Read the packaged index of published steps."""
    packaged = resources.files("gpuplan.profiles") / "measured_steps.json"
    data = json.loads(packaged.read_text())
    return Measured(
        {
            name: tuple(
                MeasuredStep(accelerator=accelerator, step_s=step_s, source=data["sources"][source])
                for accelerator, step_s, source in rows
            )
            for name, rows in data["steps"].items()
        }
    )
