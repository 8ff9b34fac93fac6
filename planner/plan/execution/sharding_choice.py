"""Choice of a sharding for the devices of an offer, and the work of one device under each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...predict.multi_device.sharding import EVERY_SHARDING, Sharding
from .identity_cache import IdentityCache
from .memory import FRAMEWORK_RESERVE_BYTES, TIGHT_FROM, MemoryVerdict
from .memory_parts import Remedy, compute_batch_bytes
from .sharded_memory import build_device_workload, compute_device_memory, divide_update

if TYPE_CHECKING:
    from ...workload.model import Workload
    from ...workload.ops import Op
    from ..result.device_estimate import DeviceEstimate

UNSHARDED = (Sharding.NONE,)
MOST_DEVICES_TRIED = 4096  # beyond the largest cluster that can be rented [-]


class ShardingChoice:
    """Shardings to try on each offer, with a cache of device workloads shared by all accelerators."""

    def __init__(self, shardings: Sequence[Sharding] = UNSHARDED) -> None:
        """Create the choice among some shardings."""
        self.shardings = tuple(shardings)
        self._workloads: IdentityCache[Workload] = IdentityCache()
        self._divided: IdentityCache[tuple[Op, ...]] = IdentityCache()

    def list_applicable(self, *, devices: int) -> tuple[Sharding, ...]:
        """Return the shardings to try on a number of devices; one device has nothing to share."""
        return self.shardings if devices > 1 else UNSHARDED

    def count_replicas(self, workload: Workload, sharding: Sharding, *, devices: float) -> float:
        """Return the parts into which a batch is divided on the devices of an offer [-]."""
        divided = workload.divided
        if divided is None or not sharding.divides_products:
            return devices
        return divided.layout.replicas * count_groups(sharding, devices)

    def get_device_workload(self, workload: Workload, sharding: Sharding, *, devices: int) -> Workload:
        """Return the work of one device, cached per workload."""
        build = partial(build_device_workload, workload, sharding, devices, divide=self._divide_update)
        return self._workloads.get(workload, (sharding, devices), build)

    def _divide_update(self, ops: tuple[Op, ...], share: float) -> tuple[Op, ...]:
        """Return the result of `divide_update`, cached and shared by all shardings that divide the update."""
        return self._divided.get(ops, share, partial(divide_update, ops, share))


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
    fitting = [one for one in tried if one.memory.fits is not False]
    if not fitting:
        return min(tried, key=lambda one: one.memory.needed_bytes)
    return min(fitting, key=_rank_fit)


def _rank_fit(one: DeviceEstimate) -> tuple[bool, int]:
    memory = one.memory
    return memory.verdict == "tight", memory.needed_bytes if memory.recomputed_bytes else 0


def compute_needed_bytes(workload: Workload, sharding: Sharding, devices: int) -> int:
    """Return the memory of one device, the framework's included [bytes]."""
    fixed = compute_device_memory(workload, sharding, devices).total_bytes
    return fixed + compute_batch_bytes(workload) + FRAMEWORK_RESERVE_BYTES


def find_least_sharding(workload: Workload, *, devices: int, limit_bytes: float) -> Sharding | None:
    """Return the mildest sharding with which the step fits on each of some devices; None if none does.

    Args:
        workload: The whole model, at the batch size of one device.
        devices: Devices of the offer [-].
        limit_bytes: Memory that may be used on each [bytes].
    """
    if devices <= 1 or workload.mode != "train":
        return None
    fits = (one for one in EVERY_SHARDING if compute_needed_bytes(workload, one, devices) <= limit_bytes)
    return next(fits, None)


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
    """Return the sharding that makes a step fit, on the devices of an offer or else on more; None if none does.

    Args:
        workload: The whole model as executed, at the batch size of one device.
        verdict: Memory check of the step under the present sharding.
        sharding: The present sharding.
        devices: Devices of the offer [-].
    """
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
    found = find_least_sharding(workload, devices=devices, limit_bytes=limit)
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
    """Return the memory of one device by part; the parts add up to `memory_bytes` of an offer [bytes].

    Args:
        workload: The whole model as executed, at the batch size of one device or replica.
        each: Workload of the device as executed.
        sharding: What is sharded.
        devices: Devices of the offer [-].
        recomputed_bytes: Size of the activations that XLA recomputes to stay below its limit [bytes].
    """
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
