"""Changes that would make a training faster on the machine that is taken, each predicted again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ..records import Frozen
from ..units import format_device, format_duration
from ..workload.ops import change_op
from ..workload.resize import scale_workload

if TYPE_CHECKING:
    from ..offers.rows import Accelerator
    from ..workload.model import Workload
    from ..workload.ops import Op
    from .device_estimate import DeviceEstimate
    from .input_pipeline import InputPipeline
    from .offer_estimate import OfferEstimate

LEAST_SPEEDUP = 1.15
MOST_SHOWN = 3
LARGER = 4  # times the batch [-]
_BYTES = (
    "bytes_read", "bytes_written", "layer_bytes_read", "layer_bytes_written", "layer_bytes_reread",
    "layer_bytes_max", "fused_bytes_read", "fused_bytes_written", "fused_bytes_reread",
)  # fmt: skip


class Improvement(Frozen):
    """A change of the training."""

    change: str  # what to change, in the words of Keras
    speedup: float  # samples per second relative to the training as it is [-]
    another_training: bool = False  # whether it may converge otherwise

    def describe(self) -> str:
        """Return the change with its gain: `mixed_bfloat16: 1.9x`."""
        return f"{self.change}: {self.speedup:.1f}x{', another training' if self.another_training else ''}"


def find_improvements(
    workload: Workload,
    taken: OfferEstimate,
    estimate: Callable[..., DeviceEstimate],
    *,
    distributed: OfferEstimate | None = None,
    feed: InputPipeline | None = None,
) -> tuple[Improvement, ...]:
    """Return at most three changes of a training that are worth at least 15 %, the largest first.

    Args:
        estimate: Function that estimates another workload on its devices, with another input pipeline if given.
        distributed: What would be taken of its provider and accelerator if the script used all devices.
        feed: Input pipeline as it is; None for no limit.
    """
    own = taken.samples_per_s
    if own is None or workload.mode != "train" or workload.further:
        return ()
    found = [] if distributed is None else _compare_distributed(taken, distributed)
    variants = [
        (change, estimate(other), is_another)
        for change, other, is_another in _list_variants(workload, taken.selected.accelerator)
    ]
    if feed is not None and taken.device_estimate.able_per_s is not None:
        faster = feed.list_faster(taken.offer.vcpus or 1.0)
        variants += [(change, estimate(workload, pipeline), False) for change, pipeline in faster]
    for change, device, is_another in variants:
        if device.samples_per_s is not None and not device.is_ruled_out:
            speedup = device.samples_per_s.mid / own.mid
            found.append(Improvement(change=change, speedup=speedup, another_training=is_another))
    worth = sorted((one for one in found if one.speedup >= LEAST_SPEEDUP), key=lambda one: -one.speedup)
    return tuple(worth[:MOST_SHOWN])


def _compare_distributed(taken: OfferEstimate, other: OfferEstimate) -> list[Improvement]:
    """Return what distributing a script gives, if its total is less."""
    own_s, other_s = taken.run_time_s, other.run_time_s
    if own_s is None or other_s is None or (other.total_usd or 0.0) >= (taken.total_usd or 0.0):
        return []
    device = format_device(other.offer.accelerator, other.offer.devices)
    change = f"keras.distribution.DataParallel() on {device} ({format_duration(other_s.mid)})"
    return [Improvement(change=change, speedup=own_s.mid / other_s.mid)]


def _list_variants(workload: Workload, accelerator: Accelerator | None) -> Iterator[tuple[str, Workload, bool]]:
    """Yield changes with the workload that each leads to, and whether that is another training."""
    if accelerator is not None and accelerator.kind != "cpu" and workload.precision in ("float32", "tf32"):
        dtype = "bfloat16" if accelerator.bf16_tensor_tflop_per_s else "float16"
        yield f"mixed_{dtype}", convert_to_mixed_precision(workload, dtype), False
    if accelerator is not None and accelerator.kind != "cpu" and not workload.compiled:
        yield "jit_compile=True", replace(workload, compiled=True), False
    size = LARGER * workload.batch_size
    yield f"batch {size:,}", scale_workload(workload, size), True


def convert_to_mixed_precision(workload: Workload, dtype: str) -> Workload:
    """Return a float32 training in mixed precision, `bfloat16` or `float16`, without a new trace.

    All but the update of the variables computes in 16 bits and moves half the bytes. Against traces in mixed
    precision of four CNNs (ResNet50, MobileNetV2, EfficientNetB0, VGG16) on six accelerators, predicted steps are
    up to 17 % longer and at most 1 % shorter: the gain is understated.
    """

    def convert(op: Op) -> Op:
        if op.phase == "update" or op.dtype != "float32":
            return op
        return change_op(op, {"dtype": dtype, **{name: getattr(op, name) / 2 for name in _BYTES}})

    return replace(workload, ops=tuple(map(convert, workload.ops)), precision=f"mixed_{dtype}")
