"""Counting of a Keras model's real step on the PyTorch backend, on fake tensors without values.

For models that run on no other backend: rows are launches, one per `aten` operation, of unknown layer and fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import prod
from typing import Any

from ...keras_layers import list_optimizers, replacing
from ...model import AttentionCall
from ...ops import Mode, Op, OpKind, Phase, build_unfused_op
from ...options import SpecTree, map_specs
from ..graph.layers import build_attention_product
from ..rules import NO_ARITHMETIC, OPERATIONS, Product, Variant, build_convolution, build_product

_TABLE = OPERATIONS["torch"]
MANY = "_foreach_"  # one call for a list of tensors


def trace_torch_step(model: Any, data: SpecTree, *, batch_size: int, mode: Mode) -> tuple[Op, ...]:
    """Return the operations of one step, uncomputed, as `trace_step`; the model is unusable afterwards."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    fake, variables = FakeTensorMode(allow_non_fake_inputs=True), [*model.variables]
    if mode == "train":
        variables += [*model.metrics_variables, *(v for one in list_optimizers(model) for v in one.variables)]
    for variable in variables:
        value = fake.from_tensor(variable._value.detach())
        trainable = bool(variable.trainable) and value.is_floating_point()
        variable._value = torch.nn.Parameter(value, requires_grad=trainable)
    with fake:
        batch = map_specs(lambda one: torch.empty((batch_size, *one.shape), dtype=getattr(torch, one.dtype)), data)
    with fake, record_rows() as (rows, phase):
        if mode == "infer":
            with torch.no_grad():
                model(batch, training=False)
        else:
            with _record_phases(phase):
                model.train_step(batch)
    return tuple(rows)


def _record_phases(phase: list[Phase]) -> AbstractContextManager[None]:
    """Record backward passes and updates, of which a step may have several."""
    import keras
    import torch

    def noted(name: Phase, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            around, phase[0] = phase[0], name
            try:
                return function(*args, **kwargs)
            finally:
                phase[0] = around

        return call

    kinds = (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer)
    return replacing(
        (torch.Tensor, "backward", noted("backward", torch.Tensor.backward)),
        (torch.autograd, "grad", noted("backward", torch.autograd.grad)),
        *((kind, "apply", noted("update", kind.apply)) for kind in kinds),
    )


@contextmanager
def record_rows() -> Iterator[tuple[list[Op], list[Phase]]]:
    """Yield the rows of all PyTorch operations executed in this context.

    PyTorch's loop of a recurrent layer reads its input step by step. The gradient of each step is padded with
    zeros to the size of the whole sequence, which counts for bytes; adding them would add 6 to 30 % of the FLOPs.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    rows: list[Op] = []
    phase: list[Phase] = ["forward"]
    padded: dict[int, tuple[Any, int]] = {}  # by id; the tensor is kept, so that its id is not reused

    class Recorder(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func._overloadpacket.__name__
            if name == "_local_scalar_dense":  # code branches on a value that does not exist: 1
                kind = args[0].dtype
                return 1.0 if kind.is_floating_point else True if "bool" in str(kind) else 1
            out = func(*args, **(kwargs or {}))
            if name in ("select_backward", "slice_backward"):
                padded[id(out)] = (out, args[0].numel())
            parts = [padded[id(arg)][1] for arg in args[:2] if id(arg) in padded and name in ("add", "add_")]
            sums = [{"kind": OpKind.ELEMENTWISE, "flops": float(min(parts))}] if parts else []
            for facts in sums or _build_fields(name, args, out):
                row = _build_row(name, (args, kwargs or {}), out, facts, phase=phase[0], number=len(rows))
                if row is not None:
                    rows.append(row)
            return out

    with Recorder():
        yield rows, phase


def _build_row(name: str, inputs: Any, out: Any, facts: dict[str, Any], *, phase: Phase, number: int) -> Op | None:
    read, written = _find_tensors(inputs), _find_tensors(out)
    if not written and name.startswith(MANY) and name.endswith("_"):  # changes a list of tensors in place
        written = _find_tensors(inputs[0][0])
    if name in _TABLE["free"] or not written:
        return None
    if not facts:
        bare = name.removeprefix(MANY).strip("_").removeprefix("native_")
        fitting = [
            (len(one), kind) for kind, names in _TABLE["kinds"].items() for one in names if bare.startswith(one)
        ]
        kind = OpKind(max(fitting)[1]) if fitting else OpKind.ELEMENTWISE
        each = 0.0 if kind in NO_ARITHMETIC else 2.0 if "alpha" in inputs[1] else 1.0
        sizes = [int(tensor.numel()) for tensor in (written if name.startswith(MANY) else (*read, *written))]
        facts = {"kind": kind, "flops": (sum(sizes) if name.startswith(MANY) else max(sizes)) * each}
    return build_unfused_op(
        name=name,
        phase=phase,
        dtype=str(written[0].dtype).removeprefix("torch."),
        number=number,
        bytes_read=float(sum(tensor.numel() * tensor.element_size() for tensor in read)),
        bytes_written=float(sum(tensor.numel() * tensor.element_size() for tensor in written)),
        **facts,
    )


def _build_fields(name: str, args: Any, out: Any) -> list[Product]:
    """Return the fields of an operation's rows: two rows for both gradients of a convolution."""
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        first, second = args[-2:]
        batch = first.shape[0] if first.ndim == 3 else 1
        return [build_product(m=first.shape[-2], n=second.shape[-1], k=first.shape[-1], batch=batch)]
    if name in ("convolution", "_convolution", "convolution_backward"):
        return _build_convolutions(args, out, backward=name.endswith("backward"))
    if name.startswith("_scaled_dot_product"):
        backward = "backward" in name
        query, key = args[1:3] if backward else args[:2]  # (batch, heads, length, features)
        causal = any(one is True for one in args)  # `is_causal`, the only flag of these operations that is set
        (queries, head_size), keys = query.shape[-2:], key.shape[-2]
        call = AttentionCall(dtype="", causal=causal, head_size=head_size, queries=queries, keys=keys)
        return [build_attention_product(call, batch=prod(query.shape[:-2]), backward=backward)]
    return [{}]


def _build_convolutions(args: Any, out: Any, *, backward: bool) -> list[Product]:
    """Return a convolution or its wanted gradients; a transposed one is the input gradient of an ordinary one."""
    output, *given = args if backward else (out, *args)
    image, kernel, _, stride, _, dilation, transposed, _, groups = given[:9]
    wanted: dict[Variant, bool] = {"dgrad": args[-1][0], "wgrad": args[-1][1]} if backward else {"fprop": True}
    other: dict[Variant, Variant] = {"fprop": "dgrad", "dgrad": "fprop", "wgrad": "wgrad"}
    if transposed:
        image, output = output, image
    return [
        build_convolution(
            other[variant] if transposed else variant,
            batch=image.shape[0],
            image=tuple(image.shape[2:]),
            output=tuple(output.shape[2:]),
            kernel=tuple(kernel.shape[2:]),
            channels_in=image.shape[1],
            channels_out=output.shape[1],
            groups=groups,
            stride=tuple(stride),
            dilation=tuple(dilation),
            channels_last=False,
        )
        for variant in wanted
        if wanted[variant]
    ]


def _find_tensors(values: Any) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
