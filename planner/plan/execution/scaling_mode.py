"""What each device works on: its own batch (weak scaling), or a share of one batch (strong scaling)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ...errors import UsageError
from ...frozen import Frozen
from .run_length import RunLength, compute_strong_run_length, compute_weak_run_length, count_replicas

if TYPE_CHECKING:
    from ...workload.model import Workload

__all__ = ["MOST_REPLICAS_RECOMMENDED", "BatchScaling", "DeviceShare", "ScalingMode", "compute_run_length"]

# Weak: every device keeps the batch, and the global batch grows. Strong: the devices share the batch of one, so
# that the training is the same, step by step, on any number of them.
ScalingMode = Literal["weak", "strong"]
# Where each device keeps its batch, the global batch grows with their number, and with it what is learnt from an
# epoch changes. No more than the largest single host of the catalog is recommended then without being asked for.
MOST_REPLICAS_RECOMMENDED = 16


def compute_run_length(workload: Workload, devices: float, scaling: ScalingMode) -> RunLength:
    """Return the run on some devices, each with its own batch or with a share of one."""
    whole = compute_weak_run_length if scaling == "weak" else compute_strong_run_length
    return whole(
        batch_size=workload.batch_size, samples=workload.samples, epochs=workload.epochs, steps=workload.steps,
        devices=devices,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """The run on some devices, and what one of them works on; None where a batch cannot be shared so far."""

    run: RunLength
    workload: Workload | None


class BatchScaling(Frozen):
    """How a batch is spread over devices.

    Args:
        scaling: Weak or strong.
        resized: Gives the workload at another batch size per device; strong scaling needs it.
    """

    scaling: ScalingMode = "weak"
    resized: Callable[[int], Workload] | None = None

    def split(self, workload: Workload, devices: float) -> DeviceShare:
        """Return the run on some devices.

        Args:
            workload: At the batch size of one device.
            devices: GPUs or TPU chips of an offer [-].

        Raises:
            UsageError: The workload cannot be had at other batch sizes.
        """
        run = compute_run_length(workload, devices, self.scaling)
        replicas = count_replicas(devices)
        if self.scaling == "weak" or replicas == 1:
            return DeviceShare(run, workload)
        if replicas > workload.batch_size:
            return DeviceShare(run, None)
        if self.resized is None:
            raise UsageError(
                f"`--scaling strong` needs `{workload.model}` at smaller batch sizes",
                hint="name the model itself instead of what was saved of it",
            )
        return DeviceShare(run, self.resized(-(-workload.batch_size // replicas)))

    def recommends(self, run: RunLength) -> bool:
        """Return whether so many devices may be recommended unasked: the training must stay what it was."""
        return self.scaling == "strong" or run.replicas <= MOST_REPLICAS_RECOMMENDED
