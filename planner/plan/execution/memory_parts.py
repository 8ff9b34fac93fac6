"""Memory of a step by part, and remedies for a step that does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...frozen import Frozen
from ...units import GIB
from .fitting import list_divisors
from .memory import FRAMEWORK_RESERVE_BYTES, TIGHT_FROM, MemoryVerdict

if TYPE_CHECKING:
    from ...workload.model import Workload

HALVED = ("mixed_float16", "mixed_bfloat16", "float16", "bfloat16")


class Remedy(Frozen):
    """A measure that reduces the memory of a step.

    Args:
        remedy: Description.
        needed_bytes: Remaining memory of the step, including the framework [bytes].
        fits: Whether that fits with a margin.
    """

    remedy: str
    needed_bytes: int
    fits: bool


def compute_batch_bytes(workload: Workload) -> int:
    """Return the memory that grows with the batch size, for the step as executed (XLA or op by op) [bytes]."""
    memory = workload.memory
    return memory.input_bytes + memory.activations_bytes(compiled=workload.compiled)


def memory_parts(workload: Workload) -> dict[str, int]:
    """Return the step's memory by part; the parts add up to `memory_bytes` of an offer [bytes]."""
    memory = workload.memory
    return {
        "weights": memory.parameter_bytes,
        "gradients": memory.held_gradient_bytes(compiled=workload.compiled),
        "optimizer": memory.optimizer_bytes,
        "other variables": memory.state_bytes,
        "batch": memory.input_bytes,
        "activations": memory.activations_bytes(compiled=workload.compiled),
        "framework": FRAMEWORK_RESERVE_BYTES,
    }


def memory_note(memory: MemoryVerdict, remedies: tuple[Remedy, ...]) -> str:
    """Format the verdict on a step that does not fit or is tight, with the first remedy and a required setting.

    Empty for a step that fits as it is.
    """
    if memory.available_bytes is None or memory.verdict is None:
        return ""
    if memory.verdict == "fits":
        return f"memory: {memory.setting}" if memory.setting else ""
    needs = f"{memory.needed_bytes / GIB:.1f} of {memory.available_bytes / GIB:.1f} GiB"
    if memory.recomputed_bytes:
        needs += (
            f"; XLA recomputes {memory.recomputed_bytes / GIB:.1f} GiB of values, in time that is not counted"
        )
    setting = f"; {memory.setting}" if memory.setting else ""
    return f"memory: {memory.verdict} ({needs}){setting}" + "".join(f"; {one.remedy}" for one in remedies[:1])


def find_remedies(
    workload: Workload, verdict: MemoryVerdict, *, sharded: Remedy | None = None
) -> tuple[Remedy, ...]:
    """Return measures that would make a step fit, sufficient ones first, each group by increasing side effects.

    * Mixed precision: activations of half the size; weights, gradients and optimizer keep their size.
    * Recomputation: the backward pass recomputes activations (`keras.RematScope`).
    * Gradient accumulation: several passes of a smaller batch per update (`gradient_accumulation_steps` of a
      Keras optimizer, which keeps one more copy of the gradients).

    If variables alone do not fit, only sharding them over several devices helps.

    Args:
        workload: Workload of the step.
        verdict: Memory check of the step.
        sharded: Sharding over the devices of the offer, or over more; None if it is not known to help.
    """
    if verdict.verdict in (None, "fits"):
        return ()
    available = verdict.available_bytes or 0
    limit = TIGHT_FROM * available
    fixed = workload.memory.compute_fixed_bytes(compiled=workload.compiled) + FRAMEWORK_RESERVE_BYTES
    if fixed > available:
        unnamed = Remedy(remedy=_sharding(fixed, available), needed_bytes=fixed, fits=False)
        return (unnamed if sharded is None else sharded,)
    found = [] if sharded is None else [sharded]
    found += [
        Remedy(remedy=words, needed_bytes=needed, fits=needed <= limit)
        for words, needed in _smaller(workload, fixed, limit)
    ]
    return tuple(sorted(found, key=lambda one: not one.fits))


def _smaller(workload: Workload, fixed: int, limit: float) -> list[tuple[str, int]]:
    memory, batch_size = workload.memory, workload.batch_size
    batch = compute_batch_bytes(workload)
    ways: list[tuple[str, int]] = []
    if workload.mode == "train" and workload.precision not in HALVED:
        halved = fixed + memory.input_bytes + (batch - memory.input_bytes) // 2
        ways.append(("mixed precision (about half the activations)", halved))
    if workload.mode == "train" and memory.recomputed_activation_bytes is not None:
        again = memory.activations_bytes(compiled=workload.compiled, recompute=True)
        ways.append(("recomputed activations (keras.RematScope)", fixed + memory.input_bytes + again))
    accumulating = fixed + memory.gradient_bytes
    passes = next((n for n in list_divisors(batch_size) if accumulating + batch // n <= limit), None)
    if workload.mode == "train" and passes is not None and passes > 1:
        words = f"gradient accumulation: {passes} passes of {batch_size // passes} samples an update"
        ways.append((words, accumulating + batch // passes))
    return ways


def _sharding(fixed: int, available: int) -> str:
    devices = -(-fixed // int(TIGHT_FROM * available)) if available else 0
    return f"weights, gradients and optimizer alone do not fit: needs sharding over {devices} devices or more"
