"""Flattening of a nested jaxpr to one list of primitives, without the work that frameworks skip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from ..graph.graph import Graph, Node, Remark, find_inner_jaxprs, mark_loop, select_most_expensive_branch
from ..rules import SETS, Equation, Role, Rule, count_elements, find_rule, get_shape, keeps_order, nbytes
from .instrumentation import parse_scope

_LOOP_BORDER = Rule(kind=find_rule("copy").kind, role=Role.BARRIER)


def flatten(closed_jaxpr: Any) -> Graph:
    """Return the flat graph of a traced function (result of `jax.make_jaxpr`)."""
    walker = _GraphBuilder()
    graph, jaxpr = walker.graph, closed_jaxpr.jaxpr
    graph.inputs = tuple(walker.values(jaxpr.invars))
    results = walker.inline(jaxpr, graph.inputs, _Place())
    graph.outputs = tuple(value for value in results if value is not None)
    return graph


class _Place(NamedTuple):
    """Scopes around an equation, and its executions in a step [-]."""

    stack: str = ""
    times: float = 1.0


class _GraphBuilder:
    """Recursive builder of the graph; a value is a number, a literal is None."""

    def __init__(self) -> None:
        self.graph = Graph()
        self._fronts: dict[tuple[int, tuple[int, ...]], int] = {}

    def inline(self, jaxpr: Any, arguments: Sequence[int | None], place: _Place) -> list[int | None]:
        """Append a jaxpr's equations and return the values of its results."""
        scope: dict[Any, int | None] = dict(zip(jaxpr.invars, arguments, strict=True))
        scope.update(zip(jaxpr.constvars, self.values(jaxpr.constvars), strict=True))
        places: dict[Any, _Place] = {}

        def read(variables: Sequence[Any]) -> list[int | None]:
            return [None if hasattr(one, "val") else scope[one] for one in variables]

        for equation in jaxpr.eqns:
            inner = equation.source_info.name_stack
            if inner not in places:
                places[inner] = place._replace(stack="/".join(filter(None, (place.stack, str(inner)))))
            results = self._equation(equation, read(equation.invars), places[inner])
            scope.update(zip(equation.outvars, results, strict=True))
        return read(jaxpr.outvars)

    def values(self, variables: Sequence[Any]) -> list[int]:
        """Assign new value numbers to variables."""
        return [self.graph.new_value(nbytes(variable)) for variable in variables]

    def _equation(self, equation: Equation, inputs: list[int | None], place: _Place) -> Sequence[int | None]:
        name = equation.primitive.name
        control = {"scan": self._scan, "while": self._while, "cond": self._cond}
        if name in control:
            return control[name](equation, inputs, place)
        rule = find_rule(name)
        if not rule.known:
            called = find_inner_jaxprs(equation)
            if len(called) == 1 and len(called[0].invars) == len(inputs):
                return self.inline(called[0], inputs, place)
        if rule.role is Role.VIEW or rule.is_view(equation):
            return inputs if len(equation.outvars) == len(inputs) else [inputs[0]] * len(equation.outvars)
        if name == "dot_general":
            inputs = self._batches_first(equation, inputs, place)
        return self._primitive(equation, rule, inputs, place)

    def _batches_first(self, equation: Equation, inputs: list[int | None], place: _Place) -> list[int | None]:
        """Return the operands of batched products with batch axes first, copied as every framework does.

        Libraries step through a batch of products with one stride. The gradient reads the same copies.
        """
        results = list(inputs)
        for side, axes in enumerate(equation.params["dimension_numbers"][1]):
            value, variable = inputs[side], equation.invars[side]
            shape = get_shape(variable)
            order = (*axes, *(axis for axis in range(len(shape)) if axis not in axes))
            if value is None or keeps_order(shape, order):
                continue
            if (value, order) not in self._fronts:
                like = jax.ShapeDtypeStruct(shape, variable.aval.dtype)
                moved = jax.make_jaxpr(jax.lax.transpose, static_argnums=1)(like, order).eqns[0]
                copies = self._primitive(moved, find_rule("transpose"), [value], place)
                self._fronts[value, order] = copies[0]
            results[side] = self._fronts[value, order]
        return results

    def _primitive(self, equation: Equation, rule: Rule, inputs: list[int | None], place: _Place) -> list[int]:
        outputs = self.values(equation.outvars)
        reads: dict[int, int] = {}
        for value, size in zip(inputs, rule.reads(equation), strict=False):
            if value is not None:
                reads[value] = max(size, reads.get(value, 0))
        variables = (*equation.invars, *equation.outvars)
        sized = equation.outvars if rule.role is Role.POINTWISE else variables
        scope = parse_scope(place.stack)
        self.graph.nodes.append(
            Node(
                name=equation.primitive.name,
                rule=rule,
                equation=equation,
                inputs=tuple(reads),
                outputs=tuple(outputs),
                reads=tuple(reads.values()),
                writes=rule.writes(equation),
                layer=scope.layer,
                phase=scope.phase,
                count=place.times * scope.repeats,
                work=max(map(count_elements, sized), default=0),
                scalar=not any(map(get_shape, variables)),
                call=scope.call,
                composed=scope.composed,
                attention=scope.attention,
            )
        )
        return outputs

    def _border(self, name: str, inputs: Sequence[int | None], outputs: list[int], place: _Place) -> None:
        """Mark the border of a loop: values that cross it are stored in memory; the mark itself is free."""
        read = tuple(dict.fromkeys(value for value in inputs if value is not None))
        free, scope = (0,) * len(read), parse_scope(place.stack)
        mark = Node(name, _LOOP_BORDER, None, read, tuple(outputs), free, scope.layer, scope.phase)
        self.graph.nodes.append(mark)

    def _scan(self, equation: Equation, inputs: list[int | None], place: _Place) -> Sequence[int | None]:
        params = equation.params
        body, length = params["jaxpr"].jaxpr, params["length"]
        consts, carries = params["num_consts"], params["num_carry"]
        results = self.values(equation.outvars)
        state = self.values(body.invars[consts : consts + carries])
        self._border("scan_begin", inputs[consts:], [*results, *state], place)
        scanned = zip(body.invars[consts + carries :], inputs[consts + carries :], strict=True)
        slices = [self.graph.new_value(nbytes(part), parent=whole) for part, whole in scanned]
        first, layer = len(self.graph.nodes), parse_scope(place.stack).recurrent
        inside = place._replace(times=place.times * length)
        ends = self.inline(body, [*inputs[:consts], *state, *slices], inside)
        mark_loop(self.graph.nodes[first:], state=state, ends=ends, length=length, layer=layer)
        self._border("scan_end", [*ends, *inputs[consts:]], [], place)
        return results

    def _while(self, equation: Equation, inputs: list[int | None], place: _Place) -> Sequence[int | None]:
        params = equation.params
        head, shared = params["cond_nconsts"], params["body_nconsts"]
        first = len(self.graph.sizes)
        results, state = self.values(equation.outvars), self.values(equation.outvars)
        self._border("while_begin", inputs[head + shared :], [*results, *state], place)
        body = params["body_jaxpr"].jaxpr
        ends = self.inline(body, [*inputs[head : head + shared], *state], place)
        self._border("while_end", ends, [], place)
        self._remark("loop of unknown length in {}", place, first, unknown_loop=True)
        return results

    def _cond(self, equation: Equation, inputs: list[int | None], place: _Place) -> Sequence[int | None]:
        first = len(self.graph.sizes)
        results = self.inline(select_most_expensive_branch(equation), inputs[1:], place)
        self._remark("a branch in {} depends on data; its most expensive side is counted", place, first)
        return results

    def _remark(self, text: str, place: _Place, first: int, *, unknown_loop: bool = False) -> None:
        made, where = range(first, len(self.graph.sizes)), parse_scope(place.stack).layer or "the step"
        self.graph.remarks.append(Remark(text.format(where), made, unknown_loop))


