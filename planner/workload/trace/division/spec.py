"""Arrays divided along the axes of a mesh: variables of a model, and operands of an equation at local shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import prod
from operator import mul
from types import SimpleNamespace
from typing import Any, NamedTuple

import keras

from ....records import Frozen
from ...keras_layers import group_variables
from ...ops import Mode
from ..rules import Equation, get_shape

Shape = tuple[int, ...]


class Axis(NamedTuple):
    """An axis of the mesh along which a dimension is divided, in parts of the length that was traced [-].

    The samples of a batch that was traced at the size of one replica are one part.
    """

    name: str
    parts: int


Axes = tuple[Axis, ...]  # of one dimension
Spec = tuple[Axes, ...]  # of all dimensions of an array
UNDIVIDED: Axes = ()
Divided = tuple[Spec, frozenset[str]]  # of a result, and the axes over which it still has to be summed
WHOLE = frozenset[str]()


def build_undivided(shape: Shape) -> Spec:
    """Return the spec of an array of which each device holds the whole."""
    return (UNDIVIDED,) * len(shape)


def find_names(spec: Iterable[Axes]) -> frozenset[str]:
    """Return the names of the axes along which dimensions are divided."""
    return frozenset(axis.name for axes in spec for axis in axes)


def compute_local_shape(shape: Shape, spec: Spec) -> Shape:
    """Return the shape of the largest part of an array that a device holds."""
    return tuple(-(-size // prod(axis.parts for axis in axes)) for size, axes in zip(shape, spec, strict=True))


def divide_reshaped(before: Shape, spec: Spec, after: Shape) -> Spec:
    """Return the spec of a reshaped array; axes that no dimension can carry without communication are left out.

    A division stays with the outermost dimension of a group: heads x size becomes (heads, size).
    """
    found = [UNDIVIDED] * len(after)
    left, right = (list(accumulate(shape, mul)) for shape in (before, after))
    i = j = 0
    for size in sorted({*left} & {*right}):  # ends of the smallest groups of neighbours of equal size
        end, to = left.index(size) + 1, right.index(size) + 1
        outer = next((dim for dim in range(i, end) if before[dim] != 1), None)
        inner = next((dim for dim in range(j, to) if after[dim] != 1), None)
        if outer is not None and inner is not None and after[inner] % prod(one.parts for one in spec[outer]) == 0:
            found[inner] = spec[outer]
        i, j = end, to
    return tuple(found)


class Placement(Frozen):
    """Placement of variables and samples on a mesh, whose devices are numbered along the last axis first."""

    sizes: Mapping[str, int]  # length of each axis of more than one device, in their order [-]
    replicas: frozenset[str] = frozenset()  # axes along which samples are divided
    divided: Mapping[int, Spec] = field(default_factory=dict)  # specs of variables in parts, by their identity

    def build_axes(self, names: str | Iterable[str] | None) -> Axes:
        """Return the axes of a dimension of an activation by their names; those of one device are left out."""
        listed = (names,) if isinstance(names, str) else names or ()
        return tuple(
            Axis(name, 1 if name in self.replicas else self.sizes[name]) for name in listed if name in self.sizes
        )

    def get_spec(self, variable: Any) -> Spec:
        """Return the division of a variable of the model."""
        return self.divided.get(id(variable)) or build_undivided(tuple(variable.shape))

    def compute_local_shape(self, variable: Any) -> Shape:
        """Return the shape of the part of a variable that a device holds."""
        return compute_local_shape(tuple(variable.shape), self.get_spec(variable))


class LocalVariable:
    """A variable of a local jaxpr, with the shape and type that it has on one device; equal to itself alone."""

    def __init__(self, shape: Shape, dtype: Any) -> None:
        self.aval = SimpleNamespace(shape=shape, dtype=dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value of the step on the devices of a mesh."""

    variable: Any  # local variable, or a literal
    shape: Shape  # as traced [-]
    spec: Spec  # division of its dimensions
    partial: frozenset[str] = frozenset()  # axes over whose devices it still has to be summed
    summed_bytes: int = 0  # size of one element as it is summed, of the products behind it [bytes]

    @property
    def is_literal(self) -> bool:
        """Whether it is a constant in the program."""
        return hasattr(self.variable, "val")


@dataclass(slots=True)
class LocalJaxpr:
    """A jaxpr at local shapes while it is written, with those fields of `jax.core.Jaxpr` that are read."""

    invars: Sequence[LocalVariable]
    constvars: Sequence[LocalVariable] = ()
    results: Sequence[Value] = ()
    eqns: list[Any] = field(default_factory=list)
    # sums of partial sums, by their variable; what was exchanged or sliced, by variable, primitive and spec
    summed: dict[LocalVariable, Value] = field(default_factory=dict)
    rewritten: dict[tuple[Any, str, Spec], Value] = field(default_factory=dict)

    @property
    def outvars(self) -> list[Any]:
        """Variables of the results."""
        return [value.variable for value in self.results]

    @property
    def jaxpr(self) -> LocalJaxpr:
        """Itself: it has no constants to close over, unlike a `jax.core.ClosedJaxpr`."""
        return self


