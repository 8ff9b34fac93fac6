"""Placement of a built model on several devices: its distribution's, or tensor parallelism."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

import keras

from ..keras_layers import group_variables
from ..ops import Mode
from ..trace.division.spec import UNDIVIDED, Axis, Placement, Shape, Spec


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
    """Return the placement of a model's variables for tensor parallelism over some devices.

    A variable of which no dimension can be divided evenly is held as a whole, like all of layers other than
    products and look-up tables. State of the optimizer is divided like the variables.
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
