"""A traced step at another batch size, by the shapes of its operations, in a tenth of the time of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ...ops import OpKind
from ..graph.graph import find_inner_jaxprs
from ..rules import Equation, find_rule, get_shape
from .spec import Axis, Shape, compute_local_shape, divide_reshaped

_MAKERS = ("broadcast_in_dim", "iota", "random_bits")  # primitives whose result has the shape that they state
_PARTS = {"slice": "limit_indices", "dynamic_slice": "slice_sizes", "gather": "slice_sizes"}


class OtherWorkError(Exception):
    """The work at another batch size does not follow from shapes."""


class _Variable:
    """A variable at another batch size; equal to itself alone.

    What is made of no array (constants, counts, random numbers) is open until it meets one, whose shape it takes.
    """

    def __init__(self, like: Any, shape: Shape) -> None:
        self.aval, self.traced = like.aval.update(shape=shape), get_shape(like)
        self.maker: Equation | None = None  # of what is open

    def settle(self, shape: Shape) -> None:
        """Give it a shape if it is open, and what it is made of."""
        maker, self.maker = self.maker, None
        if maker is None:
            return
        self.aval = self.aval.update(shape=shape)
        dims = maker.params.get("broadcast_dimensions", range(len(shape)))
        for operand in maker.invars:
            if isinstance(operand, _Variable):
                sizes = zip(dims, operand.traced, strict=False)
                operand.settle(tuple(shape[at] if size == self.traced[at] else size for at, size in sizes))


def _is_open(variable: Any) -> bool:
    return getattr(variable, "maker", None) is not None


class BatchSizes(NamedTuple):
    """Batch sizes at which a step was traced and is wanted, and the shapes of its variables."""

    traced: int
    wanted: int
    fixed: frozenset[Shape]

    def change(self, jaxpr: Any, shapes: Sequence[Shape]) -> Any:
        """Return a jaxpr with arguments of some shapes; OtherWorkError if its work does not follow from shapes.

        A model whose code asks for the batch size, and then does other work or fails, is not noticed: a size that
        is asked for by name is traced.
        """
        pairs = zip(jaxpr.invars, shapes, strict=True)
        changed = {one: _Variable(one, shape) for one, shape in pairs if get_shape(one) != shape}

        def read(variables: Sequence[Any]) -> list[Any]:
            return [one if hasattr(one, "val") else changed.get(one, one) for one in variables]

        equations = []
        for equation in jaxpr.eqns:
            inputs, outputs = read(equation.invars), equation.outvars
            is_open = self._settle_operands(equation, inputs)
            params, found = (equation.params, map(get_shape, outputs)) if is_open else self._find(equation, inputs)
            for one, shape in zip(outputs, found, strict=True):
                if is_open or shape != get_shape(one):
                    changed[one] = _Variable(one, shape)
            equations.append(equation.replace(invars=inputs, outvars=read(outputs), params=params))
            for one in equations[-1].outvars if is_open else ():
                one.maker = equations[-1]
        for one in filter(_is_open, results := read(jaxpr.outvars)):
            one.settle(self._guess(one))
        return jaxpr.replace(invars=read(jaxpr.invars), outvars=results, eqns=equations)

    def _guess(self, made: _Variable) -> Shape:
        """Return the shape of what meets no array, whose first axis may be the batch."""
        shape = made.traced
        is_batch = shape[:1] == (self.traced,) and shape not in self.fixed
        return (self.wanted, *shape[1:]) if is_batch else shape

    def _settle_operands(self, equation: Equation, inputs: Sequence[Any]) -> bool:
        """Settle operands that are open, unless the result is open too; return whether it is."""
        name, is_alike = equation.primitive.name, find_rule(equation.primitive.name).kind is OpKind.ELEMENTWISE
        pairs = [(get_shape(a), b) for a, b in zip(equation.invars, inputs, strict=True)]
        opened = [one for _, one in pairs if _is_open(one)]
        known = [(before, get_shape(one)) for before, one in pairs if not _is_open(one)]
        is_made = name in _MAKERS and all(before == after for before, after in known)
        if is_made or (is_alike and opened and not any(after for _, after in known)):
            return True
        whole = get_shape(equation.outvars[0]) if is_alike else ()
        met = next((after for before, after in known if before == whole), ()) if whole else ()
        for one in opened:
            sizes = zip(one.traced, whole, met, strict=False)
            fits = len(one.traced) == len(met) > 0
            shape = tuple(new if size == old else size for size, old, new in sizes) if fits else self._guess(one)
            one.settle(shape)
        return False

    def _find(self, equation: Equation, inputs: list[Any]) -> tuple[Mapping[str, Any], list[Shape]]:
        """Return the parameters of an equation, and the shapes of its results."""
        name, params, traced = equation.primitive.name, equation.params, list(map(get_shape, equation.outvars))
        rule = find_rule(name)
        called = [] if rule.known else find_inner_jaxprs(equation)
        if len(called) == 1 and len(called[0].invars) == len(inputs) and name != "scan":
            key, jaxpr = next((key, one) for key, one in params.items() if getattr(one, "jaxpr", one) is called[0])
            inner = self.change(called[0], list(map(get_shape, inputs)))
            jaxpr = inner if jaxpr is called[0] else jaxpr.replace(jaxpr=inner)
            return {**params, key: jaxpr}, list(map(get_shape, inner.outvars))
        changes = [(get_shape(a), get_shape(b)) for a, b in zip(equation.invars, inputs, strict=True)]
        if all(before == after for before, after in changes):
            return params, traced
        if called:
            raise OtherWorkError(f"{name} of the batch")
        alike = {pair for pair in changes if pair[0]}  # of all operands but scalars
        if rule.kind is OpKind.ELEMENTWISE and len(alike) == 1 and next(iter(alike))[0] == traced[0]:
            return params, [after for _, after in alike]
        before, after = changes[0]
        if name == "broadcast_in_dim":
            places = zip(params["broadcast_dimensions"], before, after, strict=True)
            grown = {at: new for at, old, new in places if old != new}
            return params, [tuple(grown.get(at, size) for at, size in enumerate(traced[0]))]
        if name == "reshape":
            return params, [_reshape(before, after, traced[0])]
        if (part := _PARTS.get(name)) is not None:
            params = {**params, part: _cut(before, after, params[part])}
        try:
            found, _ = equation.primitive.abstract_eval(*(one.aval for one in inputs), **params)
        except Exception as error:  # each primitive has its own, for shapes that do not fit
            raise OtherWorkError(f"{name} of other shapes") from error
        return params, [tuple(one.shape) for one in (found if equation.primitive.multiple_results else [found])]


def _reshape(before: Shape, after: Shape, shape: Shape) -> Shape:
    spec = tuple(
        (Axis("batch", old // new),) if old != new else () for old, new in zip(before, after, strict=True)
    )
    found = compute_local_shape(shape, divide_reshaped(before, spec, shape))
    if prod(found) != prod(after):
        raise OtherWorkError("samples are joined with others")
    return found


def _cut(before: Shape, after: Shape, sizes: Shape) -> Shape:
    """Return the sizes of a part of an array: of a dimension that changes, the whole or one element."""
    parts = list(zip(before, after, sizes, strict=True))
    if any(old != new and size not in (1, old) for old, new, size in parts):
        raise OtherWorkError("a part of the batch")
    return tuple(new if size == old else size for old, new, size in parts)
