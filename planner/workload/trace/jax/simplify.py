"""Removal of work that frameworks skip: dead code, and layout changes that contractions perform for free."""

from __future__ import annotations

from ...ops import Phase
from ..graph.graph import Graph, Node
from ..rules.cost_rule import Role, get_shape

_LAYOUT = ("transpose", "rev")
_SAME_KERNEL = ("transpose", "rev", "convert_element_type")


def simplify(graph: Graph, *, has_update: bool) -> None:
    """Rewrite the graph in place: phases resolved, dead nodes removed, layout changes folded.

    Args:
        graph: Graph from `flatten`.
        has_update: Whether the step has a backward pass and an update.
    """
    _resolve_phases(graph.nodes, has_update=has_update)
    graph.nodes = _select_live_nodes(graph)
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
            node.phase = _infer_phase(index, first=first, last=last)


def _infer_phase(index: int, *, first: int, last: int) -> Phase:
    """Return the phase of a node outside layer scopes, by position relative to the backward pass."""
    if index < first:
        return "forward"
    return "backward" if index <= last else "update"


def _select_live_nodes(graph: Graph) -> list[Node]:
    """Return the nodes whose results reach an output, and marks without results."""
    wanted = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if not node.outputs or not wanted.isdisjoint(node.outputs):
            wanted.update(node.inputs)
            kept.append(node)
    return kept[::-1]


def _mark_reversed_kernels(graph: Graph) -> None:
    """Mark input gradients, which convolve with a reversed kernel; double reversals cancel."""
    producers = graph.producers()
    for node in graph.nodes:
        if node.name == "conv_general_dilated" and len(node.inputs) == 2:
            node.kernel_reversed = bool(_find_reversed_axes(graph, node.inputs[1], producers))


def _find_reversed_axes(graph: Graph, value: int, producers: dict[int, int]) -> set[int]:
    axes: set[int] = set()
    while (index := producers.get(value)) is not None and graph.nodes[index].name in _SAME_KERNEL:
        node = graph.nodes[index]
        if node.name == "rev" and node.equation is not None:
            axes ^= set(node.equation.params["dimensions"])
        value = node.inputs[0]
    return axes


def _fold_layouts(graph: Graph) -> None:
    """Remove transpositions and reversals that contractions perform on reading or writing.

    Convolutions accept kernels and return kernel gradients in any layout; matrix products accept transposed
    operands and return transposed results. Batched products do not: their transpositions move data.
    """
    names = {**_find_folded_into_readers(graph), **_find_folded_into_producers(graph)}

    def final(value: int) -> int:
        while value in names:
            value = names[value]
        return value

    graph.nodes = [node for node in graph.nodes if not names.keys() & node.outputs]
    for node in graph.nodes:
        node.inputs = tuple(map(final, node.inputs))
    graph.outputs = tuple(map(final, graph.outputs))


def _find_folded_into_readers(graph: Graph) -> dict[int, int]:
    """Return results of layout changes that only contractions read, by their operand."""
    users, outputs = graph.users(), set(graph.outputs)
    names: dict[int, int] = {}
    for node in reversed(graph.nodes):
        if not _is_layout(node) or node.outputs[0] in outputs:
            continue
        readers = [graph.nodes[user] for user in users[node.outputs[0]]]
        if all(_takes_any_layout(reader, node) or reader.outputs[0] in names for reader in readers):
            names[node.outputs[0]] = node.inputs[0]
    return names


def _find_folded_into_producers(graph: Graph) -> dict[int, int]:
    """Return results of layout changes that are the only readers of a contraction's result."""
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
    return layout.name == "transpose" and len(get_shape(layout.equation.outvars[0])) == 2
