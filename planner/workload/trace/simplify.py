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
    made = {value for node in graph.nodes for value in node.outputs}
    graph.remarks = [remark for remark in graph.remarks if not made.isdisjoint(remark.values)]


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
    """An input gradient convolves with the reversed kernel; an axis reversed twice is not reversed."""
    producers = graph.producers()
    for node in graph.nodes:
        if node.name == "conv_general_dilated" and len(node.inputs) == 2:
            node.kernel_reversed = bool(_reversed_axes(graph, node.inputs[1], producers))


def _reversed_axes(graph: Graph, value: int, producers: dict[int, int]) -> set[int]:
    axes: set[int] = set()
    while (index := producers.get(value)) is not None and graph.nodes[index].name in _SAME_KERNEL:
        node = graph.nodes[index]
        if node.name == "rev" and node.equation is not None:
            axes ^= set(node.equation.params["dimensions"])
        value = node.inputs[0]
    return axes


def _fold_layouts(graph: Graph) -> None:
    """Drop transpositions and reversals that contractions do while they read or write.

    Convolutions take kernels, and give their gradients, in any layout; matrix products take either operand,
    and give the result, transposed. Batched products do not: their transpositions move data.
    """
    names = {**_folded_into_readers(graph), **_folded_into_producers(graph)}

    def final(value: int) -> int:
        while value in names:
            value = names[value]
        return value

    graph.nodes = [node for node in graph.nodes if not names.keys() & node.outputs]
    for node in graph.nodes:
        node.inputs = tuple(map(final, node.inputs))
    graph.outputs = tuple(map(final, graph.outputs))


def _folded_into_readers(graph: Graph) -> dict[int, int]:
    """Return results of layout changes that only contractions read, each with what it is a layout of."""
    users, outputs = graph.users(), set(graph.outputs)
    names: dict[int, int] = {}
    for node in reversed(graph.nodes):
        if not _is_layout(node) or node.outputs[0] in outputs:
            continue
        readers = [graph.nodes[user] for user in users[node.outputs[0]]]
        if all(_takes_any_layout(reader, node) or reader.outputs[0] in names for reader in readers):
            names[node.outputs[0]] = node.inputs[0]
    return names


def _folded_into_producers(graph: Graph) -> dict[int, int]:
    """Return results of layout changes of what only they read of a contraction."""
    users, producers = graph.users(), graph.producers()
    names: dict[int, int] = {}
    for node in graph.nodes:
        if not _is_layout(node) or len(users[node.inputs[0]]) > 1:
            continue
        index = producers.get(node.inputs[0])
        if node.inputs[0] in names or (index is not None and _takes_any_layout(graph.nodes[index], node)):
            names[node.outputs[0]] = node.inputs[0]
    return names


def _is_layout(node: Node) -> bool:
    return node.name in _LAYOUT and bool(node.inputs)


def _takes_any_layout(contraction: Node, layout: Node) -> bool:
    if contraction.role is not Role.CONTRACTION or layout.equation is None:
        return False
    if contraction.name == "conv_general_dilated":
        return True
    return layout.name == "transpose" and len(shape_of(layout.equation.outvars[0])) == 2
