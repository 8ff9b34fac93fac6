"""Division of a batch over devices: each keeps its own (weak scaling), or they share one (strong scaling)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from ...errors import UsageError
from ...frozen import Frozen
from .run_length import RunLength, compute_weak_run_length, count_replicas, share_batch

if TYPE_CHECKING:
    from ...workload.model import Workload

# Weak: every device keeps the batch, and the global batch grows. Strong: the devices share one batch, so that
# training is the same step by step on any number of them.
ScalingMode = Literal["weak", "strong"]


def compute_run_length(
    workload: Workload, devices: float, scaling: ScalingMode, *, sharers: str = "devices"
) -> RunLength:
    """Return the run on some devices under weak or strong scaling; inference has no optimizer batch to grow."""
    compute = partial(
        compute_weak_run_length,
        batch_size=workload.batch_size,
        samples=workload.samples,
        epochs=workload.epochs,
        steps=workload.steps,
    )
    run = compute(devices=devices)
    if scaling == "strong":
        run = share_batch(compute(devices=1), devices, sharers=sharers)
    return run if workload.mode == "train" else replace(run, batch_growth=1)


class BatchScaling(Frozen):
    """Division of a batch over devices.

    Args:
        scaling: Weak or strong.
        resized: Function that returns the workload at another batch size per device; required for strong scaling.
    """

    scaling: ScalingMode = "weak"
    resized: Callable[[int], Workload] | None = None

    def split(
        self, workload: Workload, devices: float, *, sharers: str = "devices"
    ) -> tuple[RunLength, Workload | None]:
        """Return the run on some devices and the workload of each; None for more devices than samples.

        Args:
            workload: Workload at the batch size of one device.
            devices: GPUs or TPU chips of an offer, or replicas of the model [-].
            sharers: Name of these units, for messages.

        Raises:
            UsageError: The workload is not available at other batch sizes.
        """
        run = compute_run_length(workload, devices, self.scaling, sharers=sharers)
        replicas = count_replicas(devices)
        if self.scaling == "weak" or replicas == 1:
            return run, workload
        if replicas > workload.batch_size:
            return run, None
        if self.resized is None:
            raise UsageError(
                f"`--scaling strong` needs `{workload.model}` at smaller batch sizes",
                hint="name the model itself instead of a saved workload",
            )
        return run, self.resized(-(-workload.batch_size // replicas)).get_phase(workload.fit_call)
