"""How much memory the step's intermediate values take at most."""

from __future__ import annotations

from collections.abc import Set

from .fusion import Fusion
from .graph import Graph
from .rule import Role

__all__ = ["peak_bytes"]


def peak_bytes(graph: Graph, fusion: Fusion, *, donated: bool) -> int:
    """Return the largest sum of values that are live at once, in program order [bytes].

    Values are stored by the kernels of ``fusion``; a value lives from the node that makes it to the last
    kernel that reads it. Variables and the batch are not counted, nor are gradients that wait for the update.
    A kernel of pointwise work may write over an operand that it is the last to read.

    Args:
        graph: The simplified step.
        fusion: Its kernels.
        donated: Whether what the step returns replaces its inputs in place (a training step).
    """
    ends, skipped = _last_uses(graph, fusion), set(graph.inputs)
    if donated:
        skipped |= set(graph.outputs) | _gradients(graph, fusion)
    else:
        ends.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
    return _walk(graph, fusion, ends, skipped)


def _last_uses(graph: Graph, fusion: Fusion) -> dict[int, int]:
    """Return, for each stored value, the index of the last node of the last kernel that reads it."""
    ends: dict[int, int] = {}
    for kernel in fusion.kernels:
        for value in kernel.reads:
            whole = graph.parents[value]
            ends[whole] = max(ends.get(whole, 0), kernel.last)
    return ends


def _gradients(graph: Graph, fusion: Fusion) -> set[int]:
    """Return values of the backward pass that the update reads; they are counted as gradients."""
    made = {
        value
        for node in graph.nodes
        if node.phase == "backward"
        for value in node.outputs
        if value in fusion.stored
    }
    read = {
        value
        for kernel in fusion.kernels
        if graph.nodes[kernel.root].phase == "update"
        for value in kernel.reads
    }
    return made & read


def _walk(graph: Graph, fusion: Fusion, ends: dict[int, int], skipped: Set[int]) -> int:
    expiring: list[list[int]] = [[] for _ in range(len(graph.nodes) + 1)]
    for value, end in ends.items():
        expiring[end].append(value)
    allocated: set[int] = set()
    live = peak = 0
    for index, node in enumerate(graph.nodes):
        made = [v for v in node.outputs if v in fusion.stored and v not in skipped and v in ends]
        size = graph.total_bytes(made)
        freed = graph.total_bytes([value for value in expiring[index] if value in allocated])
        in_place = min(size, freed) if node.role is Role.POINTWISE or node.name.startswith("scatter") else 0
        peak = max(peak, live + size - in_place)
        allocated.update(made)
        live += size - freed - graph.total_bytes([v for v in made if ends[v] <= index])
        allocated.difference_update(expiring[index])
    return peak
