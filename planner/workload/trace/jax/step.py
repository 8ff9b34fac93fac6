"""Tracing and counting of a Keras model's real step on the JAX backend."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, NamedTuple, cast

from ...array_spec import ArraySpec, SpecTree, iter_specs, map_specs
from ...collective import Collective, CollectiveKind
from ...model import AttentionCall, FusedAttention, Memory, Unmodelled
from ...ops import Op, OpKind
from ..division.placement import Placement, divide_as_placed
from ..graph.fused_attention import fuse_attention
from ..graph.fusion import fuse
from ..graph.graph import Graph
from ..graph.layers import group_layers
from ..graph.liveness import compute_peaks, fuse_compiled
from ..graph.table import find_unmodelled, tabulate
from .control import has_primitive
from .flatten import flatten
from .instrumentation import (
    name_recurrent_layers,
    number_calls,
    recompute_with_flags,
)
from .simplify import simplify
from .updates import trace_equal_updates_once

UPDATED_AT_A_TIME = 2  # variables whose gradients wait [-]


@dataclass(frozen=True, slots=True)
class TracedStep:
    """Operations and memory of a step, unmodelled operations and assumptions."""

    ops: tuple[Op, ...]
    memory: Memory
    unmodelled: tuple[Unmodelled, ...]
    notes: tuple[str, ...]
    fused_attention: FusedAttention | None = None
    divided: DividedTables | None = None


def trace_step(
    model: Any,
    *,
    x_spec: SpecTree,
    y_spec: SpecTree,
    sample_weight_spec: SpecTree = None,
    batch_size: int,
    mode: Literal["train", "infer"] = "train",
    placement: Placement | None = None,
    known: KnownSteps | None = None,
) -> TracedStep:
    """Trace one step of a built (for training, compiled) Keras model and return its table of operations.

    Nothing is computed and nothing is allocated: variables may be abstract.

    Args:
        model: A `keras.Model` on the JAX backend, its optimizer and metrics built.
        x_spec, y_spec, sample_weight_spec: One sample of each, nested as the data is; None where not given.
        batch_size: Samples of the batch [-].
        mode: The training step (loss, gradients, metrics, optimizer), or the forward pass alone.
        placement: Placement of its variables on several devices; None for one.
        known: Steps of the same model that were traced before, to which this one is added; None to keep none.
    """
    known = {} if known is None else known
    specs = (x_spec, y_spec, sample_weight_spec)
    batch = tuple(map_specs(lambda spec: build_abstract_array(spec, batch_size), tree) for tree in specs)
    train = mode == "train"
    fed = iter_specs(specs if train else x_spec)
    inputs = sum(compute_array_bytes((batch_size, *spec.shape), spec.dtype) for spec in fed)

    def tabulate_step(
        closed: Any, attention: Mapping[int, AttentionCall], shared: Placement | None = None
    ) -> _Tabulated:
        graph = flatten(closed)
        trained, frozen = len(model.trainable_variables), len(model.non_trainable_variables)
        graph.parameters, graph.frozen = graph.inputs[:trained], graph.inputs[trained : trained + frozen]
        simplify(graph, has_update=train)
        ops, memory = tabulate_graph(graph, shared)
        fused, calls = fuse_attention(graph, attention)
        alternative = None
        if calls:
            fused_ops, fused_memory = tabulate_graph(fused, shared)
            alternative = FusedAttention(calls=calls, ops=fused_ops, memory=fused_memory)
        return _Tabulated(graph, ops, memory, alternative)

    def tabulate_graph(graph: Graph, shared: Placement | None) -> tuple[tuple[Op, ...], Memory]:
        fusion, layers, compiled = fuse(graph), group_layers(graph), fuse_compiled(graph)
        peaks = compute_peaks(graph, layers, fusion, compiled, donated=train)
        memory = compute_memory(model, train=train, input_bytes=inputs, peaks=peaks, placement=shared)
        return tabulate(graph, layers, fusion), memory

    with (
        _quick_tracing(),
        name_recurrent_layers(model),
        recompute_with_flags() as recomputing,
        number_calls() as attention,
    ):
        if (batch_size, mode) not in known:
            closed = _trace_train(model, batch) if train else _trace_infer(model, batch[0])
            known[batch_size, mode] = WholeStep(
                closed, attention, tabulate_step(closed, attention), recomputing
            )
        step = known[batch_size, mode]
        whole = step.tables
        missing = find_unmodelled(whole.graph)
        local = divide_as_placed(step.closed, model, placement, mode=mode)
        divided = (
            None
            if local is None
            else _build_divided_step(tabulate_step(local, step.attention, placement), step.closed)
        )
    notes = (*dict.fromkeys(remark.text for remark in whole.graph.remarks), *step.notes)
    return TracedStep(whole.ops, whole.memory, missing, notes, whole.fused_attention, divided)


class _Tabulated(NamedTuple):
    """A traced step as a graph and as tables."""

    graph: Graph
    ops: tuple[Op, ...]
    memory: Memory
    fused_attention: FusedAttention | None


class WholeStep(NamedTuple):
    """A traced step on one device."""

    closed: Any
    attention: Mapping[int, AttentionCall]
    tables: _Tabulated
    notes: Sequence[str]


KnownSteps = dict[tuple[int, str], WholeStep]  # by batch size and mode


class DividedTables(NamedTuple):
    """A step at local shapes, with the fields of `DividedStep`."""

    ops: tuple[Op, ...]
    memory: Memory
    fused_attention: FusedAttention | None
    collectives: tuple[Collective, ...]
    states_activations: bool


def _build_divided_step(found: _Tabulated, closed: Any) -> DividedTables:
    """Return a step at local shapes, its collectives apart from its other operations."""
    fused = found.fused_attention
    return DividedTables(
        ops=_leave_out_collectives(found.ops),
        memory=found.memory,
        fused_attention=None if fused is None else replace(fused, ops=_leave_out_collectives(fused.ops)),
        collectives=tuple(
            Collective(
                kind=cast("CollectiveKind", node.name),
                count=node.count,
                phase=node.phase or "forward",
                **node.equation.params,
            )
            for node in found.graph.nodes
            if node.rule.kind is OpKind.COLLECTIVE and node.equation is not None
        ),
        states_activations=has_primitive(closed.jaxpr, "sharding_constraint"),
    )


def _leave_out_collectives(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    return tuple(op for op in ops if op.kind is not OpKind.COLLECTIVE)


def build_abstract_array(spec: ArraySpec, batch_size: int) -> Any:
    """Return a batch's shape and type as a JAX abstract array."""
    import jax

    return jax.ShapeDtypeStruct((batch_size, *spec.shape), spec.dtype)


