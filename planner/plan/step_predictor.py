"""Interface of everything that predicts the time of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..predict.links import UNKNOWN

if TYPE_CHECKING:
    from ..offers.rows import Accelerator
    from ..predict.links import Machine
    from ..predict.steptime import StepTime, Unpredicted
    from ..workload.model import Workload

__all__ = ["StepPredictor"]


class StepPredictor(Protocol):
    """Predicts the time of one step of a workload on some devices."""

    def step_time(
        self,
        workload: Workload,
        accelerator: Accelerator,
        *,
        devices: float = 1,
        machine: Machine = UNKNOWN,
        hosts: int = 1,
    ) -> StepTime | Unpredicted:
        """Return the time of one step, or the reason why none can be given."""
        ...
