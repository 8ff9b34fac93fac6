"""Memory of a step on a device, whole or sharded over several: the check, its parts, and remedies."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Literal

from ..predict.collectives import Exchange, count_messages, list_gradient_sums, list_shard_exchanges
from ..predict.sharding import EVERY_SHARDING, Sharding
from ..predict.step_time import StatedMemory
from ..records import Frozen
from ..units import GIB

if TYPE_CHECKING:
    from ..workload.model import DividedStep, Workload
    from ..workload.ops import Op


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
    largest_batch_size: int | None  # most samples per device that fit, 0 for none; None if unknown [-]
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

    `batch_bytes`, of which XLA recomputes a part to stay below its limit, is assumed to grow linearly with the
    batch size: exact for activations saved for the backward pass, an upper bound for scratch space of constant
    size.
    """
    fixed = fixed_bytes + FRAMEWORK_RESERVE_BYTES
    needed = fixed + batch_bytes - recomputed_bytes
    fits = largest = None
    if available_bytes is not None:
        fits = needed <= available_bytes
        if batch_bytes > 0:
            largest = max(0, math.floor((available_bytes - fixed) / (batch_bytes / batch_size)))
            largest = max(largest, batch_size) if fits else largest
    return MemoryVerdict(
        needed_bytes=needed,
        available_bytes=available_bytes,
        fits=fits,
        largest_batch_size=largest,
        recomputed_bytes=0 if fits is None else recomputed_bytes,
    )


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
    """Format the verdict on a step that does not fit or is tight, with a remedy and a required setting."""
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


# Layers whose gathered weights, or gradients that are not yet scattered, a device holds at a time: the one that
# computes and the one that is on its way. FSDP's rate limiter allows two (Zhao et al., 2023, arXiv:2304.11277,
# section 3.4); FSDP2 lets two gathered layers be alive at once (pytorch/pytorch@f2805a0).
LAYERS_IN_FLIGHT = 2
HALF = 0.5  # size of the copies that mixed precision computes with, of that of float32 variables [-]


class DeviceMemory(Frozen):
    """Memory of one device in a step, by part; without activations and framework, that are not sharded [bytes]."""

    weights: int  # trainable variables, or the device's shard of them
    frozen: int  # non-trainable parameters, or the device's shard of them
    gradients: int  # gradients that are kept until the update
    optimizer: int  # optimizer state
    state: int  # statistics, seeds and metrics, replicated on every device
    gathered: int = 0  # weights of layers gathered from other devices
    buffers: int = 0  # gradients of layers in flight to the device that keeps them

    @property
    def total_bytes(self) -> int:
        """Memory that does not depend on the batch size [bytes]."""
        return sum(getattr(self, part.name) for part in fields(self))


def compute_in_flight_bytes(layer_bytes: Sequence[int], *, others_bytes: int, sent_share: float = 1.0) -> int:
    """Return the size of the largest layers that are in flight at a time, at most what other devices hold [bytes].

    Unknown layers are all counted as in flight. `sent_share` is the size of a layer as sent over its own [-].

    Example:
        >>> compute_in_flight_bytes((10, 40, 20), others_bytes=1000)
        60
    """
    if not layer_bytes:
        return others_bytes
    return min(sum(round(size * sent_share) for size in sorted(layer_bytes)[-LAYERS_IN_FLIGHT:]), others_bytes)


