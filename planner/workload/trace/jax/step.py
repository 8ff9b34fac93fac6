"""Tracing and counting of a Keras model's real step on the JAX backend."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

import jax
import keras

from ...keras_layers import group_variables, list_optimizers, replacing
from ...model import (
    AttentionCall,
    Collective,
    DeviceLayout,
    DividedStep,
    FusedAttention,
    Memory,
    Unmodelled,
    VariableBytes,
)
from ...ops import Mode, Op, OpKind
from ...options import SpecTree, iter_specs, map_specs
from ..division.batches import BatchSizes, OtherWorkError
from ..division.divider import divide_as_placed
from ..division.spec import Placement
from ..graph.fusion import PEAKS, compute_peaks, fuse
from ..graph.graph import Graph, has_primitive
from ..graph.layers import fuse_attention, group_layers
from ..graph.table import find_unmodelled, tabulate
from .flatten import flatten, simplify
from .instrumentation import REPEAT, name_recurrent_layers, number_calls, recompute_with_flags

# Optimizers whose update depends only on a variable's shape and type, unlike Muon and possibly custom ones.
_UNIFORM = {"Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "Ftrl", "Lamb", "Lion", "RMSprop", "SGD"}


@contextlib.contextmanager
def trace_equal_updates_once(optimizer: Any) -> Iterator[None]:
    """Context in which the optimizer updates one variable of each shape and type, in a scope with their count.

    The others are assigned their gradient, so that it is still computed. Optimizers not known to update equal
    variables equally are left as is, and with weight decay, which changes each variable before its update.
    """
    target = getattr(optimizer, "inner_optimizer", optimizer)

    def update(gradients: Any, variables: Any, learning_rate: Any) -> None:
        classes: dict[tuple[Any, ...], list[tuple[Any, Any]]] = {}  # by type and shape
        for gradient, variable in zip(gradients, variables, strict=True):
            own = getattr(variable, "overwrite_with_gradient", False)
            key = (type(gradient), str(gradient.dtype), tuple(variable.shape), str(variable.dtype), own)
            classes.setdefault(key, []).append((gradient, variable))
        for members in classes.values():
            with jax.named_scope(f"{REPEAT}{len(members)}"):
                target.update_step(*members[0], learning_rate)
            for gradient, variable in members[1:]:
                variable.assign(gradient)

    known = type(target) is getattr(keras.optimizers, type(target).__name__, None)
    is_uniform = known and type(target).__name__ in _UNIFORM and not getattr(target, "weight_decay", None)
    with replacing(*([(target, "_backend_update_step", update)] if is_uniform else [])):
        yield


UPDATED_AT_A_TIME = 2  # variables whose gradients wait [-]


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A step, as the fields of the same names of `Workload` and `DividedStep`."""

    ops: tuple[Op, ...]
    memory: Memory
    unmodelled: tuple[Unmodelled, ...] = ()
    notes: tuple[str, ...] = ()
    fused_attention: FusedAttention | None = None
    divided: DividedStep | None = None
    collectives: tuple[Collective, ...] = ()


def trace_step(
    model: Any,
    data: SpecTree,
    *,
    batch_size: int,
    mode: Mode = "train",
    placement: Placement | None = None,
    known: KnownSteps | None = None,
    derives: bool = False,
) -> TracedStep:
    """Trace one step of a model on JAX, its optimizer and metrics built, whose variables may be abstract.

    `data`: one sample as `train_step` gets it, such as (x, y); for inference, of x. `known`: steps of the same
    model that were traced before, to which this one is added, and from which it may be derived if `derives`.
    """
    known, train = {} if known is None else known, mode == "train"
    trained, input_bytes = range(len(model.trainable_variables)), compute_batch_bytes(data, batch_size)
    how: dict[str, Any] = {"train": train, "trained": trained, "input_bytes": input_bytes}
    with _quick_tracing(), name_recurrent_layers(model):
        key = batch_size, mode, derives and (batch_size, mode, False) not in known
        if key not in known:
            traced = _trace(model, data, batch_size=batch_size, mode=mode, known=known if key[-1] else {})
            known[key] = traced, traced.tabulate(model, **how)
        traced, step = known[key]
        if placement is None or not placement.divided:
            return step
        closed = divide_as_placed(traced.closed, model, placement, mode=mode)
        local = traced._replace(closed=closed).tabulate(model, placement=placement, **how)
    divided = DividedStep(
        layout=build_device_layout(model, placement, mode=mode),
        ops=local.ops,
        memory=local.memory,
        fused_attention=local.fused_attention,
        collectives=local.collectives,
        states_activations=has_primitive(traced.closed.jaxpr, "sharding_constraint"),
    )
    return replace(step, divided=divided)


