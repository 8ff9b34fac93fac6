"""Recurrent layers as libraries run them: cuDNN's LSTM and GRU in place of the loop that was traced, or its parts.

What the library does is described by the people who wrote it: Appleyard, Kocisky, Blunsom, "Optimizing
Performance of Recurrent Neural Networks on GPUs" (2016, arXiv:1604.01946), sections 3.1 and 3.2. The products of
the gates are one; those that wait for no earlier step are done for all steps at once, the gradient of the weights
is one product over all steps; and what is left of a step is one product and one kernel of pointwise work, in each
direction.

Not modelled: steps of different layers that run side by side (section 3.3), the two directions of a bidirectional
layer that do, and kernels that keep the recurrent weights on the chip for all steps ("persistent"), which cuDNN
has for half precision and some sizes. Dropout on the input, one pass over the batch, is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from ...workload.ops import Op, OpKind


@dataclass(frozen=True, slots=True)
class _Cell:
    """Pointwise work of a cell, in arrays of batch x units, counted from the cell's equations.

    Args:
        gates: Products with the recurrent weights, side by side in one [-].
        forward, backward: Arrays read and written in a step [-].
        kept: Arrays written forward only because the backward pass wants them [-].
        flops: Operations on each element of the state, forward or backward [FLOP].
    """

    gates: int
    forward: int
    kept: int
    backward: int
    flops: float


# LSTM forward: reads both halves of four gates and the cell, writes cell and output, keeps the gates.
# Backward: reads four gates, two cells, the gradients of output (twice) and cell; writes four and the cell's.
# GRU (reset after the product) forward: reads both halves of three gates and the state, writes the state, keeps
# the gates and the product of the third. Backward: reads those, the state, two gradients of the output; writes
# the gradients of three gates, of the third's product, and of the state.
_CELLS = {
    "lstm": _Cell(gates=4, forward=11, kept=4, backward=14, flops=20.0),
    "gru": _Cell(gates=3, forward=8, kept=4, backward=12, flops=16.0),
}


def split_loops(ops: Sequence[Op]) -> tuple[list[Op], list[Op]]:
    """Return the operations outside and inside loops over time: layers that repeat a product more than twice."""
    repeats: Counter[tuple[str, str, int, int, int]] = Counter()
    for op in ops:
        if op.kind is OpKind.DOT:
            repeats[op.layer, op.phase, op.m, op.n, op.k] += int(op.count)
    looped = {layer for (layer, *_), count in repeats.items() if layer and count > 2}
    return [op for op in ops if op.layer not in looped], [op for op in ops if op.layer in looped]


def use_cudnn_rnn(ops: Sequence[Op], *, layers: Collection[str]) -> tuple[list[Op], list[Op]]:
    """Return the operations dispatched by the host, and those launched by cuDNN.

    Args:
        ops: Of a traced workload.
        layers: Recurrent layers executed by cuDNN; the others keep the traced loop.
    """
    if not layers:
        return list(ops), []
    trains = any(op.phase == "backward" for op in ops)
    groups = count(1 + max((max(op.layer_group, op.fused_group) for op in ops), default=0))
    dispatched: list[Op] = []
    streamed: list[Op] = []
    for op in ops:
        if op.loop is None or op.loop.layer not in layers:
            dispatched.append(op)
        elif op.kind is OpKind.DOT and op.loop.part == "chain":
            streamed += _step(op, _CELLS[op.loop.layer], groups, trains=trains)
        elif op.kind is OpKind.DOT:
            dispatched.append(_all_steps(op, op.loop.length))
    return dispatched, streamed


def _step(product: Op, cell: _Cell, groups: Iterator[int], *, trains: bool) -> Iterator[Op]:
    """Yield the product and the pointwise kernel of each step, and the bias gradient of all steps."""
    backward = product.phase == "backward"
    state_bytes = product.bytes_written if backward else product.bytes_written / cell.gates
    arrays = cell.backward if backward else cell.forward + cell.kept * trains
    elements = product.m * product.n / (1 if backward else cell.gates)
    yield product
    yield _pointwise(product, next(groups), flops=cell.flops * elements, moved_bytes=arrays * state_bytes)
    if backward and product.loop is not None:
        steps = product.loop.length
        gradients = steps * cell.gates
        yield replace(
            _pointwise(
                product, next(groups), flops=gradients * elements, moved_bytes=gradients * state_bytes
            ),
            kind=OpKind.REDUCE,
            name="reduce_sum",
            count=product.count / steps,
        )


def _pointwise(product: Op, group: int, *, flops: float, moved_bytes: float) -> Op:
    return Op(
        kind=OpKind.ELEMENTWISE,
        name="cell",
        phase=product.phase,
        layer=product.layer,
        dtype=product.dtype,
        count=product.count,
        flops=flops,
        layer_group=group,
        fused_group=group,
        layer_bytes_read=moved_bytes,
        fused_bytes_read=moved_bytes,
        loop=product.loop,
    )


def _all_steps(product: Op, steps: int) -> Op:
    """Return the product over all steps that replaces one product per step.

    Keras puts the steps' own operand first, so that it is ``m`` that grows; where the results are summed it
    is ``k``, and they are written once.
    """
    whole = replace(product, count=product.count / steps, flops=product.flops * steps, loop=None)
    if product.loop is not None and product.loop.part == "sum":
        return replace(whole, k=product.k * steps, bytes_read=product.bytes_read * steps)
    weights_bytes = product.bytes_read * product.n / (product.m + product.n)
    return replace(
        whole,
        m=product.m * steps,
        bytes_written=product.bytes_written * steps,
        bytes_read=(product.bytes_read - weights_bytes) * steps + weights_bytes,
    )
