"""Workload at another batch size, interpolated from two traces.

Computation and traffic of a step are linear in the batch size: a part for the weights plus a part per sample.
Two traces of the same model determine both for every row of the table of operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from ..workload.model import DividedStep, Step, Workload
from ..workload.ops import PLACES, Op, build_op, get_values
from ..workload.options import compute_run_steps

Line = Callable[[float, float], float]
REAL = (
    "count", "flops", "bytes_read", "bytes_written", "layer_bytes_read", "layer_bytes_written",
    "layer_bytes_reread", "layer_bytes_max", "fused_bytes_read", "fused_bytes_written", "fused_bytes_reread",
    "column_rows",
)  # fmt: skip
WHOLE = ("m", "n", "k", "batch")
LINEAR = [(PLACES[name], name in WHOLE) for name in (*REAL, *WHOLE)]
GROWING = [PLACES[name] for name in REAL if name != "count"]
DIMENSIONS = [PLACES[name] for name in ("batch", "m", "k", "n")]
_get_same = attrgetter(
    "kind", "name", "phase", "layer", "dtype", "variant", "layer_group", "fused_group", "row_group"
)
_get_alike = attrgetter("mode", "precision", "compiled", "parameters", "trainable_parameters")
PARTS = ("ops", "memory", "fused_attention", "divided", "collectives")  # depend on the batch size, as bytes do
PER_BATCH = (
    "input_bytes", "activation_bytes", "compiled_activation_bytes", "eager_activation_bytes",
    "recomputed_activation_bytes", "tpu_activation_bytes",
)  # fmt: skip
SMALLER_BY = 8  # factor to the second trace's batch size, so that most shares of a batch lie between the two


def can_resize(one: Workload, other: Workload) -> bool:
    """Return whether two traces have the same rows at different batch sizes."""
    differ = all(a.batch_size != b.batch_size for a, b in zip(one.phases, other.phases, strict=False))
    return differ and _describe(one) == _describe(other)


def _describe(step: Workload | DividedStep) -> list[object]:
    """Return what traces of a step at all batch sizes share: its rows, the same with fused attention, and more."""
    rows = [list(map(_get_same, ops)) for ops in (step.ops, (step.fused_attention or step).ops)]
    if isinstance(step, DividedStep):
        return [rows, step.layout, len(step.collectives)]
    divided = None if step.divided is None else _describe(step.divided)
    return [rows, _get_alike(step), divided, *map(_describe, step.further)]


def interpolate_workload(one: Workload, other: Workload, *, batch_size: int) -> Workload:
    """Return the workload at a batch size [-] by linear interpolation between two traces (see `can_resize`).

    Exact for computation and traffic. Peak memory is a maximum of lines, so it is exact if the peak occurs at
    the same point of the step for all three batch sizes. Samples and epochs stay; steps are recomputed.
    """
    share = (batch_size - one.batch_size) / (other.batch_size - one.batch_size)

    def line(a: float, b: float) -> float:
        return max(0.0, a + (b - a) * share)

    return replace(
        one,
        batch_size=batch_size,
        **_interpolate_parts(one, other, line),
        steps=compute_run_steps(samples=one.samples, batch_size=batch_size, epochs=one.epochs),
        further=tuple(
            interpolate_workload(a, b, batch_size=batch_size)
            for a, b in zip(one.further, other.further, strict=True)
        ),
    )


def _interpolate_parts(one: Any, other: Any, line: Line) -> dict[str, Any]:
    """Return the parts of a step that depend on the batch size, between those of two steps."""
    parts = [part.name for part in fields(one) if part.name in PARTS or part.name.endswith("_bytes")]
    return {name: _interpolate(getattr(one, name), getattr(other, name), line) for name in parts}


def _interpolate(one: Any, other: Any, line: Line) -> Any:
    """Return a part of a step between those of two; the first where one of them has no such part."""
    if one is None or other is None:
        return None if isinstance(one, int) else one
    if isinstance(one, int | float):
        return round(line(one, other))
    if isinstance(one, tuple):
        return tuple(_interpolate(a, b, line) for a, b in zip(one, other, strict=True))
    if isinstance(one, Op):
        before, after = get_values(one), get_values(other)
        if before == after:
            return one
        values = list(before)
        for place, is_whole in LINEAR:
            if (x := before[place]) != (y := after[place]):
                values[place] = max(1, round(line(x, y))) if is_whole else line(x, y)
        return build_op(values)
    return replace(one, **_interpolate_parts(one, other, line))


SCALED = "a step at other batch sizes is scaled from one trace, as if all its traffic grew with the batch"


def scale_workload(workload: Workload, batch_size: int) -> Workload:
    """Return what was traced at one batch size at another, roughly: everything but the update in proportion.

    Weights that a step reads are counted in proportion too, so that a small batch comes out too fast where they
    are most of the traffic. Of a product, the dimension that is a multiple of the batch is scaled.
    """
    share = batch_size / workload.batch_size

    def scale(op: Op) -> Op:
        if op.phase == "update":
            return op
        values = list(get_values(op))
        for place in GROWING:
            values[place] *= share
        for place in DIMENSIONS:
            size = values[place]
            if size >= workload.batch_size and size % workload.batch_size == 0:
                values[place] = max(1, round(share * size))
                break
        return build_op(values)

    def scale_parts(part: Step) -> Step:
        sizes = {name: getattr(part.memory, name) for name in PER_BATCH}
        memory: dict[str, Any] = {name: size and round(share * size) for name, size in sizes.items()}
        return replace(part, ops=tuple(map(scale, part.ops)), memory=replace(part.memory, **memory))

    fused = workload.fused_attention
    return replace(
        scale_parts(workload),
        batch_size=batch_size,
        fused_attention=fused and scale_parts(fused),
        further=tuple(scale_workload(one, batch_size) for one in workload.further),
        notes=(*workload.notes, SCALED),
    )


class Resizer:
    """Workload at smaller batch sizes, with a second trace on first use."""

    def __init__(self, workload: Workload, trace: Callable[[int], Workload] | None = None) -> None:
        """Take a workload, and a function that traces it at another batch size; None scales the one trace."""
        self.workload, self._tracer = workload, trace
        self._other: Workload | None = None
        self._known: dict[int, Workload] = {}
        if all(one.batch_size == workload.batch_size for one in workload.further):
            self._known[workload.batch_size] = workload

    def __call__(self, batch_size: int) -> Workload:
        """Return the workload at a batch size of at least 1."""
        if batch_size not in self._known:
            self._known[batch_size] = self._resize(batch_size)
        return self._known[batch_size]

    def _resize(self, batch_size: int) -> Workload:
        if self._tracer is None:
            return scale_workload(self.workload, batch_size)
        if self._other is None:
            smaller = self._tracer(max(1, self.workload.batch_size // SMALLER_BY))
            self._other = _with_length_of(smaller, self.workload)
        if self._other.batch_size == batch_size:
            return self._other
        if can_resize(self.workload, self._other):
            return interpolate_workload(self.workload, self._other, batch_size=batch_size)
        return _with_length_of(self._tracer(batch_size), self.workload)


def _with_length_of(workload: Workload, own: Workload) -> Workload:
    """Return a workload at another batch size with the samples and epochs of its own, phase by phase."""
    further = workload.further
    if len(further) == len(own.further):
        further = tuple(_with_length_of(a, b) for a, b in zip(further, own.further, strict=True))
    return replace(workload, samples=own.samples, epochs=own.epochs, further=further)
