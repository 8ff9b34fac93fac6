"""Launches and memory traffic of rows if every primitive is a kernel.

A smaller operand of a sum or product is read in place, and scalars need no kernel. In the update of
variables, a sum includes a product or quotient that has no other reader, as in PyTorch's `add(alpha=)`,
`addcmul` and `addcdiv`, which its optimizers use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .graph import Graph, Node

__all__ = ["PrimitiveCounter"]

_BROADCAST = "broadcast_in_dim"
_PRODUCTS = ("mul", "div", "square", "integer_pow")
_SUMS = ("add", "sub", "add_any")


class LaunchCounts(NamedTuple):
    """Kernel launches [-] and memory traffic [bytes] of one execution of a row."""

    kernels: int
    bytes_read: float
    bytes_written: float


class PrimitiveCounter:
    """Counter of kernel launches with one kernel per primitive."""

    def __init__(self, graph: Graph) -> None:
        self._taken_in = _find_products_in_sums(graph)

    def launched(self, nodes: Sequence[Node]) -> LaunchCounts:
        """Return launches and bytes of a row's nodes, with at least one kernel."""
        kernels = [node for node in nodes if node.name != _BROADCAST and not node.scalar] or nodes
        whole = [node for node in kernels if self._taken_in.isdisjoint(node.outputs)]
        reads = (pair for node in kernels for pair in zip(node.inputs, node.reads, strict=True))
        return LaunchCounts(
            len(whole) or 1,
            float(sum(size for value, size in reads if value not in self._taken_in)),
            float(sum(node.writes for node in whole)),
        )


def _find_products_in_sums(graph: Graph) -> set[int]:
    """Return the products in the update of variables that are part of a sum, one per sum."""
    users, outputs = graph.users(), set(graph.outputs)
    found: dict[int, int] = {}
    for node in graph.nodes:
        if node.phase == "update" and node.name in _PRODUCTS and outputs.isdisjoint(node.outputs):
            readers = users[node.outputs[0]]
            if len(readers) == 1 and graph.nodes[readers[0]].name in _SUMS:
                found.setdefault(readers[0], node.outputs[0])
    return set(found.values())