def build_value(variable: Any, spec: Spec) -> Value:
    """Return a new value for a traced variable."""
    shape = get_shape(variable)
    local = LocalVariable(compute_local_shape(shape, spec), getattr(variable.aval, "dtype", None))
    return Value(variable=local, shape=shape, spec=spec)


def rename(value: Value) -> Value:
    """Return a value under a new variable."""
    return replace(value, variable=LocalVariable(value.variable.aval.shape, value.variable.aval.dtype))


class Operands:
    """Operands of a traced equation; what a rule changes of them is written into the local jaxpr before it."""

    def __init__(self, equation: Equation, values: Sequence[Value], *, mesh: Placement, body: LocalJaxpr) -> None:
        self.equation, self.mesh, self._body = equation, mesh, body
        self.values = [one if one.is_literal else body.summed.get(one.variable, one) for one in values]

    @property
    def result_shapes(self) -> list[Shape]:
        """Shapes of the results as traced [-]."""
        return [get_shape(one) for one in self.equation.outvars]

    def spec(self, index: int) -> Spec:
        """Return the division of an operand."""
        return self.values[index].spec

    def sum_up(self, index: int, *, wanted: Spec | None = None) -> None:
        """Sum a partial operand over its axes: a reduce-scatter where it is wanted divided along them."""
        value, before = self.values[index], self.values[index].variable
        for name in sorted(value.partial):
            spec = value.spec
            if wanted is not None and name in find_names(wanted):
                added = (tuple(axis for axis in axes if axis.name == name) for axes in wanted)
                spec = tuple((*axes, *more) for axes, more in zip(spec, added, strict=True))
            kind = "all_reduce" if spec == value.spec else "reduce_scatter"
            done = replace(value, spec=spec, partial=value.partial - {name})
            value = self._exchange(kind, done, names=(name,), largest=value.spec, itemsize=value.summed_bytes)
            self.values[index] = self._body.summed[before] = value

    def gather(self, index: int, dims: Iterable[int]) -> None:
        """Gather an operand along the axes of some of its dimensions."""
        value, chosen = self.values[index], set(dims)
        names = find_names(value.spec[dim] for dim in chosen)
        if names:
            spec = tuple(tuple(axis for axis in axes if axis.name not in names) for axes in value.spec)
            whole = replace(value, spec=spec)
            self.values[index] = self._exchange("all_gather", whole, names=tuple(sorted(names)), largest=spec)

    def fit(self, index: int, spec: Spec) -> None:
        """Sum an operand, gather it along axes that divide other dimensions in a spec, and slice it to that."""
        self.sum_up(index, wanted=spec)
        pairs = enumerate(zip(self.spec(index), spec, strict=True))
        self.gather(index, [dim for dim, (axes, wanted) in pairs if find_names([axes]) - find_names([wanted])])
        self.slice_to(index, spec)

    def slice_to(self, index: int, spec: Spec) -> None:
        """Let each device take its part of an operand that it holds the whole of; without communication."""
        value = self.values[index]
        if not value.is_literal and value.spec != spec:
            part = self.values[index] = replace(value, spec=spec)
            if compute_local_shape(value.shape, spec) != tuple(value.variable.aval.shape):
                self.values[index] = self._rewrite(part, "dynamic_slice", {})

    def write(self, params: Mapping[str, Any], results: list[Value]) -> list[Value]:
        """Append the equation with its parameters and results on one device, and return the results."""
        self._append(self.equation.primitive, params, self.values, results)
        return results

    def _append(self, primitive: Any, params: Mapping[str, Any], *sides: list[Value]) -> None:
        """Append an equation with those fields of `jax.core.JaxprEqn` that are read."""
        before, after = ([value.variable for value in values] for values in sides)
        facts = {"params": params, "invars": before, "outvars": after, "source_info": self.equation.source_info}
        self._body.eqns.append(SimpleNamespace(primitive=primitive, **facts))

    def _rewrite(self, value: Value, primitive: str, params: Mapping[str, Any]) -> Value:
        """Append an equation from a value's variable to a new one of its present spec."""
        key = (value.variable, primitive, value.spec)
        if key not in self._body.rewritten:
            shape = compute_local_shape(value.shape, value.spec)
            new = replace(value, variable=LocalVariable(shape, value.variable.aval.dtype))
            self._append(SimpleNamespace(name=primitive), params, [value], [new])
            self._body.rewritten[key] = new
        return replace(value, variable=self._body.rewritten[key].variable)

    def _exchange(
        self, kind: str, value: Value, *, names: tuple[str, ...], largest: Spec, itemsize: int = 0
    ) -> Value:
        """Append a collective over axes of the mesh, with the fields of a `Collective`."""
        size, sizes = itemsize or value.variable.aval.dtype.itemsize, self.mesh.sizes
        order = list(sizes)
        last = max(map(order.index, names))
        ring = {
            "kind": kind,
            "devices": prod(sizes[name] for name in names),
            "stride": prod(sizes[name] for name in order[last + 1 :]),
            "message_bytes": prod(compute_local_shape(value.shape, largest)) * size,
            "replicas": self.mesh.replicas.issuperset(names),
        }
        return self._rewrite(value, kind, ring)