def build_abstract_variables(variables: Any) -> list[Any]:
    """Return the shapes and types of variables as JAX abstract arrays."""
    import jax

    return [jax.ShapeDtypeStruct(variable.shape, variable.dtype) for variable in variables]


def _trace_train(model: Any, batch: tuple[Any, ...]) -> Any:
    import jax

    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple(map(build_abstract_variables, groups))
    x, y, sample_weight = batch
    data = (x, y) if sample_weight is None else (x, y, sample_weight)
    with trace_equal_updates_once(model.optimizer):
        return jax.make_jaxpr(model.train_step)(state, data)


def _trace_infer(model: Any, x: Any) -> Any:
    import jax

    def call(trainable: Any, others: Any, x: Any) -> Any:
        return model.stateless_call(trainable, others, x, training=False)[0]

    return jax.make_jaxpr(call)(
        build_abstract_variables(model.trainable_variables),
        build_abstract_variables(model.non_trainable_variables),
        x,
    )


@contextlib.contextmanager
def _quick_tracing() -> Iterator[None]:
    """Trace without garbage collection and without a stack trace per equation, which is 20 % faster."""
    import jax
    import keras

    collecting, frames = gc.isenabled(), jax.config.jax_traceback_in_locations_limit
    gc.disable()
    jax.config.update("jax_traceback_in_locations_limit", 0)
    try:
        with keras.StatelessScope(initialize_variables=False):  # abstract variables stay abstract
            yield
    finally:
        jax.config.update("jax_traceback_in_locations_limit", frames)
        if collecting:
            gc.enable()


def compute_array_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Return the size of an array in JAX (64-bit types are narrowed to 32 bits) [bytes]."""
    import jax

    itemsize: int = jax.dtypes.canonicalize_dtype(dtype).itemsize
    return prod(shape) * itemsize


def _compute_variable_bytes(variables: Any) -> int:
    return sum(compute_array_bytes(variable.shape, variable.dtype) for variable in variables)


def compute_memory(
    model: Any, *, train: bool, input_bytes: int, peaks: Mapping[str, int], placement: Placement | None = None
) -> Memory:
    """Return the device memory of a step by part.

    Args:
        model: The built model.
        train: Whether it is trained.
        input_bytes: One batch [bytes].
        peaks: Peaks of its intermediate values, by the field of `Memory` [bytes].
        placement: Placement of its variables, for the gradients that wait on one device; None for whole ones.
    """
    trainable = _compute_variable_bytes(model.trainable_variables)
    others = _compute_variable_bytes(model.non_trainable_variables)
    return Memory(
        parameter_bytes=trainable,
        gradient_bytes=trainable if train else 0,
        optimizer_bytes=_compute_variable_bytes(model.optimizer.variables) if train else 0,
        state_bytes=others + (_compute_variable_bytes(model.metrics_variables) if train else 0),
        input_bytes=input_bytes,
        **peaks,
        waiting_gradient_bytes=_compute_waiting_gradients(model, placement) if train else 0,
    )


def _compute_waiting_gradients(model: Any, placement: Placement | None) -> int | None:
    """Return the gradients that wait for an update at a time; None where all do [bytes].

    Those of the two largest variables: one is computed while the other is applied. The norm of all gradients, and
    the check of a scaled loss for overflow, need all of them first.
    """
    import keras

    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        return None
    if getattr(model.optimizer, "global_clipnorm", None) is not None:
        return None
    shapes = (
        (tuple(one.shape) if placement is None else placement.compute_local_shape(one), one.dtype)
        for one in model.trainable_variables
    )
    sizes = (compute_array_bytes(shape, dtype) for shape, dtype in shapes)
    return sum(sorted(sizes)[-UPDATED_AT_A_TIME:])
