"""Counting of a Keras model's real step on the TensorFlow backend, from the graph of its concrete function.

For models that run on no other backend: rows are operations, with loops multiplied, of unknown layer and fusion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod
from types import SimpleNamespace
from typing import Any, cast

from ...keras_layers import list_optimizers
from ...ops import Mode, Op, OpKind, Phase, build_unfused_op
from ...options import SpecTree, map_specs
from ..rules import NO_ARITHMETIC, OPERATIONS, Product, Variant, build_convolution, build_product

_TABLE = OPERATIONS["tensorflow"]
_COUNTER = re.compile(r"(_\d+)+$")  # with which names and scopes are told apart


def trace_tensorflow_step(model: Any, data: SpecTree, *, batch_size: int, mode: Mode) -> tuple[Op, ...]:
    """Return the operations of one step, which builds what is not built yet, without computing it."""
    import tensorflow as tf

    def run(data: Any) -> Any:
        if mode == "infer":
            return model(data, training=False)
        return model.distribute_strategy.run(model.train_step, args=(data,))

    batch = map_specs(lambda spec: tf.TensorSpec((batch_size, *spec.shape), spec.dtype), data)
    graph = tf.function(run, autograph=False).get_concrete_function(batch).graph
    return list_graph_rows(graph, list_optimizers(model))


def list_graph_rows(graph: Any, optimizers: Iterable[Any]) -> tuple[Op, ...]:
    """Return the operations of the graph of a step that applies some optimizers."""
    names = frozenset(_COUNTER.sub("", one.name) for one in optimizers)
    return tuple(_iter_rows(graph, names, times=1.0, phase="forward"))


def _iter_rows(graph: Any, optimizers: frozenset[str], *, times: float, phase: Phase) -> Iterator[Op]:
    """Yield the rows of a graph that is executed some times, in a phase unless its operations say another one."""
    needed: set[Any] = set()  # by an output or a variable update; the others are never run
    waiting = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    while waiting:
        operation = waiting.pop()
        if operation not in needed:
            needed.add(operation)
            waiting += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
    for operation in (one for one in graph.get_operations() if one in needed):
        kind, name, own = operation.type, operation.name, phase
        if _COUNTER.sub("", name.partition("/")[0]) in optimizers:  # as in `adam_2/Mul_1`
            own = "update"
        elif "gradient_tape" in name or "gradients" in name or name.startswith("AddN"):
            own = "backward"
        attribute = _TABLE["calling"].get(kind)
        if attribute is not None:
            called, most = operation.get_attr(attribute), None
            if attribute == "body" and len(operation.inputs) > 1:
                most = _find_constant(operation.inputs[1])  # of its iterations
            name, owner = str((called[0] if isinstance(called, list) else called).name), graph
            while name not in owner._functions:  # wherever it is defined
                owner = owner.outer_graph
            inner = owner._functions[name].graph
            yield from _iter_rows(inner, optimizers, times=times * float(max(most or 1, 1)), phase=own)
        elif (row := _build_row(operation, times, own)) is not None:
            yield row


def _find_constant(tensor: Any) -> int | None:
    """Return an integer fixed by the graph, also through the operations in which Keras wraps a length."""
    import tensorflow as tf

    value = tf.get_static_value(tensor)
    if value is not None:
        return int(value) if value.ndim == 0 and value.dtype.kind == "i" else None
    if tensor.op.type in ("Cast", "Identity", "Max", "Min") and tensor.op.inputs[0].shape.rank == 0:
        return _find_constant(tensor.op.inputs[0])
    return None


def _build_row(operation: Any, times: float, phase: Phase) -> Op | None:
    name = operation.type
    shapes = [_get_shape(tensor) for tensor in operation.outputs]
    known = [shape for shape in shapes if shape is not None]
    if name in _TABLE["free"] or not known:
        return None
    inputs = [(shape, t.dtype) for t in operation.inputs if (shape := _get_shape(t)) is not None]
    facts = _find_contraction(operation, known[0])
    if facts is None:
        kinds = (OpKind(kind) for kind, begins in _TABLE["kinds"].items() if name.startswith(tuple(begins)))
        kind = next(kinds, OpKind.ELEMENTWISE)
        elements = max(prod(shape) for shape in (*known, *(shape for shape, _ in inputs)))
        facts = {"kind": kind, "flops": 0.0 if kind in NO_ARITHMETIC else float(elements)}
    written = sum(prod(s) * t.dtype.size for s, t in zip(shapes, operation.outputs, strict=True) if s is not None)
    return build_unfused_op(
        name=name,
        phase=phase,
        dtype=operation.outputs[0].dtype.name,
        count=times,
        bytes_read=float(sum(prod(shape) * dtype.size for shape, dtype in inputs)),
        bytes_written=float(written),
        number=operation._id,
        **facts,
    )


def _get_shape(tensor: Any) -> tuple[int, ...] | None:
    shape = tensor.shape
    return tuple(map(int, shape)) if tensor.dtype.size and shape.is_fully_defined() else None


def _find_contraction(operation: Any, out: tuple[int, ...]) -> Product | None:
    """Return an operation as a contraction; None for other operations and unknown shapes."""
    name = operation.type
    shapes = [_get_shape(tensor) for tensor in operation.inputs]
    if name in _TABLE["dots"]:
        transposed = operation.get_attr("transpose_a" if name == "MatMul" else "adj_x")
        k = (shapes[0] or (0, 0))[-2 if transposed else -1]
        return build_product(m=out[-2], n=out[-1], k=k, batch=prod(out[:-2]))
    if name == "Einsum":
        return _build_einsum(operation.get_attr("equation").decode(), shapes)
    if not name.startswith(tuple(_TABLE["convolutions"])):
        return None
    variant: Variant = "fprop"
    image, kernel, output = cast("tuple[Any, Any, Any]", (*shapes[:2], out))
    if "BackpropInput" in name:
        variant, image, kernel, output = "dgrad", out, *shapes[1:3]
    elif "BackpropFilter" in name:
        variant, image, kernel, output = "wgrad", shapes[0], out, shapes[2]
    if image is None or kernel is None or output is None:
        return None
    last = operation.get_attr("data_format").decode().endswith("C")
    channel, spatial = (-1, slice(1, -1)) if last else (1, slice(2, None))
    return build_convolution(
        variant,
        batch=image[0],
        image=image[spatial],
        output=output[spatial],
        kernel=kernel[:-2],
        channels_in=image[channel],
        channels_out=output[channel],
        groups=image[channel] if name.startswith("Depthwise") else image[channel] // kernel[-2],
        stride=tuple(operation.get_attr("strides"))[spatial],
        dilation=tuple(operation.get_attr("dilations"))[spatial],
        channels_last=last,
    )


def _build_einsum(equation: str, shapes: list[tuple[int, ...] | None]) -> Product | None:
    """Return a two-operand einsum as independent matrix products."""
    operands, _, result = equation.partition("->")
    letters = operands.split(",")
    if len(letters) != 2 or "." in equation or None in shapes:
        return None
    sizes = {
        a: n for text, shape in zip(letters, shapes, strict=True) for a, n in zip(text, shape or (), strict=True)
    }
    first, second, kept = (set(text) for text in (*letters, result))
    return build_product(
        m=prod(sizes[a] for a in kept - second),
        n=prod(sizes[a] for a in kept - first),
        k=prod(sizes[a] for a in (first | second) - kept),
        batch=prod(sizes[a] for a in kept & first & second),
    )


@contextmanager
def record_rows() -> Iterator[tuple[list[Op], list[Phase]]]:
    """Yield the rows of all TensorFlow operations that run one by one in this context, and their phase."""
    from tensorflow import compat
    from tensorflow.python.framework import op_callbacks

    rows: list[Op] = []
    phase: list[Phase] = ["forward"]

    def record(kind: Any, inputs: Any, attributes: Any, outputs: Any, *name: Any, **where: Any) -> None:
        kind = compat.as_str(kind)
        names = map(compat.as_str, attributes[::2] if attributes else ())
        settings = dict(zip(names, attributes[1::2] if attributes else (), strict=True))

        def get_attr(name: str) -> Any:
            value = settings[name]
            return value.encode() if isinstance(value, str) else value

        one = SimpleNamespace(type=kind, inputs=inputs, outputs=outputs, get_attr=get_attr, _id=len(rows))
        row = None if where.get("graph") is not None else _build_row(one, 1.0, phase[0])
        if row is not None:
            rows.append(row)

    op_callbacks.add_op_callback(record)
    try:
        yield rows, phase
    finally:
        op_callbacks.remove_op_callback(record)
