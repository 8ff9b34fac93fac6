"""Work that no framework does: dead code, and layout changes that a contraction takes in for free."""

from __future__ import annotations

from ..ops import Phase
from .graph import Graph, Node
from .rule import Role, shape_of

__all__ = ["simplify"]

_LAYOUT = ("transpose", "rev")
_SAME_KERNEL = ("transpose", "rev", "convert_element_type")


def simplify(graph: Graph, *, has_update: bool) -> None:
    """Rewrite the graph in place: phases resolved, dead nodes dropped, layout changes folded.

    Args:
        graph: As `flatten` returns it.
        has_update: Whether the step has a backward pass and an update.
    """
    _resolve_phases(graph.nodes, has_update=has_update)
    graph.nodes = _alive(graph)
    _mark_reversed_kernels(graph)
    _fold_layouts(graph)


def _resolve_phases(nodes: list[Node], *, has_update: bool) -> None:
    backward = [index for index, node in enumerate(nodes) if node.phase == "backward"]
    first, last = (backward[0], backward[-1]) if backward else (len(nodes), len(nodes) - 1)
    for index, node in enumerate(nodes):
        if not has_update:
            node.phase = "forward"
        elif node.phase is None:
            node.phase = _phase_by_place(index, first=first, last=last)


def _phase_by_place(index: int, *, first: int, last: int) -> Phase:
    """Outside every layer's scope: before, within or after the backward pass."""
    if index < first:
        return "forward"
    return "backward" if index <= last else "update"


def _alive(graph: Graph) -> list[Node]:
    """Return the nodes whose results reach an output; marks without results stay."""
    wanted = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if not node.outputs or not wanted.isdisjoint(node.outputs):
            wanted.update(node.inputs)
            kept.append(node)
    return kept[::-1]


def _mark_reversed_kernels(graph: Graph) -> None:
    """An input gradient convolves with the reversed kernel; reversing twice is not reversing."""
    producers = graph.producers()
    for node in graph.nodes:
        if node.name != "conv_general_dilated" or len(node.inputs) < 2:
            continue
        value = node.inputs[1]
        while (index := producers.get(value)) is not None and graph.nodes[index].name in _SAME_KERNEL:
            node.kernel_reversed ^= graph.nodes[index].name == "rev"
            value = graph.nodes[index].inputs[0]


def _fold_layouts(graph: Graph) -> None:
    """Drop transpositions and reversals that contractions do while they read or write.

    Convolutions take kernels in any layout; matrix products take either operand, and give the result,
    transposed. Batched products do not: their transpositions move data.
    """
    users, producers = graph.users(), graph.producers()
    kept, outputs = set(range(len(graph.nodes))), set(graph.outputs)
    names: dict[int, int] = {}
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        if node.name not in _LAYOUT or not node.inputs:
            continue
        readers = [graph.nodes[user] for user in users[node.outputs[0]] if user in kept]
        before_contraction = node.outputs[0] not in outputs and all(_takes(r, node) for r in readers)
        if before_contraction or _follows_product(graph, node, users, producers):
            kept.discard(index)
            names[node.outputs[0]] = node.inputs[0]
            for user in users[node.outputs[0]]:
                users[node.inputs[0]].append(user)
    _rename(graph, names)
    graph.nodes = [graph.nodes[index] for index in sorted(kept)]


def _takes(reader: Node, layout: Node) -> bool:
    if reader.role is not Role.CONTRACTION:
        return False
    return reader.name == "conv_general_dilated" or _rank(layout) == 2


def _follows_product(graph: Graph, node: Node, users: list[list[int]], producers: dict[int, int]) -> bool:
    index = producers.get(node.inputs[0])
    if index is None or len(users[node.inputs[0]]) > 1 or _rank(node) != 2 or node.name != "transpose":
        return False
    return graph.nodes[index].name == "dot_general"


def _rank(node: Node) -> int:
    return 0 if node.equation is None else len(shape_of(node.equation.outvars[0]))


def _rename(graph: Graph, names: dict[int, int]) -> None:
    def final(value: int) -> int:
        while value in names:
            value = names[value]
        return value

    for node in graph.nodes:
        if any(value in names for value in node.inputs):
            node.inputs = tuple(map(final, node.inputs))
    graph.outputs = tuple(map(final, graph.outputs))
