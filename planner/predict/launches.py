"""Kernels of a step from its operations: fused by XLA, one per layer call, or cuDNN's recurrent kernels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Literal

from ..records import Frozen
from ..workload.ops import PRODUCTS, Op, OpKind
from .kernel_table import CONTRACTIONS, Kernel, merge_kernels


@dataclass(frozen=True, slots=True)
class _Cell:
    """Pointwise work of a cell, in arrays of batch x units, counted from the cell's equations."""

    gates: int  # products with the recurrent weights, side by side in one [-]
    # forward, backward: arrays read and written in a step [-]
    forward: int
    kept: int  # arrays written forward only because the backward pass wants them [-]
    backward: int
    flops: float  # operations on each element of the state, forward or backward [FLOP]


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
    """Return the operations dispatched by the host, and those of recurrent layers that cuDNN launches."""
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
            _pointwise(product, next(groups), flops=gradients * elements, moved_bytes=gradients * state_bytes),
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


_IRREGULAR = (OpKind.GATHER, OpKind.SCATTER, OpKind.SORT, OpKind.LINALG, OpKind.OTHER)
_CATEGORY_OF = (
    dict.fromkeys(OpKind, "stream")
    | {kind: kind.value for kind in (*PRODUCTS, OpKind.POOL)}
    | dict.fromkeys(_IRREGULAR, "irregular")
)
UnfusedPart = Literal["calls", "torch_calls", "softmax", "updates", "loops"]
_COMPOSING = {"calls": "tensorflow", "torch_calls": "torch"}
# `Op.composed` of batch normalization, the call that Keras on PyTorch composes. The host spends on a primitive of
# it half of what it spends on a kernel of another layer call, which also converts and reshapes: in training steps
# of Keras 3.15 on PyTorch 2.13, 1.4 to 1.8 `aten` operations are dispatched for one, 2.2 to 3.3 for the other.
_BATCH_NORMALIZATION, COMPOSED_DISPATCH = "torch", 0.5


def split_unfused(ops: Sequence[Op], *, parts: Collection[UnfusedPart]) -> tuple[list[Op], list[Op]]:
    """Return the rows whose kernels are whole, and those that are launched primitive by primitive.

    Products are whole, each in a group of its own.

    Args:
        parts: Where a framework composes: in `calls` that TensorFlow has no kernel for, in `torch_calls` that
            Keras on PyTorch has none for, in `updates` of variables.
    """
    if not parts:
        return list(ops), []
    frameworks = {_COMPOSING[part] for part in parts if part in _COMPOSING}

    def is_composed(op: Op) -> bool:
        composed = op.composed in frameworks or (op.phase == "update" and "updates" in parts)
        return composed and op.kind not in PRODUCTS

    groups = {op.layer_group for op in ops if op.layer_group >= 0 and is_composed(op)}
    whole = [op for op in ops if op.layer_group not in groups]
    return whole, [op for op in ops if op.layer_group in groups]


def _category(op: Op) -> str:
    found = _CATEGORY_OF[op.kind]
    if op.kind is OpKind.CONV:
        return f"conv_{op.variant or 'fprop'}"
    return f"attention_{op.variant}" if op.kind is OpKind.ATTENTION else found


# cuDNN has Winograd's algorithms for these: WINOGRAD takes filters of 3x3
# (https://forums.developer.nvidia.com/t/cudnn-status-not-supported-for-algo-6-and-3/165802/3, NVIDIA's answer),
# WINOGRAD_NONFUSED those of 5x5, too (cuDNN Developer Guide 7.6.1, `cudnnConvolutionForward` [unverified]).
# Published steps bear it out: AlexNet in float32 on an A100, 30 % of it 5x5, does 1.65 times the FLOPs of the
# peak.
WINOGRAD_FILTERS = ((3, 3), (5, 5))


def _allows_winograd(op: Op) -> bool:
    return (
        op.kind is OpKind.CONV
        and op.kernel in WINOGRAD_FILTERS
        and set(op.stride) <= {1}
        and set(op.dilation) <= {1}
        and op.batch == 1
    )


def _describe_contraction(op: Op) -> Kernel:
    return Kernel(
        _category(op),
        op.dtype,
        op.flops,
        op.bytes_read + op.bytes_written,
        op.m,
        op.n,
        op.k,
        op.batch,
        _allows_winograd(op),
        count=float(op.count),
    )


def find_transposed_layers(ops: Iterable[Op]) -> frozenset[str]:
    """Return the layers whose forward pass is the input gradient of a convolution."""
    return frozenset(op.layer for op in ops if op.phase == "forward" and op.variant == "dgrad")


