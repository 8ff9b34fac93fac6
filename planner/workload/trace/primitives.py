"""What rows launch and move when every primitive is a kernel.

A smaller operand of a sum or product is read where it lies, and single numbers are no kernel. In the update of
variables a sum takes in a product or quotient that nothing else reads, as PyTorch's `add(alpha=)`, `addcmul` and
`addcdiv` do, of which its optimizers are made.
"""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Graph, Node

__all__ = ["Primitives"]

_BROADCAST = "broadcast_in_dim"
_PRODUCTS = ("mul", "div", "square", "integer_pow")
_SUMS = ("add", "sub", "add_any")


class Primitives:
    """Tells launches and bytes of nodes of one step, one kernel each."""

    def __init__(self, graph: Graph) -> None:
        self._taken_in = _products_in_sums(graph)

    def count(self, nodes: Sequence[Node]) -> int:
        """Return how many kernels nodes are in one execution; those of a row are at least one [-]."""
        return sum(self._taken_in.isdisjoint(node.outputs) for node in _kernels(nodes)) or 1

    def bytes_read(self, nodes: Sequence[Node]) -> float:
        """Return what they read [bytes]."""
        reads = (pair for node in _kernels(nodes) for pair in zip(node.inputs, node.reads, strict=True))
        return float(sum(size for value, size in reads if value not in self._taken_in))

    def bytes_written(self, nodes: Sequence[Node]) -> float:
        """Return what they write [bytes]."""
        return float(sum(node.writes for node in _kernels(nodes) if self._taken_in.isdisjoint(node.outputs)))


def _products_in_sums(graph: Graph) -> set[int]:
    """Return the products in the update of variables that are part of a sum, one for each sum."""
    users, outputs = graph.users(), set(graph.outputs)
    found: dict[int, int] = {}
    for node in graph.nodes:
        if node.phase == "update" and node.name in _PRODUCTS and outputs.isdisjoint(node.outputs):
            readers = users[node.outputs[0]]
            if len(readers) == 1 and graph.nodes[readers[0]].name in _SUMS:
                found.setdefault(readers[0], node.outputs[0])
    return set(found.values())


def _kernels(nodes: Sequence[Node]) -> Sequence[Node]:
    """Return the nodes that are kernels; all of them where none is."""
    return [node for node in nodes if node.name != _BROADCAST and not node.scalar] or nodes