def _trace(model: Any, data: SpecTree, *, batch_size: int, mode: Mode, known: KnownSteps) -> TracedFunction:
    """Derive a step from a known one at a multiple of the batch size, or trace it."""
    function, state, batch = prepare_step(model, data, batch_size=batch_size, mode=mode)
    shapes = [one.shape for one in jax.tree.leaves((state, batch))]
    fixed = frozenset(shapes[: sum(map(len, state))])
    for (size, of, _), (traced, _) in known.items():
        if of == mode and size % batch_size == 0 and batch_size > 1:  # dimensions of one are broadcast
            with contextlib.suppress(OtherWorkError):
                jaxpr = BatchSizes(size, batch_size, fixed).change(traced.closed.jaxpr, shapes)
                return traced._replace(closed=traced.closed.replace(jaxpr=jaxpr))
    with trace_equal_updates_once(model.optimizer) if mode == "train" else contextlib.nullcontext():
        return trace_function(function, (state, batch), {})


class TracedFunction(NamedTuple):
    """A traced function: its program, the shapes of its results, its calls of attention, and assumptions."""

    closed: Any
    results: Any
    attention: Mapping[int, AttentionCall]
    notes: tuple[str, ...]

    def tabulate(self, model: Any, *, trained: Sequence[int], train: bool = True, **how: Any) -> TracedStep:
        """Return it as a step; `trained`: variables among its inputs; `how` is for `compute_memory`."""
        graph = flatten(self.closed)
        graph.parameters = tuple(graph.inputs[one] for one in trained)

        def tabulate_graph(graph: Graph) -> dict[str, Any]:
            fusion, layers = fuse(graph), group_layers(graph)
            peaks = compute_peaks(graph, layers, fusion, donated=train)
            ops = tuple(op for op in tabulate(graph, layers, fusion) if op.kind is not OpKind.COLLECTIVE)
            return {"ops": ops, "memory": compute_memory(model, train=train, peaks=peaks, **how)}

        simplify(graph, has_update=train)
        fused, distinct = fuse_attention(graph, self.attention)
        return TracedStep(
            **tabulate_graph(graph),
            unmodelled=find_unmodelled(graph),
            notes=(*dict.fromkeys(remark.text for remark in graph.remarks), *self.notes),
            fused_attention=FusedAttention(calls=distinct, **tabulate_graph(fused)) if distinct else None,
            collectives=tuple(
                Collective(count=node.count, phase=node.phase or "forward", **node.equation.params)
                for node in graph.nodes
                if node.rule.kind is OpKind.COLLECTIVE
            ),
        )


def trace_function(function: Callable[..., Any], args: Any, options: Any, *, fixed: Any = ()) -> TracedFunction:
    """Trace a pure function of arrays, which may be abstract; `fixed` are positions of other arguments."""
    with _quick_tracing(), recompute_with_flags() as recomputing, number_calls() as calls:
        closed, results = jax.make_jaxpr(function, static_argnums=fixed, return_shape=True)(*args, **options)
    return TracedFunction(closed, results, calls, tuple(recomputing))


# by batch size, mode, and whether they were derived where they could be
KnownSteps = dict[tuple[int, str, bool], tuple[TracedFunction, TracedStep]]


def prepare_step(
    model: Any, data: SpecTree, *, batch_size: int, mode: Mode
) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
    """Return the function of one step, and abstract arrays of the variables and of the batch it is called with."""

    def call(weights: Any, x: Any) -> Any:
        return model.stateless_call(*weights, x, training=False)[0]

    batch = map_specs(lambda spec: jax.ShapeDtypeStruct((batch_size, *spec.shape), spec.dtype), data)
    groups = group_variables(model, train=mode == "train")
    state = tuple([jax.ShapeDtypeStruct(one.shape, one.dtype) for one in group] for group in groups)
    if mode == "infer":
        return call, state[:2], batch
    return model.train_step, state, batch


