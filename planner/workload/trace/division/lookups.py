"""Division of look-ups in tables and of their gradients."""

from __future__ import annotations

from .operands import Operands
from .products import match_dimensions
from .spec import Axes, Divided, find_names


def divide_gather(operands: Operands) -> list[Divided]:
    """Divide a look-up; in a table divided along its rows, each device finds some, and takes the rest as zero."""
    params, table = operands.equation.params, operands.values[0]
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    offsets = [dim for dim in range(len(table.shape)) if dim not in gone]
    cut = [dim for dim in offsets if sizes[dim] != table.shape[dim]]
    operands.gather(0, cut)
    for dim, indexed in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        match_dimensions(operands, dim, indexed)
    indices = operands.spec(1)[:-1]
    shape = tuple(operands.equation.outvars[0].aval.shape)
    rows = iter(indices)
    inner = iter(offsets)
    found: list[Axes] = []
    for dim in range(len(shape)):
        if dim in numbers.offset_dims:
            at = next(inner)
            if find_names([operands.spec(0)[at]]) & find_names(indices):
                operands.gather(0, [at])
            found.append(operands.spec(0)[at])
        else:
            found.append(next(rows))
    partial = find_names(operands.spec(0)[dim] for dim in numbers.collapsed_slice_dims)
    return [Divided(tuple(found), partial - find_names(found))]


def divide_scatter(operands: Operands) -> list[Divided]:
    """Divide the gradient of a look-up: partial along the axes that divide the rows that are added."""
    numbers = operands.equation.params["dimension_numbers"]
    table, updates = operands.values[0], operands.values[2]
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    windows = [dim for dim in range(len(table.shape)) if dim not in gone]
    found = list(operands.spec(0))
    for dim, window in zip(windows, numbers.update_window_dims, strict=True):
        if updates.shape[window] != table.shape[dim]:
            operands.gather(2, [window])
        elif not found[dim] and not find_names([updates.spec[window]]) & find_names(found):
            found[dim] = updates.spec[window]
    added = [dim for dim in range(len(updates.shape)) if dim not in numbers.update_window_dims]
    partial = find_names(operands.spec(2)[dim] for dim in added) - find_names(found)
    operands.slice_to(0, tuple(found))
    return [Divided(tuple(found), partial)]
