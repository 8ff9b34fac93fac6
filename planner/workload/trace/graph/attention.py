"""Attention in a traced step: fused to one kernel a pass, or unfused, where each `keras.ops` call is a kernel."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...model import AttentionCall
from ...ops import BACKWARD_PRODUCTS, FORWARD_PRODUCTS, OpKind, Phase
from ..rules import FUSIBLE, SETS, Product, Role, build_product, describe_dot
from .graph import Graph, Node, combine_bits, spread_bits

# Side of the blocks of scores of which a causal kernel skips those above the diagonal (Dao, 2023,
# "FlashAttention-2", arXiv:2307.08691, section 3.1).
BLOCK = 128
STATISTIC_BYTES = 4  # the logarithm of each query's sum, kept for the backward pass


def build_attention_product(call: AttentionCall, *, batch: int, backward: bool, repeats: int = 0) -> Product:
    """Describe one pass of fused attention as products over the blocks of queries (backward: of keys).

    The forward pass computes S = Q K^T and S V, 4 T S H FLOP a head; a causal mask leaves the blocks on and below
    the diagonal. `batch`: samples times heads of the queries; `repeats`: forward passes that are recomputed [-].
    """
    blocks = math.ceil(call.keys / BLOCK)
    share = (blocks + 1) / (2 * blocks) if call.causal else 1.0
    products = BACKWARD_PRODUCTS + FORWARD_PRODUCTS * repeats if backward else FORWARD_PRODUCTS
    m, across = (call.keys, call.queries) if backward else (call.queries, call.keys)
    k = max(1, round(products * across * share))
    product = build_product(m=m, n=call.head_size, k=k, batch=batch, variant="dgrad" if backward else "fprop")
    return {**product, "kind": OpKind.ATTENTION}


def fuse_attention(graph: Graph, calls: Mapping[int, AttentionCall]) -> tuple[Graph, tuple[AttentionCall, ...]]:
    """Return a graph with fused attention and the distinct calls; the graph itself where one cannot be fused."""
    members: dict[int, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if node.attention:
            members.setdefault(node.call, []).append(index)
    fused = replace(graph, sizes=list(graph.sizes), parents=list(graph.parents))
    nodes: list[Node | None] = list(graph.nodes)
    for number, indices in members.items():
        call = calls.get(number)
        found = None if call is None else _fuse_call(fused, indices, call)
        if found is None:
            return graph, ()
        for index in indices:
            nodes[index] = found.get(index)
    fused.nodes = [node for node in nodes if node is not None]
    return fused, tuple(dict.fromkeys(calls[number] for number in members))


def _fuse_call(graph: Graph, indices: Sequence[int], call: AttentionCall) -> dict[int, Node] | None:
    """Return what replaces the nodes of a call, by index; None if they are not two products and gradients."""
    passes = [[index for index in indices if graph.nodes[index].phase == one] for one in ("forward", "backward")]
    products, again = ([index for index in one if graph.nodes[index].role is Role.CONTRACTION] for one in passes)
    counts = {graph.nodes[index].count for index in products}
    if (len(products), len(counts)) != (FORWARD_PRODUCTS, 1) or any(graph.nodes[index].loop for index in indices):
        return None
    inputs, outputs = _find_border(graph, passes[0], inner=indices)
    main = graph.nodes[products[0]]
    scores = describe_dot(main.equation, variant="fprop")
    batch = round(scores["flops"] / (2.0 * call.queries * call.keys * call.head_size))
    statistics = graph.new_value(batch * call.queries * STATISTIC_BYTES)
    kept = (*outputs, statistics) if passes[1] else outputs

    def build(phase: Phase, inputs: Mapping[int, int], outputs: Sequence[int], repeats: int = 0) -> Node:
        """Return one kernel with the place of the call's first product."""
        backward = phase == "backward"
        return replace(
            main,
            inputs=tuple(inputs),
            reads=tuple(inputs.values()),
            outputs=tuple(outputs),
            writes=sum(graph.sizes[value] for value in outputs),
            phase=phase,
            product=build_attention_product(call, batch=batch, backward=backward, repeats=repeats),
        )

    found = {passes[0][-1]: build("forward", inputs, kept)}
    if passes[1]:
        read, gradients = _find_border(graph, passes[1], inner=indices)
        sizes = {value: graph.sizes[value] for value in kept}
        repeats = max(0, len(again) - 4) // FORWARD_PRODUCTS
        found[passes[1][-1]] = build("backward", {**inputs, **sizes, **read}, gradients, repeats)
    return found


def _find_border(
    graph: Graph, indices: Sequence[int], *, inner: Sequence[int]
) -> tuple[dict[int, int], tuple[int, ...]]:
    """Return the bytes that a pass reads from outside the call by value, and what is read of it outside."""
    made = {value for index in inner for value in graph.nodes[index].outputs}
    inputs: dict[int, int] = {}
    for index in indices:
        node = graph.nodes[index]
        for value, size in zip(node.inputs, node.reads, strict=True):
            if value not in made:
                inputs[value] = max(size, inputs.get(value, 0))
    users, inside, kept = graph.users(), set(inner), set(graph.outputs)
    results = (value for index in indices for value in graph.nodes[index].outputs)
    outputs = (value for value in results if value in kept or not inside.issuperset(users[value]))
    return inputs, tuple(outputs)


def find_calls_between_products(graph: Graph) -> dict[int, int]:
    """Return the call of each node on a path from one product of a layer to another, through its inner layers.

    An operator is a separate call with a negative number; a conversion belongs to the next call. Loops over time
    are excluded, since libraries run them; so are unrolled ones, whose published steps lie in between.
    """
    parts = [(node.layer, *node.layer.rpartition("/")[::2]) for node in graph.nodes]
    owners = [path if "->" in last else layer for layer, path, last in parts]  # without subscripts of `einsum`
    calls: dict[int, int] = {}
    weights = graph.weights()
    found: dict[tuple[str, Phase | None], list[int]] = {}  # products by layer and phase
    for index, node in enumerate(graph.nodes):
        if node.role is Role.CONTRACTION and node.loop is None:
            found.setdefault((owners[index], node.phase), []).append(index)
    for (owner, phase), products in found.items():
        used = [weight for index in products for weight in {weights.get(one) for one in graph.nodes[index].inputs}]
        unrolled = any(count > 2 for weight, count in Counter(used).items() if weight is not None)
        if len(products) < 2 or unrolled:
            continue
        inside = [
            index
            for index in range(products[0], products[-1] + 1)
            if graph.nodes[index].phase == phase and f"{owners[index]}/".startswith(f"{owner}/")
        ]
        nodes = [graph.nodes[index] for index in inside]
        ends = [graph.nodes[index] for index in products]
        made = spread_bits(nodes, {value: 1 for node in ends for value in node.outputs})
        read = spread_bits(nodes, {value: 1 for node in ends for value in node.inputs}, backward=True)
        on_path = [combine_bits(made, node.inputs) & combine_bits(read, node.outputs) for node in nodes]
        way = {index for index, bit in zip(inside, on_path, strict=True) if bit}.difference(products)
        own = [i for i in inside if graph.nodes[i].role in FUSIBLE and owners[i] == owner]
        following = 0
        for index in reversed(own if way.intersection(own) else []):
            node = graph.nodes[index]
            operator = index in way and not node.scalar and node.name not in SETS["preparations"]
            following = calls[index] = node.call or (-index if operator else following)
    return calls