def compute_device_memory(workload: Workload, sharding: Sharding, devices: int) -> DeviceMemory:
    """Return the memory of one of N devices of all machines besides batch, activations and framework.

    ZeRO divides by N, stage by stage, optimizer state, gradients and weights (Rajbhandari et al., 2020, section
    5, figure 1). The variables are those of Keras: float32 in mixed precision, with copies of half the size that
    are gathered. Frozen parameters have no gradients and no optimizer state, and are divided with the weights.
    With tensor parallelism, variables and their gradients are divided as the layout says.
    """
    memory, sizes, divided = workload.memory, workload.layer_sizes, workload.divided
    if sharding.divides_products and divided is not None:
        held = divided.layout.each
        gradients = divided.memory.held_gradient_bytes(compiled=workload.compiled)
        return DeviceMemory(
            weights=held.parameters,
            frozen=0,
            gradients=min(gradients, held.parameters),
            optimizer=held.optimizer,
            state=held.state,
        )

    def keep(whole_bytes: int, *, is_divided: bool) -> int:
        return -(-whole_bytes // devices) if is_divided else whole_bytes

    weights, gradients = memory.parameter_bytes, memory.held_gradient_bytes(compiled=workload.compiled)
    frozen = 0 if sizes is None else min(sizes.frozen_bytes, memory.state_bytes)
    own_weights, own_frozen = (keep(whole, is_divided=sharding.shards_weights) for whole in (weights, frozen))
    own_gradients = keep(gradients, is_divided=sharding.shards_gradients)
    return DeviceMemory(
        weights=own_weights,
        frozen=own_frozen,
        gradients=own_gradients,
        optimizer=keep(memory.optimizer_bytes, is_divided=sharding.shards_optimizer),
        state=memory.state_bytes - frozen,
        gathered=compute_in_flight_bytes(
            () if sizes is None else sizes.parameter_bytes,
            others_bytes=weights - own_weights + frozen - own_frozen,
            sent_share=_compute_sent_share(workload),
        ),
        buffers=compute_in_flight_bytes(
            () if sizes is None or not gradients else sizes.trainable_bytes, others_bytes=gradients - own_gradients
        ),
    )


def _compute_sent_share(workload: Workload) -> float:
    """Return the size of the cast copies of a layer relative to its variables [-].

    Keras casts the variables of a layer in mixed precision before they are used; XLA gathers the copies. Integers
    of quantized layers are gathered as they are.
    """
    integers = workload.quantization in ("int8", "int4")
    return HALF if workload.precision.startswith("mixed_") and not integers else 1.0


def list_exchanges(workload: Workload, sharding: Sharding, devices: float) -> tuple[Exchange, ...]:
    """Return what devices exchange in a step: sums of gradients, and updated variables or gathered layers."""
    if sharding == Sharding.NONE:
        return list_gradient_sums(workload.memory.gradient_bytes, devices=devices)
    memory, sizes = workload.memory, workload.layer_sizes
    gathered, share = float(memory.parameter_bytes), 1.0
    if sharding.shards_weights:
        share = _compute_sent_share(workload)
        gathered = share * (memory.parameter_bytes + (0 if sizes is None else sizes.frozen_bytes))
    layers = (gathered,) if sizes is None else tuple(share * size for size in sizes.parameter_bytes)
    return list_shard_exchanges(
        sharding,
        devices=devices,
        reduced_bytes=float(memory.gradient_bytes),
        gathered_bytes=gathered,
        messages=count_messages(layers),
    )


def divide_update(ops: tuple[Op, ...], share: float) -> tuple[Op, ...]:
    """Return a device's share of the operations; updates of metrics, which belong to no layer, stay whole."""

    def scale(op: Op) -> Op:
        work = (one.name for one in fields(op) if one.name == "flops" or "bytes" in one.name)
        return replace(op, **{name: getattr(op, name) * share for name in work})

    if share == 1.0:
        return ops
    return tuple(scale(op) if op.phase == "update" and op.layer else op for op in ops)


def build_device_workload(
    workload: Workload, sharding: Sharding, devices: int, *, divide: Callable[..., tuple[Op, ...]] = divide_update
) -> Workload:
    """Return the work and the memory of one of N devices.

    With ZeRO and FSDP, it processes its batch as a single device does, and updates its shard of the variables;
    with tensor parallelism, it runs the step of its own shapes. `state_bytes` of its memory contains gathered
    weights and gradients in flight. `divide` is `divide_update`, or keeps its results.
    """
    if sharding == Sharding.NONE or (devices <= 1 and sharding.shards_optimizer):
        return workload
    found = compute_device_memory(workload, sharding, devices)
    source: Workload | DividedStep = workload
    update_share = 1.0 / devices
    if sharding.divides_products and workload.divided is not None:
        source, update_share = workload.divided, 1.0
    kept = {
        "parameter_bytes": found.weights,
        "gradient_bytes": found.gradients,
        "optimizer_bytes": found.optimizer,
        "state_bytes": found.frozen + found.state + found.gathered + found.buffers,
    }
    memory, fused = replace(source.memory, **kept), source.fused_attention
    if fused is not None:
        fused = replace(fused, ops=divide(fused.ops, update_share), memory=replace(fused.memory, **kept))
    return replace(workload, ops=divide(source.ops, update_share), memory=memory, fused_attention=fused)


UNSHARDED = (Sharding.NONE,)
MOST_DEVICES_TRIED = 4096  # beyond the largest cluster that can be rented [-]


def count_groups(sharding: Sharding, devices: float) -> int:
    """Return the groups of devices that each share the products of a replica; at least 1 [-]."""
    return max(1, int(devices) // sharding.ways) if sharding.ways > 1 else 1


def compute_needed_bytes(workload: Workload, sharding: Sharding, devices: int) -> int:
    """Return the memory of one device, the framework's included [bytes]."""
    fixed = compute_device_memory(workload, sharding, devices).total_bytes
    return fixed + compute_batch_bytes(workload) + FRAMEWORK_RESERVE_BYTES


def find_least_devices(workload: Workload, *, limit_bytes: float) -> int | None:
    """Return the least number of devices over which the step fits with FSDP; None for none up to 4,096 [-]."""

    def fits(devices: int) -> bool:
        return compute_needed_bytes(workload, Sharding.FSDP, devices) <= limit_bytes

    if not fits(MOST_DEVICES_TRIED):
        return None
    tried = range(MOST_DEVICES_TRIED)  # memory falls with the number of devices
    return bisect_left(tried, True, lo=1, key=fits)


def find_sharding_remedy(
    workload: Workload, verdict: MemoryVerdict, *, sharding: Sharding, devices: int
) -> Remedy | None:
    """Return the sharding that makes a step fit, on the devices of an offer or else on more; None if none does."""
    available = verdict.available_bytes
    if verdict.verdict in (None, "fits") or available is None or workload.mode != "train":
        return None
    limit = TIGHT_FROM * available
    variables = workload.memory.compute_fixed_bytes(compiled=workload.compiled) + FRAMEWORK_RESERVE_BYTES
    least = find_least_devices(workload, limit_bytes=limit)
    why = ""
    if variables > limit and least is not None:
        room = "do not fit" if variables > available else "leave no room for activations"
        why = f"weights, gradients and optimizer alone {room}: needs sharding over {least} devices or more; "
    tried = EVERY_SHARDING if devices > 1 else ()
    found = next((one for one in tried if compute_needed_bytes(workload, one, devices) <= limit), None)
    if found is not None and found is not sharding:
        needed = compute_needed_bytes(workload, found, devices)
        return Remedy(remedy=f"{why}`--shard {found}` fits on {devices}", needed_bytes=needed, fits=True)
    if least is None or (not why and devices <= 1) or workload.layer_sizes is None:
        return None
    needed = compute_needed_bytes(workload, Sharding.FSDP, least)
    return Remedy(remedy=f"{why}`--shard fsdp` fits from {least} devices on", needed_bytes=needed, fits=False)


def list_memory_parts(
    workload: Workload, each: Workload, sharding: Sharding, devices: int, recomputed_bytes: int = 0
) -> dict[str, int]:
    """Return the memory of one device by part; the parts add up to `memory_bytes` of an offer [bytes]."""
    found, memory = compute_device_memory(workload, sharding, devices), each.memory
    return {
        "weights": found.weights + found.frozen,
        "gradients": found.gradients,
        "optimizer": found.optimizer,
        "other variables": found.state,
        "gathered weights": found.gathered,
        "communication buffers": found.buffers,
        "batch": memory.input_bytes,
        "activations": memory.activations_bytes(compiled=workload.compiled) - recomputed_bytes,
        "framework": FRAMEWORK_RESERVE_BYTES,
    }
