"""Rules for data that is renamed (free) or moved (bytes, no FLOPs)."""

from __future__ import annotations

from typing import Any

from ...ops import OpKind
from .cost_rule import (
    Equation,
    Role,
    Rule,
    get_shape,
    has_same_size,
    nbytes,
    read_all_but_first,
    read_selected,
)

_FREE = (
    "bitcast_convert_type", "from_edtype", "layout_constraint", "name", "pin", "reshard",
    "to_edtype", "unpin", "copy", "copy_p", "device_put", "expand_dims", "mesh_cast",
    "optimization_barrier", "pcast", "pvary", "random_unwrap", "random_wrap", "reshape",
    "sharding_constraint", "squeeze", "stop_gradient", "symbolic_zeros", "reduced_vary_cast",
)  # fmt: skip


def keeps_order(shape: tuple[int, ...], permutation: tuple[int, ...]) -> bool:
    """Return whether a transposition moves only axes of length one.

    Example:
        >>> keeps_order((8, 1, 3), (1, 0, 2)), keeps_order((8, 2, 3), (1, 0, 2))
        (True, False)
    """
    moved = [axis for axis in permutation if shape[axis] != 1]
    return moved == sorted(moved)


def build_transposition(array: Any, permutation: tuple[int, ...]) -> Equation:
    """Build the equation that transposes an array of a given shape and type."""
    import jax

    like = jax.ShapeDtypeStruct(array.shape, array.dtype)
    return jax.make_jaxpr(lambda x: jax.lax.transpose(x, permutation))(like).eqns[0]


_VIEW = Rule(kind=OpKind.MOVE, role=Role.VIEW)
_MOVE = Rule(kind=OpKind.MOVE, role=Role.POINTWISE)
_RESIZE = Rule(kind=OpKind.MOVE, role=Role.POINTWISE, is_view=has_same_size)
_JOIN = Rule(kind=OpKind.MOVE, role=Role.BARRIER, is_view=lambda equation: len(equation.invars) == 1)
_TRANSPOSE = Rule(
    kind=OpKind.MOVE,
    role=Role.POINTWISE,
    is_view=lambda equation: keeps_order(get_shape(equation.invars[0]), equation.params["permutation"]),
)

RULES: dict[str, Rule] = {
    **dict.fromkeys(_FREE, _VIEW),
    "transpose": _TRANSPOSE,
    **dict.fromkeys(("rev", "split", "unstack"), _MOVE),
    **dict.fromkeys(("pad", "tile"), _RESIZE),
    "slice": Rule(kind=OpKind.MOVE, role=Role.POINTWISE, reads=read_selected, is_view=has_same_size),
    **dict.fromkeys(("stack", "concatenate"), _JOIN),
    "dynamic_slice": Rule(
        kind=OpKind.GATHER, role=Role.POINTWISE, reads=read_selected, is_view=has_same_size
    ),
    "dynamic_update_slice": Rule(
        kind=OpKind.SCATTER,
        role=Role.BARRIER,
        reads=read_all_but_first,
        writes=lambda equation: nbytes(equation.invars[1]),
    ),
}