def export_step(model: Any, data: SpecTree, *, batch_size: int, mode: Mode, platform: str) -> bytes:
    """Lower one step of a built model, whose variables may be abstract, to a serialized StableHLO module.

    The first argument holds the state that the step updates (variables, optimizer, metrics), the others inputs.
    """
    from jax import export

    function, state, batch = prepare_step(model, data, batch_size=batch_size, mode=mode)
    step = jax.jit(function, donate_argnums=0 if mode == "train" else ())
    with keras.StatelessScope(initialize_variables=False):  # abstract variables stay abstract
        return bytes(export.export(step, platforms=[platform])(state, batch).serialize())


@contextlib.contextmanager
def _quick_tracing() -> Iterator[None]:
    """Trace without garbage collection and without a stack trace per equation, which is 20 % faster."""
    collecting, frames = gc.isenabled(), jax.config.jax_traceback_in_locations_limit
    if collecting:
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
    return prod(shape) * int(jax.dtypes.canonicalize_dtype(dtype).itemsize)


def compute_batch_bytes(data: SpecTree, batch_size: int) -> int:
    """Return the size of a batch of some samples [bytes]; text has none on a device."""
    specs = (spec for spec in iter_specs(data) if spec.dtype != "string")
    return sum(compute_array_bytes((batch_size, *spec.shape), spec.dtype) for spec in specs)


def build_device_layout(model: Any, placement: Placement, *, mode: Mode, takes_all: bool = False) -> DeviceLayout:
    """Return the devices of a mesh, which may be all that the script found, and the variables of each."""
    whole, each = (_compute_variable_bytes(model, one, train=mode == "train") for one in (None, placement))
    replicas = prod(placement.sizes[name] for name in placement.replicas)
    devices = prod(placement.sizes.values())
    return DeviceLayout(devices=devices, replicas=replicas, takes_all=takes_all, whole=whole, each=each)


def _compute_variable_bytes(model: Any, placement: Placement | None, *, train: bool) -> VariableBytes:
    """Return the memory of the variables of a step, on one device of a placement or as a whole."""
    groups = [*group_variables(model, train=train)]
    if train:  # its own `train_step` may apply more optimizers
        groups += [one.variables for one in list_optimizers(model) if one is not model.optimizer]
    sizes = (sum(compute_variable_sizes(group, placement)) for group in groups)
    parameters, others, optimizer, metrics, *further = sizes
    optimizer += sum(further)
    return VariableBytes(parameters=parameters, optimizer=optimizer, state=others + metrics)


def compute_variable_sizes(variables: Any, placement: Placement | None = None) -> list[int]:
    """Return the memory of each variable, on one device of a placement or as a whole [bytes]."""
    shape_of = (lambda one: tuple(one.shape)) if placement is None else placement.compute_local_shape
    return [compute_array_bytes(shape_of(one), one.dtype) for one in variables]


def compute_memory(
    model: Any, *, train: bool, input_bytes: int, peaks: Mapping[str, int], placement: Placement | None = None
) -> Memory:
    """Return the device memory of a step; a placement is for the gradients that wait on one device."""
    held = _compute_variable_bytes(model, None, train=train)
    # The norm of all gradients, and the check of a scaled loss for overflow, need all of them before an update.
    # Else those of the two largest variables wait: one is computed while the other is applied.
    optimizer = model.optimizer if train else None
    needs_all = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    needs_all |= getattr(optimizer, "global_clipnorm", None) is not None
    sizes = sorted(compute_variable_sizes(model.trainable_variables, placement)) if train else []
    return Memory(
        parameter_bytes=held.parameters,
        gradient_bytes=held.parameters if train else 0,
        optimizer_bytes=held.optimizer,
        state_bytes=held.state,
        input_bytes=input_bytes,
        **peaks,
        waiting_gradient_bytes=None if needs_all else sum(sizes[-UPDATED_AT_A_TIME:]),
    )


def build_unfused(model: Any, ops: tuple[Op, ...], *, train: bool, input_bytes: int) -> TracedStep:
    """Return a step of another backend as its operations, one kernel each; `input_bytes` of a batch."""
    if train:
        held = sum(op.bytes_written * op.count for op in ops if op.phase == "forward")
    else:
        held = max((op.bytes_read + op.bytes_written for op in ops), default=0.0)
    memory = compute_memory(model, train=train, input_bytes=input_bytes, peaks=dict.fromkeys(PEAKS, int(held)))
    kept = "activation memory is an upper bound: all outputs of the forward pass are assumed to be kept"
    return TracedStep(ops, memory, notes=(kept,))
