"""Memory of a step on a device: the check, its parts, the largest batch that fits, and remedies."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from ..predict.step_time import StatedMemory
from ..records import Frozen
from ..units import GIB

if TYPE_CHECKING:
    from ..workload.model import Workload


# Memory of the framework besides the model: device context, library handles and their workspaces. It varies
# with driver and library; 0.5 GiB is an assumption that is part of every result's `memory_bytes`.
FRAMEWORK_RESERVE_BYTES = GIB // 2
# Usable share of the data sheet's memory for devices without a known value: the smallest of the GPUs whose usable
# memory is known (T4 with ECC: 14.75 of 16 GiB).
USABLE_SHARE = 0.92
# A step that needs more than this share of the usable memory may fail although it is predicted to fit. By XLA's
# count, no training step in profiles/xla_memory.csv needs more than 1.19 times the prediction (InceptionV3).
TIGHT_FROM = 1.0 / 1.2

FitVerdict = Literal["fits", "tight", "does not fit"]


class MemoryVerdict(Frozen):
    """Memory check of a step on one device."""

    needed_bytes: int  # memory of the step and the framework [bytes]
    available_bytes: int | None  # usable memory of one device; None if unknown [bytes]
    fits: bool | None  # whether the step fits; None if the device's memory is unknown
    # Largest number of samples per device that fits, 0 for none; None if unknown [-]
    largest_batch_size: int | None
    stated: bool = False  # whether the result comes from the accelerator's compiler
    recomputed_bytes: int = 0  # size of the values that XLA recomputes to stay below its limit [bytes]
    setting: str = ""  # setting of the run without which the step does not fit, as a sentence; empty for none

    @property
    def verdict(self) -> FitVerdict | None:
        """Verdict in words; `tight` within the prediction's error or by recomputation; None if unknown."""
        if self.available_bytes is None or self.fits is None:
            return None
        if not self.fits:
            return "does not fit"
        if self.stated:
            return "fits"
        is_near = self.needed_bytes > TIGHT_FROM * self.available_bytes
        return "tight" if is_near or self.recomputed_bytes else "fits"


def available_bytes(*, memory_gib: float | None, usable_gib: float | None, share: float = 1.0) -> int | None:
    """Return the usable memory of one device, as observed or a share of the data sheet's; None if unknown [bytes].

    A fractional GPU has its rented share of it.

    Example:
        >>> available_bytes(memory_gib=16.0, usable_gib=14.75) == int(14.75 * 2**30)
        True
    """
    if usable_gib is None and memory_gib is None:
        return None
    gib = usable_gib if usable_gib is not None else USABLE_SHARE * (memory_gib or 0.0)
    return int(gib * min(share, 1.0) * GIB)


def memory_verdict(
    *, fixed_bytes: int, batch_bytes: int, batch_size: int, available_bytes: int | None, recomputed_bytes: int = 0
) -> MemoryVerdict:
    """Check whether a step fits at its batch size, and find the largest one that does.

    Memory is assumed to grow linearly with the batch size: exact for activations saved for the backward pass,
    an upper bound for scratch space of constant size.

    Args:
        fixed_bytes: Memory that does not depend on the batch size [bytes].
        batch_bytes: Memory that grows with the batch size, at ``batch_size`` samples per device [bytes].
        available_bytes: Usable memory of one device; None if unknown [bytes].
        recomputed_bytes: Part of ``batch_bytes`` that XLA recomputes to stay below its limit [bytes].
    """
    fixed = fixed_bytes + FRAMEWORK_RESERVE_BYTES
    needed = fixed + batch_bytes - recomputed_bytes
    found = MemoryVerdict(needed_bytes=needed, available_bytes=available_bytes, fits=None, largest_batch_size=None)
    if available_bytes is None:
        return found
    fits, largest = needed <= available_bytes, None
    if batch_bytes > 0:
        largest = max(0, math.floor((available_bytes - fixed) / (batch_bytes / batch_size)))
        largest = max(largest, batch_size) if fits else largest
    return replace(found, fits=fits, largest_batch_size=largest, recomputed_bytes=recomputed_bytes)


