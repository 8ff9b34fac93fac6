"""A step at a batch size between two that were compiled: on the line through both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from ...units import Interval
from ..steptime import Limiter, StatedMemory, StepTime, Unpredicted, notes_text

__all__ = ["between", "on_line"]


def on_line(low: float, high: float, *, share: float) -> float:
    """Return the value at a share of the way from the low end to the high one.

    What a step computes and moves is a fixed part and one for each sample; tiles and waves make stairs of it.

    Example:
        >>> on_line(10.0, 30.0, share=0.25)
        15.0
    """
    return low + (high - low) * share


def between(
    plain: StepTime | Unpredicted,
    ends: Sequence[StepTime | Unpredicted],
    sizes: Sequence[int],
    batch_size: int,
) -> StepTime | Unpredicted:
    """Return a step between two that were compiled.

    Args:
        plain: As it is known without a compiler; kept where it is measured, or times cannot be compiled.
        ends: The steps at both batch sizes.
        sizes: The batch sizes, smaller first [-].
        batch_size: That is wanted [-].
    """
    low, high = ends
    if not isinstance(low, StepTime) or not isinstance(high, StepTime) or isinstance(plain, Unpredicted):
        return plain
    share = (batch_size - sizes[0]) / (sizes[1] - sizes[0])
    memory = _memory(low.memory, high.memory, share)
    note = f"on the line between batches of {sizes[0]} and {sizes[1]}, which were compiled"
    if plain.basis == "measured" or low.basis != "compiled" or high.basis != "compiled":
        return replace(plain, memory=memory, note=notes_text(plain.note, f"memory {note}"))
    names = dict.fromkeys([*low.parts_s, *high.parts_s])
    parts_s = {
        name: on_line(low.parts_s.get(name, 0.0), high.parts_s.get(name, 0.0), share=share) for name in names
    }
    return StepTime(
        time_s=_interval(sum(parts_s.values()), low), basis="compiled", parts_s=parts_s, memory=memory,
        limiter=cast("Limiter", max(parts_s, key=lambda name: parts_s[name])),
        note=notes_text(low.note, note),
    )  # fmt: skip


def _interval(mid: float, end: StepTime) -> Interval:
    """Return an interval as wide, relative to its middle, as that of a compiled end [s]."""
    known = end.time_s
    return Interval(low=mid * known.low / known.mid, mid=mid, high=mid * known.high / known.mid)


def _memory(low: StatedMemory | None, high: StatedMemory | None, share: float) -> StatedMemory | None:
    """Return what the compiler would state; what fits at the larger batch fits here."""
    if low is None or high is None or low.needed_bytes is None or high.needed_bytes is None:
        return None
    needed = on_line(low.needed_bytes, high.needed_bytes, share=share)
    return StatedMemory(needed_bytes=round(needed), fits=high.fits)
