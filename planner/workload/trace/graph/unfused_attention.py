"""Operations between the products of one layer, where each `keras.ops` call is a kernel (unfused attention)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ..rules.cost_rule import FUSIBLE, Role
from .graph import Graph, Node

_PREPARATIONS = ("broadcast_in_dim", "convert_element_type")


def find_calls_between_products(graph: Graph) -> dict[int, int]:
    """Return the call of each node between the products of a layer.

    Only nodes on a path from one product to another through the layer and its inner layers are included; a
    layer that is called twice has no such path. An operator is a separate call with a negative number; a
    conversion belongs to the next call. Loops over time are excluded, since libraries run them; so are
    unrolled loops, for which published steps lie between one kernel for all gates and one per call.
    """
    owners = [_find_owner(node) for node in graph.nodes]
    calls: dict[int, int] = {}
    weights = graph.weights()
    for owner, products in _iter_products(graph, owners):
        if _is_unrolled_loop([graph.nodes[index] for index in products], weights):
            continue
        phase = graph.nodes[products[0]].phase
        inside = [
            index
            for index in range(products[0], products[-1] + 1)
            if graph.nodes[index].phase == phase and f"{owners[index]}/".startswith(f"{owner}/")
        ]
        way = _find_path_nodes(graph, inside, set(products))
        own = [i for i in inside if graph.nodes[i].role in FUSIBLE and owners[i] == owner]
        following = 0
        for index in reversed(own if way.intersection(own) else []):
            node = graph.nodes[index]
            operator = index in way and not node.scalar and node.name not in _PREPARATIONS
            following = calls[index] = node.call or (-index if operator else following)
    return calls


def _iter_products(graph: Graph, owners: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Yield each layer with several products in one phase, and these products in program order."""
    found: dict[tuple[str, object], list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if node.role is Role.CONTRACTION and node.loop is None:
            found.setdefault((owners[index], node.phase), []).append(index)
    for (owner, _), products in found.items():
        if len(products) > 1:
            yield owner, products


def _is_unrolled_loop(products: Sequence[Node], weights: Mapping[int, int]) -> bool:
    """Return whether more than two products read the same weight."""
    read = Counter(weight for node in products for weight in {weights.get(value) for value in node.inputs})
    return any(count > 2 for weight, count in read.items() if weight is not None)


def _find_path_nodes(graph: Graph, inside: Sequence[int], products: set[int]) -> set[int]:
    """Return the nodes on a path from one product to another through inner nodes only."""
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


def _find_owner(node: Node) -> str:
    """Return the layer of a node, without the subscripts that `einsum` adds to the path."""
    path, _, last = node.layer.rpartition("/")
    return path if "->" in last else node.layer
