"""Length of a run: its steps, the division of the batch over devices, and other numbers of epochs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from ..records import Frozen

if TYPE_CHECKING:
    from ..workload.model import Workload


class RunLength(Frozen):
    """Length of a run on a number of devices.

    Args:
        replicas: Data-parallel copies of the model [-].
        global_batch_size: Samples of a step over all devices [-].
        steps: Optimizer steps of the whole run; None if unknown [-].
        note: Assumption to show to the user; empty for none.
    """

    replicas: int
    global_batch_size: int
    steps: int | None
    note: str = ""


def count_replicas(devices: float) -> int:
    """Return the number of data-parallel copies of the model: one per whole device, at least one [-].

    Example:
        >>> count_replicas(8.0), count_replicas(0.25)
        (8, 1)
    """
    return max(1, math.floor(devices))


# Weak: every device keeps the batch, and the global batch grows. Strong: the devices share one batch, so that
# training is the same step by step on any number of them.
ScalingMode = Literal["weak", "strong"]


def compute_run_length(
    workload: Workload, devices: float, scaling: ScalingMode, *, sharers: str = "devices"
) -> RunLength:
    """Return the run on some devices: each keeps its batch, or they share one, in as many steps as one device.

    Steps that agree with samples and epochs are counted from the epochs, with the incomplete last batch of each.

    Args:
        workload: Workload at the batch size of one device.
        devices: GPUs or TPU chips of the offer; less than one for a share of a GPU [-].
        scaling: Weak or strong.
        sharers: Name of the units that share the batch, for messages.
    """
    replicas, batch_size = count_replicas(devices), workload.batch_size
    copies = replicas if scaling == "weak" else 1
    samples, epochs, steps, note = workload.samples, workload.epochs, workload.steps, ""
    if samples is not None and epochs is not None and steps in (None, -(-samples // batch_size) * epochs):
        steps = -(-samples // (batch_size * copies)) * epochs
    elif steps is not None and copies > 1:
        shared = -(-steps // copies)
        note = f"{steps} steps on one device are {shared} on {copies}: the same number of samples"
        steps = shared
    if replicas > copies:
        each = -(-batch_size // replicas)
        note = f"a batch of {batch_size} shared by {replicas} {sharers}: {each} samples each"
    return RunLength(replicas=replicas, global_batch_size=batch_size * copies, steps=steps, note=note)


def with_total_epochs(workload: Workload, epochs: int) -> Workload:
    """Return the workload with another number of epochs in all, divided among its phases as before.

    The ends of the phases are rounded to whole epochs. Calls of `evaluate()` and `predict()` stay.
    """
    before = workload.total_epochs
    if not before or epochs == before:
        return workload
    scaled, passed, begun = {}, 0, 0
    for one in workload.phases:
        own = one.epochs or 0
        passed += own
        end = (2 * epochs * passed + before) // (2 * before)
        steps = None if one.steps is None or not own else -(-one.steps * (end - begun) // own)
        scaled[one.fit_call] = replace(one, epochs=end - begun, steps=steps)
        begun = end
    main = scaled[workload.fit_call]
    further = tuple(scaled[one.fit_call] for one in workload.further)
    return replace(workload, epochs=main.epochs, steps=main.steps, further=further)