def find_dense_outputs(ops: Iterable[Op]) -> dict[tuple[str, int], int]:
    """Return the rows of the output of dense products forward, by layer and elements of the output [-]."""
    products = (op for op in ops if op.kind is OpKind.DOT and op.phase == "forward" and op.batch == 1)
    # Keras names the product of an `EinsumDense` after its equation, too.
    return {(op.layer.rpartition("/")[0] if "->" in op.layer else op.layer, op.m * op.n): op.m for op in products}


def _is_bias(op: Op, outputs: Mapping[tuple[str, int], int]) -> bool:
    """Return whether an operation adds the bias of a dense product, which TorchInductor leaves to the product.

    Its pass over a graph turns `mm` and `add` into `addmm` (torch/_inductor/fx_passes/post_grad.py), but not where
    an activation follows.
    """
    rows = outputs.get((op.layer, round(op.flops)))
    # With one sample in 16 bits, the conversion of the bias moves as much, and names the row.
    adds = op.name in ("add", "convert_element_type") and op.phase == "forward"
    # A residual has a row for each of the output; a bias has one, maybe of twice the bytes.
    return rows is not None and adds and op.fused_bytes_read <= (1.0 + 2.0 / rows) * op.fused_bytes_written


# Longer columns XLA reduces in two kernels, first to the square root of their length or less: in steps that JAX
# 0.10 compiled for an H200, columns of 4,096 are reduced in one, of 12,544 in two
# (xla/service/gpu/transforms/tree_reduction_rewriter.cc).
LONGEST_COLUMN = 4096  # [elements]


def _count_long_sums(op: Op) -> int:
    return op.column_sums if op.column_rows > LONGEST_COLUMN else 0


GATHERED = 64  # samples from which each step of a k loop reads neighbours in memory


def _describe_xla_convolution(op: Op, *, transposed: bool, samples: int) -> Kernel:
    """Return the kernel of a convolution as XLA gives it to cuDNN.

    XLA does not recognize the filter's gradient of a transposed or a dilated convolution: cuDNN gets a convolution
    forward whose window is the whole map, with the zeros between strides, and whose channels are the samples. It
    does not split the sum, and gathers several positions in each step of it if the samples are few: on an H200, 32
    elements took 0.12 to 0.24 us with 8 to 32 samples in three networks, and no time of their own with 128
    (profiles/measured/nvidia-h200-jax.json). Three-dimensional arrays have channels first, and are converted.
    """
    kernel = _describe_contraction(op)
    if samples < GATHERED and op.variant == "wgrad" and (transposed or max(op.dilation, default=1) > 1):
        # Zeros are waited for, but not multiplied: `flops` has none.
        zeros = math.prod(op.stride) if transposed else 1
        kernel = kernel._replace(k=op.k * zeros, winograd=False, serial=True)
    return kernel


def _iter_xla_copies(op: Op, *, filter_arrays: float) -> Iterator[Kernel]:
    """Yield the copies that XLA makes for a convolution: of three-dimensional arrays, and of what updates write.

    Keras has a filter's output channels last, cuDNN first: its update is transposed, and cannot take the place of
    its operands. In steps that JAX 0.10 compiled for an H200, each of the arrays in float32 is copied.
    """
    if len(op.kernel) == 3:
        yield Kernel("stream", op.dtype, 0.0, 2.0 * (op.bytes_read + op.bytes_written), count=float(op.count))
    if op.variant == "wgrad" and filter_arrays:
        yield Kernel("stream", "float32", 0.0, 2.0 * 4.0 * op.m * op.n * op.batch, count=filter_arrays * op.count)


SMALL_MAP = 32 * 32  # pixels of a map up to which TensorFlow sums in shared memory first, at a stride of 1


def _describe_tensorflow_depthwise(op: Op, *, samples: int) -> Kernel:
    """Return the kernel of a depthwise convolution of TensorFlow's own, which does not call cuDNN in float32.

    The gradient of the filter adds each product to it in memory, by an atomic addition
    (tensorflow/core/kernels/depthwise_conv_op_gpu.h: `DepthwiseConv2dBackpropFilterGPUKernelNCHW`, and for small
    maps `DepthwiseConv2dBackpropFilterGPUKernelNCHWSmall`).
    """
    large = op.k > SMALL_MAP * samples or max(op.stride, default=1) > 1
    adds = op.variant == "wgrad" and op.dtype == "float32" and large
    return _describe_contraction(op)._replace(serial=adds)


def moved_bytes(op: Op, *, compiled: bool) -> float:
    """Return the memory traffic of an operation in a kernel fused by XLA, or of a layer call [bytes]."""
    if compiled:
        return op.fused_bytes_read + op.fused_bytes_written
    return op.layer_bytes_read + op.layer_bytes_written


