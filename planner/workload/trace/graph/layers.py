"""Fusion by layer: each layer call is one kernel, and only values that cross its border move; fused attention.

Consecutive primitives of one layer and phase form one kernel, as in hand-written kernels for batch normalization,
activations or softmax; so does the update of one variable. Contractions, lookups, pooling, sorting and random
numbers are separate kernels. Between the products of a layer with several (attention), each call of `keras.ops`,
and each operator, is one. Values used again only by the same layer's backward pass are recomputed from the layer's
inputs where they can be, as in such kernels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...model import AttentionCall
from ...ops import BACKWARD_PRODUCTS, FORWARD_PRODUCTS, OpKind, Phase
from ..rules import FUSIBLE, SETS, Product, Role, build_product, describe_dot
from .graph import Graph, Node, combine_bits, spread_bits

_WORD_BYTES = 4  # a mask is recomputed from its operands, so it counts as float32
_EARLY, _LATE, _BOTH = 1, 2, 3


@dataclass(slots=True)
class LayerKernel:
    """Kernel of one layer call and phase."""

    first: int  # index of its first node
    reads: dict[int, int] = field(default_factory=dict)  # from each value in one pass [bytes]
    stages: dict[int, int] = field(default_factory=dict)  # when: bit 0, before reductions finish; bit 1, after
    bytes_written: int = 0
    is_softmax: bool = False  # whether it sums over what it has found the largest values of

    @property
    def bytes_read(self) -> int:
        """Bytes read, with those read twice [bytes]."""
        return sum(self.reads.values()) + self.bytes_reread

    @property
    def bytes_reread(self) -> int:
        """Size of the operands of a reduction that are combined with its result, and so read twice [bytes]."""
        return sum(size for value, size in self.reads.items() if self.stages[value] == _BOTH)


class LayerKernels(NamedTuple):
    """Kernels, and the kernel number of each node."""

    kernels: list[LayerKernel]
    kernel_of: list[int]


def group_layers(graph: Graph) -> LayerKernels:
    """Group the step into one kernel per layer call and phase."""
    calls = find_calls_between_products(graph)
    keys: list[tuple[object, ...]] = []
    run = 0
    previous: tuple[object, ...] | None = None
    updates = _find_updated_variables(graph)
    for index, node in enumerate(graph.nodes):
        if node.role not in FUSIBLE:
            keys.append((index,))
            previous = None if node.role is Role.CONTRACTION else previous
        elif index in updates:
            keys.append(("update", updates[index]))
        else:
            place = (node.layer, node.phase, node.count, calls.get(index))
            run += place != previous
            previous = place
            keys.append((*place, run))
    numbers: dict[tuple[object, ...], int] = {}  # in the order of their first nodes
    kernel_of = [numbers.setdefault(key, len(numbers)) for key in keys]
    firsts = {number: index for index, number in reversed([*enumerate(kernel_of)])}
    kernels = [LayerKernel(firsts[number]) for number in range(len(numbers))]
    _BorderTraffic(graph, kernels, kernel_of, calls).count()
    return LayerKernels(kernels, kernel_of)


def _find_updated_variables(graph: Graph) -> dict[int, int]:
    """Return the updated variable of each node of the update, by connection; of scalar work, the next one."""
    every = {i: node for i, node in enumerate(graph.nodes) if node.phase == "update" and node.role in FUSIBLE}
    updates = {index: node for index, node in every.items() if not node.scalar}
    roots = {index: index for index in updates}

    def find(index: int) -> int:
        while roots[index] != index:
            roots[index] = roots[roots[index]]
            index = roots[index]
        return index

    first = {value: index for index, node in updates.items() for value in node.outputs}  # that has a value
    for index, node in updates.items():
        for value in node.inputs:
            other = first.setdefault(value, index) if graph.sizes[value] > 8 else first.get(value)
            if other is not None and graph.nodes[other].role is not Role.REDUCE:
                roots[find(index)] = find(other)
    following = -1
    components: dict[int, int] = {}
    for index in reversed(every):
        following = find(index) if index in updates else following
        components[index] = following
    return components


class _BorderTraffic:
    """Counter of bytes that cross kernel borders."""

    def __init__(
        self, graph: Graph, kernels: list[LayerKernel], kernel_of: list[int], calls: Mapping[int, int]
    ) -> None:
        self.graph, self.calls = graph, calls
        self.kernels, self.kernel_of = kernels, kernel_of
        made = self.producers = graph.producers()
        self.users, self.outputs = graph.users(), set(graph.outputs)
        self._inner = [  # of each node, the inputs that its own kernel makes, by node
            {value: made[value] for value in node.inputs if value in made and kernel_of[made[value]] == own}
            for node, own in zip(graph.nodes, kernel_of, strict=True)
        ]
        self._operands: dict[int, dict[int, int] | None] = {}
        self._written: set[int] = set()

    def count(self) -> None:
        """Compute every kernel's reads and writes."""
        stages: list[int] = []  # of each node's reads
        roles = [node.role for node in self.graph.nodes]
        for inner in self._inner:
            late = any(roles[maker] is Role.REDUCE or stages[maker] & _LATE for maker in inner.values())
            stages.append(_LATE if late else _EARLY)
        for index, inner in reversed([*enumerate(self._inner)]):  # pointwise work before a reduction is repeated
            for maker in inner.values():
                stages[maker] |= stages[index] if roles[maker] is Role.POINTWISE else 0
        after_largest: set[int] = set()  # nodes that depend on the largest values of their kernel's own operands
        for index, node in enumerate(self.graph.nodes):
            kernel = self.kernels[self.kernel_of[index]]
            makers = self._inner[index].values()
            if any(one in after_largest or self.graph.nodes[one].name == "reduce_max" for one in makers):
                after_largest.add(index)
                kernel.is_softmax |= node.name == "reduce_sum"
            for value, size in zip(node.inputs, node.reads, strict=True):
                if value in self._inner[index]:
                    continue
                operands = self._recomputed(value)
                for operand, part in ({value: size} if operands is None else operands).items():
                    kernel.reads[operand] = max(part, kernel.reads.get(operand, 0))
                    kernel.stages[operand] = stages[index] | kernel.stages.get(operand, 0)
                    self._write(operand)
        for value in self.outputs:
            self._write(value)

    def _write(self, value: int) -> None:
        """Count a value as written by its producer, once."""
        producer = self.producers.get(value)
        if producer is not None and value not in self._written:
            self._written.add(value)
            node = self.graph.nodes[producer]
            share = node.writes if len(node.outputs) == 1 else self.graph.sizes[value]
            self.kernels[self.kernel_of[producer]].bytes_written += share

    def _recomputed(self, value: int) -> dict[int, int] | None:
        """Return the operands that a value is recomputed from; None if it is stored."""
        if value not in self._operands:
            self._operands[value] = None
            producer = self.producers.get(value)
            if producer is not None and self._may_recompute(value, producer):
                self._operands[value] = self._affordable(value, producer)
        return self._operands[value]

    def _affordable(self, value: int, producer: int) -> dict[int, int] | None:
        node = self.graph.nodes[producer]
        operands: dict[int, int] = {}
        for operand, size in zip(node.inputs, node.reads, strict=True):
            maker, deeper = self.producers.get(operand), None
            if maker is None or self.kernel_of[maker] != self.kernel_of[producer]:
                deeper = self._recomputed(operand)
            elif self.graph.nodes[maker].role is Role.POINTWISE and operand not in self.outputs:
                deeper = self._affordable(operand, maker)  # inside its kernel, to the border or a reduction
            operands.update({operand: size} if deeper is None else deeper)
        affordable = 2 * max(self.graph.sizes[value], _WORD_BYTES * node.work)
        return operands if sum(operands.values()) <= affordable else None

    def _may_recompute(self, value: int, producer: int) -> bool:
        """Return whether what reads a value may compute it: only the backward pass of its layer or call."""
        node = self.graph.nodes[producer]
        if node.role is not Role.POINTWISE or value in self.outputs:
            return False
        own = self.kernel_of[producer]
        nodes = [self.graph.nodes[user] for user in self.users[value] if self.kernel_of[user] != own]
        if not all(one.role in FUSIBLE and one.count <= node.count for one in nodes):
            return False
        if not node.inputs or node.work == 0 or node.name == "broadcast_in_dim":
            return True
        call = self.calls.get(producer)
        if call is not None and any(one.phase == node.phase or one.call != call for one in nodes):
            return False
        return all(one.layer == node.layer and one.phase == "backward" for one in nodes)


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
    """Return replacements of the nodes of a call, by index; None if they are not two products and gradients."""
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
        span = range(products[0], products[-1] + 1)
        inside = [i for i in span if graph.nodes[i].phase == phase and f"{owners[i]}/".startswith(f"{owner}/")]
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
