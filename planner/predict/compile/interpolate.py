"""Interpolation of a step between two compiled batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from ...units import Interval
from ..step_time import Limiter, NoPrediction, StatedMemory, StepTime, join_notes


def interpolate_linearly(low: float, high: float, *, share: float) -> float:
    """Interpolate linearly: low + (high - low) × share.

    A step's computation and traffic consist of a fixed part and a part per sample; tiling and waves turn the
    line into steps.

    Example:
        >>> interpolate_linearly(10.0, 30.0, share=0.25)
        15.0
    """
    return low + (high - low) * share


def interpolate_step(
    plain: StepTime | NoPrediction,
    ends: Sequence[StepTime | NoPrediction],
    sizes: Sequence[int],
    batch_size: int,
) -> StepTime | NoPrediction:
    """Interpolate a step between two compiled batch sizes.

    Args:
        plain: Prediction without a compiler; returned if it is measured, or if there is no compiled time.
        ends: Steps at both batch sizes.
        sizes: The batch sizes, smaller first [-].
        batch_size: Requested batch size [-].
    """
    low, high = ends
    if not isinstance(low, StepTime) or not isinstance(high, StepTime) or isinstance(plain, NoPrediction):
        return plain
    share = (batch_size - sizes[0]) / (sizes[1] - sizes[0])
    memory = _interpolate_memory(low.memory, high.memory, share)
    note = f"interpolated between the compiled batch sizes {sizes[0]} and {sizes[1]}"
    if plain.basis == "measured" or low.basis != "compiled" or high.basis != "compiled":
        return replace(plain, memory=memory, note=join_notes(plain.note, f"memory {note}"))
    names = dict.fromkeys([*low.parts_s, *high.parts_s])
    parts_s = {
        name: interpolate_linearly(low.parts_s.get(name, 0.0), high.parts_s.get(name, 0.0), share=share)
        for name in names
    }
    return StepTime(
        time_s=_build_interval(sum(parts_s.values()), low),
        basis="compiled",
        parts_s=parts_s,
        memory=memory,
        limiter=cast("Limiter", max(parts_s, key=lambda name: parts_s[name])),
        note=join_notes(low.note, note),
    )


def _build_interval(mid: float, end: StepTime) -> Interval:
    """Return an interval with the relative width of a compiled end's [s]."""
    known = end.time_s
    return Interval(low=mid * known.low / known.mid, mid=mid, high=mid * known.high / known.mid)


def _interpolate_memory(
    low: StatedMemory | None, high: StatedMemory | None, share: float
) -> StatedMemory | None:
    """Interpolate the memory; a step that fits at the larger batch size fits."""
    if low is None or high is None or low.needed_bytes is None or high.needed_bytes is None:
        return None
    needed = interpolate_linearly(low.needed_bytes, high.needed_bytes, share=share)
    return StatedMemory(needed_bytes=round(needed), fits=high.fits)
