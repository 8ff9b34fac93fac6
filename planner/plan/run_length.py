"""Length of a run: steps, division of the batch over devices, sizes of data and checkpoints, sessions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from ..records import Frozen
from ..units import GB
from .cost_terms import CostTerms

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


def compute_weak_run_length(
    *, batch_size: int, samples: int | None, epochs: int | None, steps: int | None, devices: float
) -> RunLength:
    """Return the run on some devices under weak scaling: each keeps its batch size.

    Args:
        batch_size: Samples per device and step [-].
        samples: Samples of an epoch [-].
        epochs: Passes over the samples [-].
        steps: Steps of the whole run on one device; if they agree with samples and epochs, the steps are counted
            from the epochs at the larger global batch [-].
        devices: GPUs or TPU chips of the offer; less than one for a share of a GPU [-].
    """
    replicas = count_replicas(devices)
    global_batch_size = batch_size * replicas
    whole = None
    if samples is not None and epochs is not None:
        on_one = -(-samples // batch_size) * epochs  # with the incomplete last batch of each epoch
        if steps is None or steps == on_one:
            whole = -(-samples // global_batch_size) * epochs
    note = ""
    if whole is None and steps is not None:
        whole = -(-steps // replicas)
        if replicas > 1:
            note = f"{steps} steps on one device are {whole} on {replicas}: the same number of samples"
    return RunLength(replicas=replicas, global_batch_size=global_batch_size, steps=whole, note=note)


# Weak: every device keeps the batch, and the global batch grows. Strong: the devices share one batch, so that
# training is the same step by step on any number of them.
ScalingMode = Literal["weak", "strong"]


def compute_run_length(
    workload: Workload, devices: float, scaling: ScalingMode, *, sharers: str = "devices"
) -> RunLength:
    """Return the run on some devices: each keeps its batch, or they share one, in as many steps as one device.

    Args:
        workload: Workload at the batch size of one device.
        devices: GPUs or TPU chips of the offer [-].
        scaling: Weak or strong.
        sharers: Name of the units that share the batch, for messages.
    """
    run = compute_weak_run_length(
        batch_size=workload.batch_size,
        samples=workload.samples,
        epochs=workload.epochs,
        steps=workload.steps,
        devices=devices if scaling == "weak" else 1,
    )
    replicas = count_replicas(devices)
    if scaling == "weak" or replicas == 1:
        return run
    each = -(-workload.batch_size // replicas)
    note = f"a batch of {workload.batch_size} shared by {replicas} {sharers}: {each} samples each"
    return replace(run, replicas=replicas, note=note)


LEAST_USEFUL_SHARE = 0.05  # useful share of a session that preparation nearly fills [-]
# Share of the forward pass in a training step without operation data: the backward pass takes twice as long. [-]
FORWARD_SHARE = 1 / 3


def session_count(work_s: float, *, preparation_s: float, session_s: float | None) -> int:
    """Return the number of sessions of some work: ceil(work / (session - preparation)) [-].

    Args:
        work_s: Time of the work itself [s].
        preparation_s: Preparation at the start of every session [s].
        session_s: Longest session; None for no limit [s].

    At least 5 % of a session are assumed to remain for work.

    Example:
        >>> session_count(36_000.0, preparation_s=600.0, session_s=12 * 3600.0)
        1
        >>> session_count(90_000.0, preparation_s=3_200.0, session_s=12 * 3600.0)
        3
    """
    if session_s is None or work_s + preparation_s <= session_s:
        return 1
    useful_s = max(session_s - preparation_s, LEAST_USEFUL_SHARE * session_s)
    return math.ceil(work_s / useful_s)


def forward_share(workload: Workload) -> float:
    """Return the share of the forward pass in the FLOPs of a training step [-]."""
    total = workload.flops_per_step
    forward = sum(op.flops * op.count for op in workload.ops if op.phase == "forward")
    return forward / total if 0 < forward < total else FORWARD_SHARE


def checkpoint_bytes(workload: Workload, terms: CostTerms) -> float:
    """Return the size of a checkpoint: weights, state and optimizer [bytes]."""
    given = terms.given("checkpoint_gb")
    memory = workload.memory
    kept = memory.parameter_bytes + memory.optimizer_bytes + memory.state_bytes
    return kept if given is None else given * GB


def with_total_epochs(workload: Workload, epochs: int) -> Workload:
    """Return the workload with another number of epochs in all, divided among its phases as before.

    The ends of the phases are rounded to whole epochs. Calls of `evaluate()` and `predict()` stay.

    Args:
        workload: Workload whose epochs are known, in every phase.
        epochs: Epochs of all phases together [-].
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
