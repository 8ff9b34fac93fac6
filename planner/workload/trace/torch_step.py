"""Count the real step of a Keras model on the PyTorch backend, on fake tensors, which have no values.

For models that run on no other backend: rows are kernels as PyTorch launches them, one an `aten` operation. What
JAX's tracer knows and this one does not: which operations one layer or one fusion would be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, Literal

from ..ops import Op, OpKind, Phase
from ..spec import ArraySpec, SpecTree, map_specs
from .plain_rows import Variant, convolution_facts, plain_row, product_facts

__all__ = ["trace_torch_step"]

# What costs no kernel: other views of the same memory, and bookkeeping.
FREE = (
    "view", "_unsafe_view", "reshape", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "slice",
    "select", "detach", "alias", "as_strided", "split", "unbind", "empty", "empty_like", "is_same_size",
    "sym_size", "unfold", "diagonal", "lift_fresh", "numpy_T", "new_empty", "empty_strided", "split_with_sizes",
)  # fmt: skip
# By the beginning of the name, the longest that fits.
KINDS = {
    OpKind.REDUCE: (
        "sum", "mean", "amax", "amin", "max", "min", "var", "argmax", "norm", "prod", "any", "all", "batch_norm",
        "layer_norm",
    ),
    OpKind.POOL: ("max_pool", "avg_pool", "adaptive"),
    OpKind.GATHER: ("embedding", "index", "gather", "index_select"),
    OpKind.SCATTER: ("index_put", "scatter", "index_add", "embedding_dense_backward"),
    OpKind.RANDOM: ("bernoulli", "rand", "uniform", "normal", "dropout"),
    OpKind.MOVE: (
        "clone", "copy", "cat", "stack", "pad", "contiguous", "to_copy", "constant_pad", "flip", "zero", "fill",
        "new_zeros", "ones", "full", "roll", "select_backward", "slice_backward",
    ),
    OpKind.SORT: ("sort", "topk"),
}  # fmt: skip
# What arithmetic an element takes that is no single multiplication or addition.
PER_ELEMENT = {OpKind.MOVE: 0.0, OpKind.GATHER: 0.0, OpKind.SCATTER: 0.0}
MANY = "_foreach_"  # one call for a list of tensors
# The gradient of a part of a tensor is that part in a tensor of zeros; adding the zeros is no arithmetic.
PADDING, ADDING = ("select_backward", "slice_backward"), ("add", "add_")


def trace_torch_step(
    model: Any, *, x_spec: SpecTree, y_spec: SpecTree, sample_weight_spec: SpecTree = None, batch_size: int,
    mode: Literal["train", "infer"] = "train",
) -> tuple[Op, ...]:  # fmt: skip
    """Return the rows of one step; nothing is computed, and the model cannot be run afterwards.

    Args:
        model: A `keras.Model` on the PyTorch backend, its optimizer and metrics built.
        x_spec, y_spec, sample_weight_spec: One sample of each, nested as the data is; None where not given.
        batch_size: Samples of the batch [-].
        mode: The training step, or the forward pass alone.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    def tensor(spec: ArraySpec) -> Any:
        return torch.empty((batch_size, *spec.shape), dtype=getattr(torch, spec.dtype))

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    _without_values(model, fake, train=mode == "train")
    with fake:
        x, y, weight = (map_specs(tensor, tree) for tree in (x_spec, y_spec, sample_weight_spec))
    with fake, _recorded() as (rows, phase):
        if mode == "infer":
            with torch.no_grad():
                model(x, training=False)
        else:
            with _phases(model, phase):
                model.train_step((x, y) if weight is None else (x, y, weight))
    return tuple(rows)


def _without_values(model: Any, fake: Any, *, train: bool) -> None:
    """Give every variable of a model a tensor without a value."""
    import torch

    variables = [*model.variables]
    if train:
        variables += [*model.optimizer.variables, *model.metrics_variables]
    for variable in variables:
        value = fake.from_tensor(variable._value.detach())
        trainable = bool(variable.trainable) and value.is_floating_point()
        variable._value = torch.nn.Parameter(value, requires_grad=trainable)


