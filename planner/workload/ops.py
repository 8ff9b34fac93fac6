"""The table of ops: what one step of a workload computes and moves.

One row is one primitive of the traced step. Rows say what the work *is*; how long it takes on which chip is
``predict``'s business. Three byte counts are kept, since the same step runs in three ways:

* ``bytes_*``: every primitive reads its operands from memory and writes its result (kernel by kernel,
  primitive by primitive);
* ``layer_bytes_*``: the primitives of one layer call and phase are one hand-written kernel, as in
  TensorFlow's or cuDNN's batch normalization: only what crosses the border of the layer is moved;
* ``fused_bytes_*``: chains of elementwise work and the reductions that follow them are fused across layers,
  as XLA does: only what crosses the border of the fusion is moved.

Contractions (convolutions, dots) always read and write memory in all three.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal

from ..frozen import Frozen

__all__ = ["Loop", "LoopPart", "Op", "OpKind", "Phase"]

Phase = Literal["forward", "backward", "update"]
LoopPart = Literal["chain", "apart", "sum"]


class OpKind(StrEnum):
    """What sort of work a row is; efficiencies are fitted by kind."""

    CONV = "conv"  # implicit GEMM, groups == 1 or more than one channel per group
    DEPTHWISE = "depthwise"  # one input channel per group
    DOT = "dot"  # matrix product, batched or not
    ELEMENTWISE = "elementwise"
    REDUCE = "reduce"
    POOL = "pool"  # window reductions and their gradients
    GATHER = "gather"  # embedding look-ups, dynamic slices
    SCATTER = "scatter"
    RANDOM = "random"
    MOVE = "move"  # transpose, concatenate, pad, copy, reverse, materialized broadcasts
    SORT = "sort"
    LINALG = "linalg"  # fft, cholesky, triangular solve, ...
    OTHER = "other"  # not understood: bytes are known from the shapes, FLOPs are not (0)


class Loop(Frozen):
    """Where a row stands in the loop over time steps (`scan`) that runs it, the innermost one.

    Args:
        part: `chain`: each iteration waits for the one before. `apart`: it waits for none, so that all could be
            done at once. `sum`: like `apart`, and its results are only added up (the gradient of weights).
        length: Iterations [-].
        layer: `lstm` or `gru` where the loop is such a Keras layer, with the settings that cuDNN supports;
            empty for every other loop.
    """

    part: LoopPart
    length: int
    layer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One primitive of the step.

    Args:
        kind: What sort of work it is.
        name: The primitive's own name (`conv_general_dilated`).
        phase: Forward pass, backward pass, or optimizer and metric update.
        layer: Path of the Keras layer that it came from; empty when there is none.
        dtype: Type of the operands of the arithmetic (`float32`, `bfloat16`).
        count: How often it runs in a step (loop trip counts multiplied in) [-].
        flops: Floating-point operations of one execution; a multiply-add is 2 [FLOP].
            Only real work counts: no zeros of a dilated gradient, no products between groups.
        bytes_read, bytes_written: Operands and results, each once, of one execution [bytes].
        layer_bytes_read, layer_bytes_written: What is left of these when a layer call is one kernel [bytes].
        fused_bytes_read, fused_bytes_written: What is left when chains are fused across layers [bytes].
        layer_group, fused_group: Rows with the same number run as one kernel in that way of running;
            -1: the row costs no kernel there (a reshape, or absorbed).
        variant: Of a contraction: `fprop`, `dgrad` (with respect to the input), `wgrad` (to the weights).
        m, n, k: The contraction as a matrix product, per group or batch element: for a convolution's fprop
            m = batch x output pixels, n = output channels, k = kernel size x input channels [-].
        batch: How many independent products (batched dots, groups of a convolution) [-].
        kernel, stride, dilation: Spatial window of a convolution or pooling [-].
        channels_in, channels_out: Of the *layer* (forward) convolution, per group times groups [-].
        channels_last: Memory layout of a convolution's image operand.
        primitives: How many primitives of the traced step the row stands for: what is launched in one
            execution when every primitive is a kernel; broadcasts and work on single numbers are none [-].
        composed: Whether a framework may have no kernel for it and launch its primitives, as TensorFlow does for
            GELU and layer normalization where nothing is compiled.
        loop: Its place in a loop over time; None outside of one.
    """

    kind: OpKind
    name: str
    phase: Phase
    layer: str
    dtype: str
    count: float = 1.0
    flops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    layer_bytes_read: float = 0.0
    layer_bytes_written: float = 0.0
    fused_bytes_read: float = 0.0
    fused_bytes_written: float = 0.0
    layer_group: int = -1
    fused_group: int = -1
    variant: str = ""
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 1
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    channels_in: int = 0
    channels_out: int = 0
    channels_last: bool = True
    primitives: int = 1
    composed: bool = False
    loop: Loop | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain JSON types."""
        return asdict(self)

    @staticmethod
    def from_json(row: dict[str, Any]) -> Op:
        """Read a row that `to_json` wrote."""
        windows = {name: tuple(row[name]) for name in ("kernel", "stride", "dilation")}
        loop = None if row["loop"] is None else Loop(**row["loop"])
        return Op(**{**row, **windows, "kind": OpKind(row["kind"]), "loop": loop})
