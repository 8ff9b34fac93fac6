"""Sizes of data and checkpoints, and number of sessions of a run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ...units import GB
from ..cost_terms import Bounds, CostTerms

if TYPE_CHECKING:
    from ...workload.model import Workload

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


def dataset_gb(workload: Workload, terms: CostTerms) -> Bounds | None:
    """Return the size of the downloaded data, or None if the number of samples is unknown [GB]."""
    given = terms.given("dataset_gb")
    if given is not None:
        return (given, given, given)
    share = terms.bounds("dataset_share", "any")
    if workload.samples is None or share is None:
        return None
    fed_gb = workload.samples * workload.memory.input_bytes / workload.batch_size / GB
    return (share[0] * fed_gb, share[1] * fed_gb, share[2] * fed_gb)


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
