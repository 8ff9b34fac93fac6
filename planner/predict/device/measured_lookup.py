"""Look-up of measured steps by what they compute, not by what they are called."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Protocol

from ..kernels.table import Kernel

__all__ = ["FORMAT", "MeasuredStep", "MeasuredSteps", "compute_fingerprint", "load_measured_steps"]

FORMAT = "gpuplan.measured-steps/1"


class RunIdentity(Protocol):
    """What runs: a traced workload, or a published measurement."""

    @property
    def mode(self) -> str:
        """`train` or `infer`."""

    @property
    def precision(self) -> str:
        """As in a Keras policy, or `tf32`."""

    @property
    def compiled(self) -> bool:
        """One XLA program, or kernel by kernel."""

    @property
    def batch_size(self) -> int:
        """Samples in a step."""


def compute_fingerprint(workload: RunIdentity, kernels: Iterable[Kernel]) -> str:
    """Return a name for the work of a step: equal kernels, precision, mode and way of running, equal name.

    Args:
        workload: What runs.
        kernels: `build_kernels` it, as it runs.
    """
    rows = sorted(
        (k.category, k.dtype, k.count, k.flops, k.bytes_moved, k.m, k.n, k.k, k.batch) for k in kernels
    )
    what = [workload.mode, workload.precision, workload.compiled, workload.batch_size, rows]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """One measured step of known work."""

    accelerator: str
    step_s: float
    source: str


@dataclass(frozen=True, slots=True)
class MeasuredSteps:
    """Measured steps by fingerprint."""

    steps: dict[str, tuple[MeasuredStep, ...]]

    def find(self, work: str, accelerator: str) -> MeasuredStep | None:
        """Return the median measurement of the work with that fingerprint on that accelerator, or None."""
        rows = [row for row in self.steps.get(work, ()) if row.accelerator == accelerator]
        rows.sort(key=lambda row: row.step_s)
        return rows[(len(rows) - 1) // 2] if rows else None


@cache
def load_measured_steps() -> MeasuredSteps:
    """Read the packaged index of published steps."""
    packaged = resources.files("gpuplan.profiles") / "measured_steps.json"
    data = json.loads(packaged.read_text())
    return MeasuredSteps(
        {
            name: tuple(
                MeasuredStep(accelerator=accelerator, step_s=step_s, source=data["sources"][source])
                for accelerator, step_s, source in rows
            )
            for name, rows in data["steps"].items()
        }
    )