def stated_verdict(verdict: MemoryVerdict, stated: StatedMemory) -> MemoryVerdict:
    """Replace the computed memory of a verdict by the accelerator's compiler's result.

    Without the compiler's own verdict, its memory and the framework's are compared with the usable memory. The
    largest batch size, still an estimate, is scaled by computed memory / stated memory.

    Example:
        >>> known = memory_verdict(fixed_bytes=0, batch_bytes=3 * GIB, batch_size=8, available_bytes=4 * GIB)
        >>> stated_verdict(known, StatedMemory(needed_bytes=5 * GIB, fits=None)).fits
        False
    """
    available, largest = verdict.available_bytes, verdict.largest_batch_size
    needed_bytes, fits = stated.needed_bytes, stated.fits
    if needed_bytes is None:
        return replace(verdict, fits=fits, largest_batch_size=None, stated=True)
    if fits is None and available is not None:
        needed_bytes += FRAMEWORK_RESERVE_BYTES
        fits = needed_bytes <= available
    if largest is not None:
        largest = math.floor(largest * verdict.needed_bytes / needed_bytes)
    found = replace(verdict, needed_bytes=needed_bytes, fits=fits, largest_batch_size=largest)
    return replace(found, stated=True, recomputed_bytes=0)


HALVED = ("mixed_float16", "mixed_bfloat16", "float16", "bfloat16")


class Remedy(Frozen):
    """A measure, the memory of a step with it and the framework [bytes], and whether that fits with a margin."""

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
        needs += f"; XLA recomputes {memory.recomputed_bytes / GIB:.1f} GiB of values, in time that is not counted"
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

    If variables alone do not fit, only sharding them over several devices helps: `sharded`, where that is known.
    """
    if verdict.verdict in (None, "fits"):
        return ()
    available = verdict.available_bytes or 0
    limit = TIGHT_FROM * available
    fixed = workload.memory.compute_fixed_bytes(compiled=workload.compiled) + FRAMEWORK_RESERVE_BYTES
    if fixed > available:
        devices = -(-fixed // int(TIGHT_FROM * available)) if available else 0
        needs = f"needs sharding over {devices} devices or more"
        words = f"weights, gradients and optimizer alone do not fit: {needs}"
        return (sharded or Remedy(remedy=words, needed_bytes=fixed, fits=False),)
    smaller = _find_smaller(workload, fixed, limit) if workload.mode == "train" else ()
    found = [Remedy(remedy=words, needed_bytes=needed, fits=needed <= limit) for words, needed in smaller]
    return tuple(sorted([sharded, *found] if sharded else found, key=lambda one: not one.fits))


def _find_smaller(workload: Workload, fixed: int, limit: float) -> Iterator[tuple[str, int]]:
    """Yield changes of a training step in words, with the memory that it needs then [bytes]."""
    memory, batch_size, batch = workload.memory, workload.batch_size, compute_batch_bytes(workload)
    if workload.precision not in HALVED:
        halved = fixed + memory.input_bytes + (batch - memory.input_bytes) // 2
        yield "mixed precision (about half the activations)", halved
    if memory.recomputed_activation_bytes is not None:
        again = memory.activations_bytes(compiled=workload.compiled, recompute=True)
        yield "recomputed activations (keras.RematScope)", fixed + memory.input_bytes + again
    accumulating = fixed + memory.gradient_bytes
    passes = next((n for n in list_divisors(batch_size) if accumulating + batch // n <= limit), 1)
    if passes > 1:
        words = f"gradient accumulation: {passes} passes of {batch_size // passes} samples an update"
        yield words, accumulating + batch // passes


def list_divisors(number: int) -> list[int]:
    """Return the divisors of a number, smallest first.

    Example:
        >>> list_divisors(12)
        [1, 2, 3, 4, 6, 12]
    """
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def describe_changes(*, micro_batch_size: int | None, accumulation_steps: int, recomputed: bool) -> str:
    """Return the changes of a script with which its step fits, as a sentence; empty for none.

    Args:
        micro_batch_size: Samples of a pass on one device; None where that is the whole batch [-].
        accumulation_steps: Passes for each update [-].
        recomputed: Whether layers recompute their activations.

    Example:
        >>> describe_changes(micro_batch_size=2, accumulation_steps=4, recomputed=False)
        'fits if the script has batches of 2 a device, with `gradient_accumulation_steps=4` of the optimizer'
    """
    changes = []
    if micro_batch_size is not None:
        changes.append(
            f"batches of {micro_batch_size} a device, with `gradient_accumulation_steps={accumulation_steps}` of "
            "the optimizer"
        )
    if recomputed:
        changes.append('layers made under `keras.RematScope(mode="full")`')
    return f"fits if the script has {', and '.join(changes)}" if changes else ""