def simplify(graph: Graph, *, has_update: bool) -> None:
    """Rewrite a graph, which may have a backward pass and an update: phases, dead nodes, folded layout changes."""
    backward = [index for index, node in enumerate(graph.nodes) if node.phase == "backward"] or [len(graph.nodes)]
    for index, node in enumerate(graph.nodes):  # outside of layers, by the position relative to the backward pass
        if not has_update or (node.phase is None and index < backward[0]):
            node.phase = "forward"
        elif node.phase is None:
            node.phase = "backward" if index <= backward[-1] else "update"
    wanted, kept = set(graph.outputs), []
    for node in reversed(graph.nodes):  # that reach an output, and marks without results
        if not node.outputs or not wanted.isdisjoint(node.outputs):
            wanted.update(node.inputs)
            kept.append(node)
    graph.nodes = kept[::-1]
    producers = graph.producers()
    for node in graph.nodes:
        if node.name == "conv_general_dilated" and len(node.inputs) == 2:
            node.kernel_reversed = _is_reversed(graph, node.inputs[1], producers)
    _fold_layouts(graph)
    made = {value for node in graph.nodes for value in node.outputs}
    # The update's own branches, after a gradient that overflows and in metrics, are taken in nearly every step.
    early = made.difference(*(node.outputs for node in graph.nodes if node.phase == "update"))
    graph.remarks = [
        one for one in graph.remarks if not (made if one.unknown_loop else early).isdisjoint(one.values)
    ]


