"""From a nested jaxpr to one flat list of primitives: calls inlined, loops multiplied, views resolved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .control import inner_jaxprs, most_expensive_branch, trip_count
from .graph import Graph, Node
from .names import join_names, layer_of, phase_hint
from .rule import Equation, Role, Rule, elements, nbytes, shape_of
from .rules import rule_for

__all__ = ["flatten"]

_LOOP_BORDER = Rule(kind=rule_for("copy").kind, role=Role.BARRIER)


def flatten(closed_jaxpr: Any) -> Graph:
    """Return the flat graph of a traced function (`jax.make_jaxpr`'s result)."""
    walker = _Walker()
    jaxpr = closed_jaxpr.jaxpr
    arguments = [walker.graph.new_value(nbytes(variable)) for variable in jaxpr.invars]
    constants = [walker.graph.new_value(nbytes(variable)) for variable in jaxpr.constvars]
    walker.graph.inputs = (*arguments, *constants)
    results = walker.inline(jaxpr, [*constants, *arguments], stack="", count=1.0)
    walker.graph.outputs = tuple(value for value in results if value is not None)
    return walker.graph


class _Walker:
    """Carries the graph through the recursion; a value is a number, a literal is None."""

    def __init__(self) -> None:
        self.graph = Graph()
        self._layers: dict[str, str] = {}
        self._integers: dict[int, int] = {}

    def inline(
        self, jaxpr: Any, arguments: Sequence[int | None], *, stack: str, count: float
    ) -> list[int | None]:
        """Append a jaxpr's equations and return the values of its results."""
        scope: dict[Any, int | None] = dict(zip([*jaxpr.constvars, *jaxpr.invars], arguments, strict=True))
        names: dict[Any, str] = {}
        for equation in jaxpr.eqns:
            inner = equation.source_info.name_stack
            name = names.get(inner)
            if name is None:
                name = names[inner] = join_names(stack, str(inner))
            inputs = [self._value(variable, scope) for variable in equation.invars]
            results = self._equation(equation, inputs, name, count)
            scope.update(zip(equation.outvars, results, strict=True))
        return [self._value(variable, scope) for variable in jaxpr.outvars]

    def _value(self, variable: Any, scope: dict[Any, int | None]) -> int | None:
        if not hasattr(variable, "val"):
            return scope[variable]
        aval = variable.aval
        if aval.shape == () and getattr(aval.dtype, "kind", "") in ("i", "u"):
            return self._integer(int(variable.val))
        return None

    def _integer(self, known: int) -> int:
        number = self._integers.get(known)
        if number is None:
            number = self._integers[known] = self.graph.new_value(0)
            self.graph.constants[number] = known
        return number

    def _equation(
        self, equation: Equation, inputs: list[int | None], stack: str, count: float
    ) -> Sequence[int | None]:
        name = equation.primitive.name
        if name == "scan":
            return self._scan(equation, inputs, stack, count)
        if name == "while":
            return self._while(equation, inputs, stack, count)
        if name == "cond":
            return self._cond(equation, inputs, stack, count)
        rule = rule_for(name)
        if not rule.known:
            called = inner_jaxprs(equation)
            if len(called) == 1 and len(called[0].invars) == len(inputs):
                constants = [self.graph.new_value(nbytes(variable)) for variable in called[0].constvars]
                return self.inline(called[0], [*constants, *inputs], stack=stack, count=count)
        if rule.role is Role.VIEW or rule.is_view(equation):
            return self._view(equation, inputs)
        return self._primitive(equation, rule, inputs, stack, count)

    def _view(self, equation: Equation, inputs: list[int | None]) -> list[int | None]:
        if len(equation.outvars) == len(inputs):
            return inputs
        return [inputs[0]] * len(equation.outvars)

    def _primitive(
        self, equation: Equation, rule: Rule, inputs: list[int | None], stack: str, count: float
    ) -> list[int]:
        outputs = [self.graph.new_value(nbytes(variable)) for variable in equation.outvars]
        reads = {}
        for value, size in zip(inputs, rule.bytes_read(equation), strict=False):
            if value is not None and value not in self.graph.constants:
                reads[value] = max(size, reads.get(value, 0))
        variables = (*equation.invars, *equation.outvars)
        self._append(
            equation.primitive.name, rule, equation, reads, outputs, stack, count,
            writes=rule.bytes_written(equation), scalar=not any(map(shape_of, variables)),
            work=max(map(elements, variables), default=0),
        )  # fmt: skip
        return outputs

    def _append(
        self, name: str, rule: Rule, equation: Equation | None, reads: dict[int, int], outputs: list[int],
        stack: str, count: float, *, writes: int = 0, scalar: bool = False, work: int = 0,
    ) -> None:  # fmt: skip
        layer = self._layers.get(stack)
        if layer is None:
            layer = self._layers[stack] = layer_of(stack)
        self.graph.nodes.append(
            Node(name, rule, equation, tuple(reads), tuple(outputs), tuple(reads.values()), writes, layer,
                 phase_hint(stack), count, work, scalar)
        )  # fmt: skip

    def _border(self, name: str, inputs: Sequence[int | None], outputs: list[int], stack: str) -> None:
        """Mark where a loop begins or ends: what crosses it lies in memory, and the mark itself is free."""
        reads = {value: 0 for value in inputs if value is not None}
        self._append(name, _LOOP_BORDER, None, reads, outputs, stack, 1.0)

    def _scan(
        self, equation: Equation, inputs: list[int | None], stack: str, count: float
    ) -> list[int]:
        params = equation.params
        body, length = params["jaxpr"].jaxpr, params["length"]
        consts, carries = params["num_consts"], params["num_carry"]
        results = [self.graph.new_value(nbytes(variable)) for variable in equation.outvars]
        state = [self.graph.new_value(nbytes(variable)) for variable in body.invars[consts : consts + carries]]
        self._border("scan_begin", inputs[consts:], [*results, *state], stack)
        slices = [
            self.graph.new_value(nbytes(variable), parent=whole)
            for variable, whole in zip(body.invars[consts + carries :], inputs[consts + carries :], strict=True)
        ]
        known = [self.graph.new_value(nbytes(variable)) for variable in body.constvars]
        ends = self.inline(
            body, [*known, *inputs[:consts], *state, *slices], stack=stack, count=count * length
        )
        self._border("scan_end", [*ends, *inputs[consts:]], [], stack)
        return results

    def _while(self, equation: Equation, inputs: list[int | None], stack: str, count: float) -> list[int]:
        params = equation.params
        head, shared = params["cond_nconsts"], params["body_nconsts"]
        trips = trip_count(equation, [self.graph.constants.get(v) if v is not None else None for v in inputs])
        if trips is None:
            self.graph.unknown_loops.append(layer_of(stack) or "while")
        results = [self.graph.new_value(nbytes(variable)) for variable in equation.outvars]
        state = [self.graph.new_value(nbytes(variable)) for variable in equation.outvars]
        self._border("while_begin", inputs[head + shared :], [*results, *state], stack)
        body = params["body_jaxpr"].jaxpr
        known = [self.graph.new_value(nbytes(variable)) for variable in body.constvars]
        times = count * (1 if trips is None else trips)
        ends = self.inline(body, [*known, *inputs[head : head + shared], *state], stack=stack, count=times)
        self._border("while_end", ends, [], stack)
        return results

    def _cond(
        self, equation: Equation, inputs: list[int | None], stack: str, count: float
    ) -> list[int | None]:
        branch = most_expensive_branch(equation)
        place = layer_of(stack) or "the step"
        note = f"a branch in {place} depends on data; its most expensive side is counted"
        if note not in self.graph.notes:
            self.graph.notes.append(note)
        known = [self.graph.new_value(nbytes(variable)) for variable in branch.constvars]
        return self.inline(branch, [*known, *inputs[1:]], stack=stack, count=count)
