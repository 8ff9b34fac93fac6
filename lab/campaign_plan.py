"""Plan of a campaign: rows of a device, their order, and their rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpuplan.profile.windows import MeasurementRules

from .campaign_kernels import PRECISIONS, Kernel, chunk_kernels, list_kernels
from .campaign_round import RoundLimits
from .campaign_rows import MEASURED, DeviceProfile, read_profiles
from .campaign_steps import PRECISIONS as STEP_PRECISIONS
from .campaign_steps import Step, list_steps, select_precisions

Device = Literal["cpu", "gpu", "tpu"]
Unit = Step | tuple[Kernel, ...]
STEP_RULES = MeasurementRules(least_s=1.0, most_s=3.0, warm_up_s=3.0)
KERNEL_RULES = MeasurementRules(window_s=0.02, least_s=0.2, most_s=0.8, warm_up_s=0.5)
QUICK_RULES = MeasurementRules(window_s=0.002, least_s=0.01, most_s=0.03, warm_up_s=0.02, fewest=6)
SISTERS = (("H100-SXM", "H200"), ("A100-40GB", "A100-80GB"))


@dataclass(slots=True, kw_only=True)
class Session:
    """A campaign on one device.

    Args:
        platform: `gpu`, `tpu` or `cpu`.
        profiles: By backend.
        limits: Of each process.
        together: Processes that compile at the same time [-].
        stop_at_s: End of the budget, on the monotonic clock [s].
        quick: Whether windows are short, to try it out.
        retry: Whether what failed before is tried again.
        cramped: Steps that ran out of memory beside others, to be tried alone.
    """

    platform: Device
    profiles: dict[str, DeviceProfile]
    limits: RoundLimits
    together: int
    stop_at_s: float
    quick: bool
    retry: bool
    cramped: list[tuple[str, Unit]] = field(default_factory=list)

    def rules_of(self, unit: Unit) -> MeasurementRules:
        """Return the rules of timing."""
        return QUICK_RULES if self.quick else STEP_RULES if isinstance(unit, Step) else KERNEL_RULES

    def is_settled(self, backend: str, unit: Unit) -> bool:
        """Return whether nothing is left of a unit."""
        profile = self.profiles.get(backend)
        if profile is None:  # a list without the device
            return False
        if isinstance(unit, Step):
            return profile.settles_step(unit, retry=self.retry)
        return all(profile.settles_kernel(kernel, retry=self.retry) for kernel in unit)


def plan(
    backends: Sequence[str], capability: str | None, session: Session, *, only: str | None
) -> Iterator[tuple[str, Unit]]:
    """Yield backend and unit of what is left: kernels, steps on JAX, steps on PyTorch, steps of other chips."""
    yield from _iter_kernels(backends, capability, session, only=only)
    precisions = select_precisions(STEP_PRECISIONS, platform=session.platform, compute_capability=capability)
    steps = [step for backend in backends for step in list_steps(backend, precisions, quick=session.quick)]
    for step in dict.fromkeys([*steps, *([] if session.quick else list_sister_steps(backends, session))]):
        if not session.is_settled(step.backend, step) and _is_wanted(step, only):
            yield step.backend, step


def _is_wanted(unit: Unit, only: str | None) -> bool:
    return only is None or any(re.search(only, name) for name in name_rows(unit))


def _iter_kernels(
    backends: Sequence[str], capability: str | None, session: Session, *, only: str | None
) -> Iterator[tuple[str, Unit]]:
    precisions = select_precisions(PRECISIONS, platform=session.platform, compute_capability=capability)
    chunks = []
    for backend in backends:
        left = [
            kernel
            for kernel in list_kernels(precisions, quick=session.quick)
            if not session.is_settled(backend, (kernel,)) and _is_wanted((kernel,), only)
        ]
        parts = [tuple(left)] if session.quick and left else chunk_kernels(left)
        chunks += [(place, backend, chunk) for place, chunk in enumerate(parts)]
    for _, backend, chunk in sorted(chunks, key=lambda one: one[0]):
        yield backend, chunk


def list_sister_steps(backends: Sequence[str], session: Session) -> list[Step]:
    """Return the steps that were measured on the sister chip first, then those of all others."""
    own = next((profile.data["accelerator"] for profile in session.profiles.values()), "")
    sisters = {name for pair in SISTERS if own in pair for name in pair}
    others = [one for one in read_profiles(sorted(MEASURED.glob("*.json"))) if one["backend"] in backends]
    others.sort(key=lambda one: one["accelerator"] not in sisters)
    return [Step.from_row(row) for one in others for row in one["rows"] if row["status"] == "measured"]


def name_rows(unit: Unit) -> list[str]:
    """Return the names of a unit's rows."""
    if isinstance(unit, Step):
        return [f"step {unit.name}"]
    return [f"kernel {one.family} {one.name} {one.direction} {one.precision}" for one in unit]