def find_distribution(model: Any, *, mode: Mode) -> Placement | None:
    """Return the placement of a built model's variables by the current distribution; None without one."""
    distribution = keras.distribution.distribution()
    if distribution is None or keras.backend.backend() != "jax":
        return None
    mesh = distribution.device_mesh
    sizes = {str(name): int(size) for name, size in zip(mesh.axis_names, mesh.shape, strict=True) if size > 1}

    def list_names(entry: str | Sequence[str] | None) -> tuple[str, ...]:
        return tuple(name for name in ((entry,) if isinstance(entry, str) else entry or ()) if name in sizes)

    specs = {}
    for variable in (one for group in group_variables(model, train=mode == "train") for one in group):
        layout = distribution.get_variable_layout(variable)
        stated = getattr(layout, "backend_layout", layout).spec
        entries = (*stated, *(None for _ in range(len(variable.shape) - len(stated))))
        spec = tuple(tuple(Axis(name, sizes[name]) for name in list_names(entry)) for entry in entries)
        if any(spec):
            specs[id(variable)] = spec
    replicas = frozenset(list_names(distribution.get_data_layout((1,)).axes[0]))
    return Placement(sizes=sizes, replicas=replicas, divided=specs)


AXIS = "model"
TABLE = "embeddings"
# Layers that lead back to the width of the model, by their common names; the square ones among them cannot be told
# by their shape from those that lead away from it.
RETURNING = re.compile(r"(out|proj|down|o_proj|fc2|wo|dense_2)(put)?(_dense|_proj|_layer)?\d*$")


def place_in_parts(model: Any, devices: int, *, mode: Mode) -> Placement:
    """Return the placement of a model's variables, and of their optimizer's, for tensor parallelism over devices.

    Held as a whole is what cannot be divided evenly, and layers other than products and look-up tables.
    """
    specs: dict[int, Spec] = {}
    if devices == 1:
        return Placement(sizes={})
    for layer in model._flatten_layers(include_self=False):
        specs.update(_divide_layer(layer, devices))
    if mode == "train":
        named = {one.path.replace("/", "_"): one for one in model.trainable_variables if id(one) in specs}
        for state in model.optimizer.variables:
            name = state.name.replace("/", "_")
            owners = [key for key, one in named.items() if name.startswith(f"{key}_") and one.shape == state.shape]
            if owners:
                specs[id(state)] = specs[id(named[max(owners, key=len)])]
    return Placement(sizes={AXIS: devices}, divided=specs)


def _divide_layer(layer: Any, devices: int) -> dict[int, Spec]:
    """Return the specs of the variables of one layer that are divided: its kernel, and what is aligned with it."""
    variables = [*layer._trainable_variables, *layer._non_trainable_variables]
    kernels = [one for one in variables if len(one.shape) > 1]
    if not kernels:
        return {}
    kernel = max(kernels, key=lambda one: prod(one.shape))
    is_table = kernel.path.endswith(f"/{TABLE}") and type(layer).__name__ != "PositionEmbedding"
    dim = choose_divided_dimension(tuple(kernel.shape), name=layer.name, devices=devices, is_table=is_table)
    if dim is None or (kernel.path.endswith(TABLE) and not is_table):
        return {}
    rank = len(kernel.shape)
    places = [(kernel, dim)]
    for other in (one for one in variables if one is not kernel):
        at = len(other.shape) - (rank - dim)  # biases and factors end with the same dimensions as the kernel
        if is_table and len(other.shape) == rank:  # a second table, from features to rows
            at = rank - 1
        if 0 <= at < len(other.shape) and other.shape[at] == kernel.shape[dim]:
            places.append((other, at))
    parts = (Axis(AXIS, devices),)
    return {
        id(one): tuple(parts if dim == at else UNDIVIDED for dim in range(len(one.shape))) for one, at in places
    }


def choose_divided_dimension(shape: Shape, *, name: str, devices: int, is_table: bool = False) -> int | None:
    """Return the dimension along which devices divide the kernel of a product or a table; None for none.

    A kernel is (inputs, outputs), or has heads and their size in the place of one of them; the name of its layer
    tells square ones apart. A look-up table is (rows, features).
    """
    if is_table:
        dim = 0
    elif len(shape) == 3:  # heads x size in the place of inputs or outputs
        dim = 1 if shape[0] == max(shape) else 0
    elif len(shape) == 2:
        inputs, outputs = shape
        returns = inputs > outputs or (inputs == outputs and RETURNING.search(name) is not None)
        dim = 0 if returns else 1
    else:
        return None
    return None if shape[dim] % devices else dim
