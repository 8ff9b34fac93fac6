"""Table of operations: computation and memory traffic of one step of a workload.

One row is one primitive of the traced step. Rows describe the work; ``predict`` computes its time on a
device. There are three byte counts, for three execution modes of the same step:

* ``bytes_*``: every primitive is a kernel that reads its operands from memory and writes its result;
* ``layer_bytes_*``: the primitives of one layer call and phase are one hand-written kernel, as in
  TensorFlow's or cuDNN's batch normalization: only values that cross the layer's border are moved;
* ``fused_bytes_*``: chains of elementwise work and the reductions that follow them are fused across layers,
  as XLA does: only values that cross the fusion's border are moved.

Contractions (convolutions, dots) always read and write memory in all three.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any, Literal

from ..records import Frozen

Mode = Literal["train", "infer"]
Phase = Literal["forward", "backward", "update"]
LoopPart = Literal["chain", "apart", "sum"]


class OpKind(StrEnum):
    """Kind of work of a row; efficiencies are fitted by kind."""

    CONV = "conv"  # implicit GEMM, groups == 1 or more than one channel per group
    DEPTHWISE = "depthwise"  # one input channel per group
    DOT = "dot"  # matrix product, batched or not
    ATTENTION = "attention"  # one pass of fused attention
    ELEMENTWISE = "elementwise"
    REDUCE = "reduce"
    POOL = "pool"  # window reductions and their gradients
    GATHER = "gather"  # embedding look-ups, dynamic slices
    SCATTER = "scatter"
    RANDOM = "random"
    MOVE = "move"  # transpose, concatenate, pad, copy, reverse, materialized broadcasts
    SORT = "sort"
    LINALG = "linalg"  # fft, cholesky, triangular solve, ...
    COLLECTIVE = "collective"  # between the devices of a mesh; not part of a table of operations
    OTHER = "other"  # unmodelled: bytes follow from shapes, FLOPs are unknown (0)


PRODUCTS = (OpKind.CONV, OpKind.DEPTHWISE, OpKind.DOT, OpKind.ATTENTION)
# The backward pass of fused attention multiplies five times: scores again, and the gradients of values,
# probabilities, queries and keys; the forward pass twice (Dao, 2023, "FlashAttention-2", arXiv:2307.08691, section
# 3.1 and algorithm 2).
FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5


class Loop(Frozen):
    """Position of a row in its innermost loop over time steps (`scan`)."""

    # `chain` if each iteration depends on the previous one; `apart` if iterations are independent; `sum` if they
    # are independent and their results are only added (the gradient of weights)
    part: LoopPart
    length: int  # iterations [-]
    # `lstm` or `gru` for such a Keras layer with settings supported by cuDNN; empty for other loops
    layer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One primitive of the step."""

    kind: OpKind  # kind of work
    name: str  # name of the primitive (`conv_general_dilated`)
    phase: Phase  # forward pass, backward pass, or optimizer and metric update
    layer: str  # path of its Keras layer; empty if there is none
    dtype: str  # type of the operands of the arithmetic (`float32`, `bfloat16`)
    count: float = 1.0  # executions per step, including loop iterations [-]
    # floating-point operations of one execution; a multiply-add is 2 [FLOP]. Only real work counts: no zeros of a
    # dilated gradient, no products between groups
    flops: float = 0.0
    # bytes_read, bytes_written: operands and results, each once, of one execution [bytes]
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    # layer_bytes_read, layer_bytes_written: the same if a layer call is one kernel [bytes]
    layer_bytes_read: float = 0.0
    layer_bytes_written: float = 0.0
    # the part of `layer_bytes_read` that is read a second time, once reductions are done; a kernel that keeps its
    # operands on the chip reads it once [bytes]
    layer_bytes_reread: float = 0.0
    # the part of `layer_bytes_read` whose largest value in each row is found before a sum over the row (softmax);
    # read once more where that is a kernel of its own [bytes]
    layer_bytes_max: float = 0.0
    # fused_bytes_read, fused_bytes_written: the same if chains are fused across layers [bytes]
    fused_bytes_read: float = 0.0
    fused_bytes_written: float = 0.0
    # the part of `fused_bytes_read` that is read again after a reduction of its rows; one kernel that keeps rows
    # on the chip reads it once [bytes]
    fused_bytes_reread: float = 0.0
    # layer_group, fused_group: kernel number in that execution mode, shared by the rows of a kernel; -1 if the row
    # needs no kernel (a reshape, or absorbed)
    layer_group: int = -1
    fused_group: int = -1
    row_group: int = -1  # the `fused_group` that it joins where rows stay on the chip; -1 if it joins none
    # whether it joins as part of a layer normalization, which TorchInductor keeps on the chip and XLA reads twice
    row_norm: bool = False
    column_sums: int = 0  # reductions over other axes than the last [-]
    column_rows: float = 0.0  # rows that the longest of them sums [-]
    variant: str = ""  # variant of a contraction: `fprop`, `dgrad` (input gradient), `wgrad` (weight gradient)
    # m, n, k: the contraction as a matrix product, per group or batch element: for a convolution's fprop m = batch
    # x output pixels, n = output channels, k = kernel size x input channels [-]
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 1  # number of independent products (batched dots, groups of a convolution) [-]
    # kernel, stride, dilation: spatial window of a convolution or pooling [-]
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    # channels_in, channels_out: channels of the layer's forward convolution, over all groups [-]
    channels_in: int = 0
    channels_out: int = 0
    channels_last: bool = True  # memory layout of a convolution's image operand
    # launches per execution if every primitive is a kernel, without broadcasts and scalar work [-]
    primitives: int = 1
    # framework that launches its primitives, if nothing is compiled: `tensorflow` (GELU, layer normalization),
    # `torch` (Keras's batch normalization on PyTorch); empty if each has a kernel for it
    composed: str = ""
    loop: Loop | None = None  # its position in a loop over time; None outside loops


PLACES = {one.name: place for place, one in enumerate(fields(Op))}  # of the fields in the values of an operation
_SETTERS = [getattr(Op, name).__set__ for name in PLACES]  # of its slots
get_values = attrgetter(*PLACES)


def build_op(values: Iterable[Any]) -> Op:
    """Return an operation of all its values: `Op`, in a third of the time."""
    built = Op.__new__(Op)
    for put, value in zip(_SETTERS, values, strict=True):
        put(built, value)
    return built


def change_op(op: Op, changes: Mapping[str, Any]) -> Op:
    """Return an operation with other values: `replace`, in a third of the time."""
    values = list(get_values(op))
    for name, value in changes.items():
        values[PLACES[name]] = value
    return build_op(values)


def build_unfused_op(*, bytes_read: float, bytes_written: float, number: int, **facts: Any) -> Op:
    """Build a row that is a kernel of its own in every execution mode; `facts` are other fields of `Op`."""
    return Op(
        layer="",
        bytes_read=bytes_read,
        bytes_written=bytes_written,
        layer_bytes_read=bytes_read,
        layer_bytes_written=bytes_written,
        fused_bytes_read=bytes_read,
        fused_bytes_written=bytes_written,
        layer_group=number,
        fused_group=number,
        **facts,
    )