def _is_reversed(graph: Graph, value: int, producers: dict[int, int]) -> bool:
    """Return whether a kernel is that of an input gradient, which is reversed; double reversals cancel."""
    axes: set[int] = set()
    while (index := producers.get(value)) is not None and graph.nodes[index].name in SETS["same_kernel"]:
        node = graph.nodes[index]
        if node.name == "rev":
            axes ^= set(node.equation.params["dimensions"])
        value = node.inputs[0]
    return bool(axes)


def _fold_layouts(graph: Graph) -> None:
    """Remove transpositions and reversals that contractions perform on reading or writing; batched ones do not."""
    names: dict[int, int] = {}  # of results of layout changes that are folded, by their operand
    users, producers, outputs = graph.users(), graph.producers(), set(graph.outputs)
    layouts = [node for node in graph.nodes if node.name in SETS["layouts"] and node.inputs]
    for node in reversed(layouts):  # only contractions read it
        value = node.outputs[0]
        readers = [graph.nodes[user] for user in users[value]]
        if value not in outputs and all(_takes_layout(one, node) or one.outputs[0] in names for one in readers):
            names[value] = node.inputs[0]
    later: dict[int, int] = {}
    for node in layouts:  # it is the only reader of a contraction's result
        value = node.inputs[0]
        index = producers.get(value)
        takes = value in later or (index is not None and _takes_layout(graph.nodes[index], node))
        if takes and len(users[value]) == 1:
            later[node.outputs[0]] = value
    names |= later

    def final(value: int) -> int:
        while value in names:
            value = names[value]
        return value

    graph.nodes = [node for node in graph.nodes if not names.keys() & node.outputs]
    for node in graph.nodes:
        node.inputs = tuple(map(final, node.inputs))
    graph.outputs = tuple(map(final, graph.outputs))


def _takes_layout(contraction: Node, layout: Node) -> bool:
    """Return whether a product takes an array in any order of its axes: a convolution, or one of matrices."""
    is_matrix = layout.name == "transpose" and len(get_shape(layout.equation.outvars[0])) == 2
    return contraction.name == "conv_general_dilated" or (contraction.role is Role.CONTRACTION and is_matrix)