@contextmanager
def _phases(model: Any, phase: list[Phase]) -> Iterator[None]:
    """Note when the backward pass and the update begin."""
    import torch

    backward, apply = torch.Tensor.backward, model.optimizer.apply

    def noted(name: Phase, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            phase[0] = name
            return function(*args, **kwargs)

        return call

    torch.Tensor.backward = noted("backward", backward)
    model.optimizer.apply = noted("update", apply)
    try:
        yield
    finally:
        torch.Tensor.backward = backward
        del model.optimizer.apply


@contextmanager
def _recorded() -> Iterator[tuple[list[Op], list[Phase]]]:
    """Yield the rows of everything that PyTorch is told to do meanwhile."""
    from torch.utils._python_dispatch import TorchDispatchMode

    rows: list[Op] = []
    phase: list[Phase] = ["forward"]
    padded = Padded()

    class Recorder(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func._overloadpacket.__name__
            if name == "_local_scalar_dense":  # a value is asked for; there is none: 1 is as good as any
                return _any_value(args[0])
            out = func(*args, **(kwargs or {}))
            for facts in padded.facts(name, args, out) or _facts(name, args, out):
                row = _row(name, (args, kwargs or {}), out, facts, phase=phase[0], number=len(rows))
                if row is not None:
                    rows.append(row)
            return out

    with Recorder():
        yield rows, phase


class Padded:
    """Knows the gradients that are zero but for a part, so that adding them counts that part alone.

    PyTorch's loop of a recurrent layer takes its input step by step; the gradient of each step is as large as the
    whole sequence, which counts in bytes, and would be 6 to 30 % of the FLOPs.
    """

    def __init__(self) -> None:
        self._parts: dict[
            int, tuple[Any, int]
        ] = {}  # by id of a tensor, which is kept so that its id stays its own

    def facts(self, name: str, args: Any, out: Any) -> list[dict[str, Any]]:
        """Return what the row of an addition says; nothing for other operations. Takes note of gradients."""
        if name in PADDING:
            self._parts[id(out)] = (out, args[0].numel())
        if name not in ADDING:
            return []
        parts = [self._parts[id(arg)][1] for arg in args[:2] if id(arg) in self._parts]
        return [{"kind": OpKind.ELEMENTWISE, "flops": float(min(parts))}] if parts else []


def _any_value(tensor: Any) -> bool | int | float:
    """Return a value of a tensor's type, for code that decides on one (a learning rate's schedule)."""
    if tensor.dtype.is_floating_point:
        return 1.0
    return True if "bool" in str(tensor.dtype) else 1


def _row(
    name: str, inputs: Any, out: Any, facts: dict[str, Any], *, phase: Phase, number: int
) -> Op | None:  # fmt: skip
    read, written = _tensors(inputs), _tensors(out) or _changed(name, inputs[0])
    if name in FREE or not written:
        return None
    if not facts:
        kind = _kind(name)
        each = PER_ELEMENT.get(kind, 2.0 if "alpha" in inputs[1] else 1.0)
        facts = {"kind": kind, "flops": _elements(name, read, written) * each}
    return plain_row(
        name=name, phase=phase, dtype=str(written[0].dtype).removeprefix("torch."), number=number,
        bytes_read=float(sum(map(_bytes, read))), bytes_written=float(sum(map(_bytes, written))), **facts,
    )  # fmt: skip


def _changed(name: str, args: Any) -> list[Any]:
    """Return what an operation on many tensors changes in place, for it returns nothing."""
    return _tensors(args[0]) if name.startswith(MANY) and name.endswith("_") else []


def _elements(name: str, read: list[Any], written: list[Any]) -> int:
    """Return how many elements are worked on: those of the largest tensor, or of a whole list of them."""
    if name.startswith(MANY):
        return sum(int(tensor.numel()) for tensor in written)
    return max(int(tensor.numel()) for tensor in (*read, *written))


def _facts(name: str, args: Any, out: Any) -> list[dict[str, Any]]:
    """Return what the rows of one operation say: two rows for both gradients of a convolution."""
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        first, second = args[-2:]
        batch = first.shape[0] if first.ndim == 3 else 1
        return [product_facts(m=first.shape[-2], n=second.shape[-1], k=first.shape[-1], batch=batch)]
    if name in ("convolution", "_convolution", "mkldnn_convolution", "cudnn_convolution"):
        image, kernel, _, stride, _, dilation, transposed, _, groups = args[:9]
        return [_convolution("fprop", (image, kernel, out), (stride, dilation, transposed, groups))]
    if name == "convolution_backward":
        gradient, image, kernel, _, stride, _, dilation, transposed, _, groups, wanted = args
        variants: tuple[Variant, ...] = ("dgrad", "wgrad")
        return [
            _convolution(variant, (image, kernel, gradient), (stride, dilation, transposed, groups))
            for variant, one in zip(variants, wanted, strict=False)
            if one
        ]
    if name.startswith(
        "_scaled_dot_product"
    ):  # attention in one kernel; what it computes again does not count
        backward = "backward" in name
        query, key = args[1:3] if backward else args[:2]
        depth = query.shape[-1] * (4 if backward else 2)
        sizes = {"m": query.shape[-2], "n": key.shape[-2], "k": depth}
        return [product_facts(batch=prod(query.shape[:-2]), **sizes)]
    return [{}]


def _convolution(
    variant: Variant, tensors: tuple[Any, Any, Any], settings: tuple[Any, Any, bool, int]
) -> dict[str, Any]:
    """Return a convolution's facts; a transposed one is the gradient of an ordinary one to its image."""
    (image, kernel, output), (stride, dilation, transposed, groups) = tensors, settings
    if transposed:
        image, output = output, image
        other: dict[Variant, Variant] = {"fprop": "dgrad", "dgrad": "fprop", "wgrad": "wgrad"}
        variant = other[variant]
    return convolution_facts(
        variant, batch=image.shape[0], image=tuple(image.shape[2:]), output=tuple(output.shape[2:]),
        kernel=tuple(kernel.shape[2:]), channels_in=image.shape[1], channels_out=output.shape[1],
        groups=groups, stride=tuple(stride), dilation=tuple(dilation), channels_last=False,
    )  # fmt: skip


def _kind(name: str) -> OpKind:
    bare = name.removeprefix(MANY).strip("_").removeprefix("native_")
    fitting = [
        (len(begin), kind) for kind, names in KINDS.items() for begin in names if bare.startswith(begin)
    ]
    return max(fitting)[1] if fitting else OpKind.ELEMENTWISE


def _tensors(values: Any) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
