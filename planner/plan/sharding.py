"""Sharding of a step over the devices of an offer: the memory of each device, and the choice of a sharding."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from ..predict.collectives import Exchange, count_messages, list_gradient_sums, list_shard_exchanges
from ..predict.sharding import EVERY_SHARDING, Sharding
from ..records import Frozen
from .memory import FRAMEWORK_RESERVE_BYTES, TIGHT_FROM, MemoryVerdict, Remedy, compute_batch_bytes

if TYPE_CHECKING:
    from ..workload.model import DividedStep, Workload
    from ..workload.ops import Op
    from .device_estimate import DeviceEstimate


# Layers whose gathered weights, or gradients that are not yet scattered, a device holds at a time: the one that
# computes and the one that is on its way. FSDP's rate limiter allows two (Zhao et al., 2023, arXiv:2304.11277,
# section 3.4); FSDP2 lets two gathered layers be alive at once (pytorch/pytorch@f2805a0).
LAYERS_IN_FLIGHT = 2
HALF = 0.5  # size of the copies that mixed precision computes with, of that of float32 variables [-]


class DeviceMemory(Frozen):
    """Memory of one device in a step, by part, without activations and framework, which are not sharded [bytes].

    Args:
        weights: Trainable variables, or the device's shard of them.
        frozen: Non-trainable parameters, or the device's shard of them.
        gradients: Gradients that are kept until the update.
        optimizer: Optimizer state.
        state: Statistics, seeds and metrics, replicated on every device.
        gathered: Weights of layers gathered from other devices.
        buffers: Gradients of layers in flight to the device that keeps them.
    """

    weights: int
    frozen: int
    gradients: int
    optimizer: int
    state: int
    gathered: int = 0
    buffers: int = 0

    @property
    def total_bytes(self) -> int:
        """Memory that does not depend on the batch size [bytes]."""
        return sum(getattr(self, part.name) for part in fields(self))


def compute_in_flight_bytes(layer_bytes: Sequence[int], *, others_bytes: int, sent_share: float = 1.0) -> int:
    """Return the size of the largest layers that are in flight at a time, at most what other devices hold [bytes].

    Args:
        layer_bytes: Size of every layer; empty if unknown, which counts all layers as in flight [bytes].
        others_bytes: Size of the shards held by other devices [bytes].
        sent_share: Size of a layer as sent, of that of its variables [-].

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


def choose_least_sharding(tried: Sequence[DeviceEstimate]) -> DeviceEstimate:
    """Return the first estimate that fits, with a margin if one does; without any, the one of least memory.

    If all that fit need XLA's recomputation, the one of least memory. Predicted times do not decide, since they
    differ by less than their errors.

    Args:
        tried: Estimates of one offer, in order of increasing sharding.
    """

    def rank(one: DeviceEstimate) -> tuple[bool, int]:
        memory = one.memory
        return memory.verdict == "tight", memory.needed_bytes if memory.recomputed_bytes else 0

    fitting = [one for one in tried if one.memory.fits is not False]
    return min(fitting, key=rank) if fitting else min(tried, key=lambda one: one.memory.needed_bytes)


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
    workload: Workload, each: Workload, sharding: Sharding, devices: int, *, recomputed_bytes: int = 0
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