# PyTorch's softmax over an axis that is not the last: a thread reads the classes of a position one by one, in
# three passes forward and two backward; 2^n threads share them where a block of 1024 has room beside at most 64
# positions (aten/src/ATen/native/cuda/SoftMax.cu, `SpatialSoftMax_getBlockSize`). Each read of four such kernels
# on an H200 took 0.27 to 0.55 us (profiles/measured/nvidia-h200-torch.json): one to two latencies of a k loop.
SOFTMAX_PASSES = (3, 2)
SHARING_POSITIONS, BLOCK_THREADS, LATENCIES, K_STEP = 64, 1024, 1.5, 8
LOSS = "compile_loss/"  # layer of the operations of a loss


def iter_token_softmax(loss: Op, logits: Op, *, samples: int, trains: bool) -> Iterator[Kernel]:
    """Yield the kernels of the softmax in Keras's cross entropy of tokens on PyTorch; none for one label a sample.

    Keras moves the classes to the second axis (keras/src/backend/torch/nn.py). The chain of reads is described as
    a product of one row and one column.

    Args:
        loss: Forward pass of a loss that looks for the largest value of each row.
        logits: Product whose columns are the classes.
        samples: Of a step; each has several positions where classes are moved [-].
    """
    classes, positions = logits.n, logits.m * logits.batch / samples
    if positions < 2:
        return
    threads = 1
    if positions <= SHARING_POSITIONS <= classes:
        threads = 2 ** int(math.log2(min(BLOCK_THREADS / positions, classes)))
    for passes in SOFTMAX_PASSES if trains else SOFTMAX_PASSES[:1]:
        k = int(passes * math.ceil(classes / threads) * LATENCIES * K_STEP)
        yield Kernel("dot", "float32", 0.0, 0.0, 1, 1, k, serial=True, count=loss.count)


