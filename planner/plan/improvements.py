"""Changes that would make a training faster on the machine that is taken, each predicted again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..predict.resize import scale_workload
from ..records import Frozen
from ..units import format_device, format_duration
from ..workload.ops import change_op
from .input_pipeline import Feeds, with_input_bottleneck

if TYPE_CHECKING:
    from ..workload.model import Workload
    from ..workload.ops import Op
    from .device_estimate import DeviceEstimate
    from .offer_estimate import OfferEstimate
    from .question import OfferContext

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
    estimate: Callable[[Workload, OfferContext], DeviceEstimate],
    *,
    distributed: OfferEstimate | None = None,
    feeds: Feeds = (),
) -> tuple[Improvement, ...]:
    """Return at most three changes of a training that are worth at least 15 %, the largest first.

    `estimate` estimates another workload on devices; `distributed` is what would be taken of its provider and
    accelerator if the script used all devices.
    """
    own, own_s, accelerator = taken.samples_per_s, taken.run_time_s, taken.selected.accelerator
    if own is None or workload.mode != "train" or workload.further:
        return ()
    found = []
    other_s = None if distributed is None else distributed.run_time_s
    if distributed is not None and own_s is not None and other_s is not None:
        device = format_device(distributed.offer.accelerator, distributed.offer.devices)
        change = f"keras.distribution.DataParallel() on {device} ({format_duration(other_s.mid)})"
        if (distributed.total_usd or 0.0) < (taken.total_usd or 0.0):
            found.append(Improvement(change=change, speedup=own_s.mid / other_s.mid))
    size, variants = LARGER * workload.batch_size, []
    if accelerator is not None and accelerator.kind != "cpu" and workload.precision in ("float32", "tf32"):
        dtype = "bfloat16" if accelerator.bf16_tensor_tflop_per_s else "float16"
        variants.append((f"mixed_{dtype}", convert_to_mixed_precision(workload, dtype), feeds, False))
    if accelerator is not None and accelerator.kind != "cpu" and not workload.compiled:
        variants.append(("jit_compile=True", replace(workload, compiled=True), feeds, False))
    variants.append((f"batch {size:,}", scale_workload(workload, size), feeds, True))
    if feeds and feeds[0] is not None and taken.device_estimate.able_per_s is not None:
        faster = feeds[0].list_faster(taken.offer.vcpus or 1.0)
        variants += [(change, workload, (pipeline,), False) for change, pipeline in faster]
    for change, other, used, is_another in variants:
        limited = with_input_bottleneck(estimate(other, taken.selected), taken.offer, used, accelerator)
        if limited.samples_per_s is not None and not limited.is_ruled_out:
            speedup = limited.samples_per_s.mid / own.mid
            found.append(Improvement(change=change, speedup=speedup, another_training=is_another))
    worth = sorted((one for one in found if one.speedup >= LEAST_SPEEDUP), key=lambda one: -one.speedup)
    return tuple(worth[:MOST_SHOWN])


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
