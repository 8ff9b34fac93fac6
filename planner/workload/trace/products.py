"""Between the products of one layer each call of `keras.ops` is a kernel: where that is so, and of which call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from .graph import Graph, Node
from .rule import FUSIBLE, Role

__all__ = ["calls_between_products"]

_PREPARATIONS = ("broadcast_in_dim", "convert_element_type")


def calls_between_products(graph: Graph) -> dict[int, int]:
    """Return, for nodes of a layer between its products, the call that they are a part of.

    Only where a way leads from one product to another, through the layer and the layers inside of it: a layer that
    is called twice has none. An operator is a call of its own, under a number below 0; a conversion belongs to the
    next call. Loops over time are left out: libraries run them; and so are those that are written out, of which
    published steps lie between one kernel for all gates and one for each call.
    """
    owners = [_owner(node) for node in graph.nodes]
    calls: dict[int, int] = {}
    weights = graph.weights()
    for owner, products in _products(graph, owners):
        if _is_written_out_loop([graph.nodes[index] for index in products], weights):
            continue
        phase = graph.nodes[products[0]].phase
        inside = [
            index
            for index in range(products[0], products[-1] + 1)
            if graph.nodes[index].phase == phase and f"{owners[index]}/".startswith(f"{owner}/")
        ]
        way = _way(graph, inside, set(products))
        own = [i for i in inside if graph.nodes[i].role in FUSIBLE and owners[i] == owner]
        following = 0
        for index in reversed(own if way.intersection(own) else []):
            node = graph.nodes[index]
            operator = index in way and not node.scalar and node.name not in _PREPARATIONS
            following = calls[index] = node.call or (-index if operator else following)
    return calls


def _products(graph: Graph, owners: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Yield each layer with the products that it has in one phase, in program order, where it has several."""
    found: dict[tuple[str, object], list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if node.role is Role.CONTRACTION and node.loop is None:
            found.setdefault((owners[index], node.phase), []).append(index)
    for (owner, _), products in found.items():
        if len(products) > 1:
            yield owner, products


def _is_written_out_loop(products: Sequence[Node], weights: Mapping[int, int]) -> bool:
    """Return whether more than two products read one weight."""
    read = Counter(weight for node in products for weight in {weights.get(value) for value in node.inputs})
    return any(count > 2 for weight, count in read.items() if weight is not None)


def _way(graph: Graph, inside: Sequence[int], products: set[int]) -> set[int]:
    """Return the nodes that are made of one product and lead to another, by way of nodes inside alone."""
    made: set[int] = set()
    after = set()
    for index in inside:
        node = graph.nodes[index]
        if index in products or not made.isdisjoint(node.inputs):
            made.update(node.outputs)
            after.add(index)
    read: set[int] = set()
    way = set()
    for index in reversed(inside):
        node = graph.nodes[index]
        if index in products or not read.isdisjoint(node.outputs):
            read.update(node.inputs)
            way |= {index} & after
    return way - products


def _owner(node: Node) -> str:
    """Return the layer of a node; `einsum` adds its subscripts to the path."""
    path, _, last = node.layer.rpartition("/")
    return path if "->" in last else node.layer
