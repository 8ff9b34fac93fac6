"""Look-up of measured steps by a fingerprint of their kernels, independent of the model's name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING

from ..records import Frozen
from .kernel_table import Kernel

if TYPE_CHECKING:
    from ..workload.model import Workload
    from .measurements import Measurement


def compute_fingerprint(workload: Workload | Measurement, kernels: Iterable[Kernel]) -> str:
    """Return a hash of kernels, precision, mode, compilation and batch size of a step."""
    rows = sorted((k.category, k.dtype, k.count, k.flops, k.bytes_moved, k.m, k.n, k.k, k.batch) for k in kernels)
    what = [workload.mode, workload.precision, workload.compiled, workload.batch_size, rows]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:20]


class MeasuredStep(Frozen):
    """Measured time of a step on an accelerator."""

    accelerator: str
    step_s: float
    source: str


@dataclass(frozen=True)
class MeasuredSteps:
    """Measured steps by fingerprint."""

    steps: dict[str, tuple[MeasuredStep, ...]]

    @cached_property
    def accelerators(self) -> frozenset[str]:
        """Names of the accelerators with any measured step."""
        return frozenset(row.accelerator for rows in self.steps.values() for row in rows)

    def find(self, work: str, accelerator: str) -> MeasuredStep | None:
        """Return the median measurement of a fingerprint on an accelerator; None if there is none."""
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