class Launching(Frozen):
    """What determines the kernels of given operations."""

    compiled: bool  # True: elementwise chains are fused as XLA does; False: one kernel a layer call and phase
    # recurrent layers that a library runs whole (`lstm`, `gru`); others run the loop as traced
    cudnn_layers: Collection[str] = frozenset()
    # where the framework launches every primitive: in `calls` (TensorFlow) or `torch_calls` (Keras on PyTorch)
    # that it has no kernel for, in `updates` of variables that are not compiled with the rest, in `loops` over
    # time; in `softmax`, where finding the largest values is a kernel of its own
    unfused: Collection[UnfusedPart] = frozenset()
    persistent_norms: bool = False  # whether kernels of batch normalization read each operand once
    row_kernels: bool = False  # whether rows stay on the chip that are reduced and then worked on
    inductor: bool = False  # whether TorchInductor compiles, not XLA
    xla_samples: int = 0  # samples of a step whose convolutions XLA gives to cuDNN, as for JAX; 0 for others [-]
    filter_arrays: float = 0.0  # arrays of each filter that XLA updates: the filter and the optimizer's [-]
    torch_samples: int = 0  # samples of a step of Keras on PyTorch, see `iter_token_softmax`; 0 for others [-]
    tensorflow_samples: int = 0  # samples of a step that TensorFlow launches kernel by kernel; 0 for others [-]

    def build_kernels(self, ops: Sequence[Op]) -> tuple[Kernel, ...]:
        """Return the kernels of a step, equal kernels merged into one row with a count."""
        dispatched, streamed = use_cudnn_rnn(ops, layers=self.cudnn_layers)
        dispatched, looped = split_loops(dispatched) if "loops" in self.unfused else (dispatched, [])
        dispatched, apart = split_unfused(dispatched, parts=self.unfused)
        launched = (kernel for kernel, _ in self._iter_launches(dispatched))
        inner = (kernel._replace(streamed=True) for kernel, _ in self._iter_launches(streamed))
        primitives = (primitive for op in apart for primitive in _iter_primitives(op))
        # The executor of a graph launches products and primitives of loops over time itself.
        steps = (
            [_describe_contraction(op)] if op.kind in PRODUCTS else _iter_primitives(op)
            for op in looped
            if op.kind in PRODUCTS or op.layer_group >= 0
        )
        loops = (kernel._replace(streamed=True) for kernel in chain.from_iterable(steps))
        return merge_kernels(chain(launched, inner, primitives, loops))

    def group_ops(self, ops: Sequence[Op]) -> list[tuple[Kernel, list[Op]]]:
        """Return each kernel of a step with its operations, contractions first; primitives are not separated."""
        dispatched, streamed = use_cudnn_rnn(ops, layers=self.cudnn_layers)
        plain = replace(self, cudnn_layers=frozenset(), unfused=frozenset(), persistent_norms=False)
        launches = plain._iter_launches([*dispatched, *streamed])
        return sorted(launches, key=lambda launch: launch[0].category not in CONTRACTIONS)

    def _iter_launches(self, ops: Sequence[Op]) -> Iterator[tuple[Kernel, list[Op]]]:
        """Yield each kernel with its operations."""
        transposed = find_transposed_layers(ops) if self.xla_samples else frozenset()
        others = []
        for op in ops:
            if op.kind not in PRODUCTS:
                others.append(op)
            elif self.xla_samples and op.kind is OpKind.CONV:
                is_transposed = op.layer in transposed
                yield _describe_xla_convolution(op, transposed=is_transposed, samples=self.xla_samples), [op]
                yield from ((kernel, [op]) for kernel in _iter_xla_copies(op, filter_arrays=self.filter_arrays))
            elif self.tensorflow_samples and op.kind is OpKind.DEPTHWISE:
                yield _describe_tensorflow_depthwise(op, samples=self.tensorflow_samples), [op]
            else:
                yield _describe_contraction(op), [op]
        if self.torch_samples:
            yield from self._iter_losses(ops)
        apart = "softmax" in self.unfused
        outputs = find_dense_outputs(ops) if self.inductor else {}
        for members in self._group(others):
            if outputs and all(_is_bias(op, outputs) for op in members):
                continue
            kernel = self._describe_group(members)
            yield kernel, members
            if apart and any(op.layer_bytes_max for op in members):
                yield kernel._replace(flops=0.0, bytes_moved=0.0, streamed=True, count=2 * kernel.count), []
            if sums := sum(map(_count_long_sums, members)) if self.xla_samples else 0:
                yield kernel._replace(flops=0.0, bytes_moved=0.0, count=sums * kernel.count), []

    def _iter_losses(self, ops: Sequence[Op]) -> Iterator[tuple[Kernel, list[Op]]]:
        """Yield the kernels of softmax in losses on PyTorch."""
        forward = [op for op in ops if op.phase == "forward"]
        products = [op for op in forward if op.kind is OpKind.DOT]
        for op in forward:
            if products and op.layer.startswith(LOSS) and op.layer_bytes_max:
                trains = len(forward) < len(ops)
                kernels = iter_token_softmax(op, products[-1], samples=self.torch_samples, trains=trains)
                yield from ((kernel, [op]) for kernel in kernels)

    def _group(self, ops: Iterable[Op]) -> list[list[Op]]:
        """Return the operations of each kernel."""
        groups: dict[int, list[Op]] = {}
        compiled, by_rows = self.compiled, self.compiled and self.row_kernels
        for op in ops:
            group = op.fused_group if compiled else op.layer_group
            if by_rows and op.row_group >= 0 and (self.inductor or not op.row_norm):
                group = op.row_group
            if group in groups:
                groups[group].append(op)
            elif group >= 0:
                groups[group] = [op]
        return list(groups.values())

    def _count_bytes(self, op: Op, *, once: bool) -> float:
        """Return the bytes that an operation moves as part of a kernel [bytes]."""
        if self.compiled:
            moved = op.fused_bytes_read + op.fused_bytes_written
            joins = self.row_kernels and (self.inductor or not op.row_norm)
            return moved - op.fused_bytes_reread if joins else moved
        moved = op.layer_bytes_read + op.layer_bytes_written
        if once:
            return moved - op.layer_bytes_reread
        return moved + op.layer_bytes_max if "softmax" in self.unfused else moved

    def _describe_group(self, members: list[Op]) -> Kernel:
        """Return the kernel of several operations."""
        once = self.persistent_norms and any(op.composed == _BATCH_NORMALIZATION for op in members)
        heaviest = members[0]
        if len(members) == 1 and heaviest.count == 1:
            size = self._count_bytes(heaviest, once=once)
            return Kernel(_CATEGORY_OF[heaviest.kind], heaviest.dtype, heaviest.flops, size)
        largest, count, flops, moved = -math.inf, 0.0, 0.0, 0.0
        for op in members:
            size, times = self._count_bytes(op, once=once), op.count
            if size > largest:
                heaviest, largest = op, size
            count = max(count, times)
            flops += op.flops * times
            moved += size * times
        return Kernel(
            _CATEGORY_OF[heaviest.kind], heaviest.dtype, flops / count, moved / count, count=float(count)
        )


def _iter_primitives(op: Op) -> Iterator[Kernel]:
    """Yield the primitives of a row.

    An optimizer's loop keeps no account of layers and gradients: on all primitives of a variable the host spends
    what it spends on one kernel of a layer; on those of batch normalization see `COMPOSED_DISPATCH`.
    """
    moved = (op.bytes_read + op.bytes_written) / op.primitives
    kernel = Kernel(_category(op), op.dtype, op.flops / op.primitives, moved)
    dispatched = float(op.primitives)
    if op.phase == "update":
        dispatched = 1.0
    elif op.composed == _BATCH_NORMALIZATION:
        dispatched *= COMPOSED_DISPATCH
    yield kernel._replace(count=op.count * dispatched)
    if dispatched < op.primitives:
        yield kernel._replace(count=op.count * (op.primitives - dispatched), streamed=True)
