"""Fusion by layer: each layer call is one kernel, and only values that cross its border move.

Consecutive primitives of one layer and phase form one kernel, as in hand-written kernels for batch normalization,
activations or softmax; so does the update of one variable. Contractions, lookups, pooling, sorting and random
numbers are separate kernels. Between the products of a layer with several (attention), each call of `keras.ops`,
and each operator, is one. Values used again only by the same layer's backward pass are recomputed from the layer's
inputs where they can be, as in such kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..rules import FUSIBLE, Role
from .attention import find_calls_between_products
from .graph import Graph

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

    @property
    def bytes_of_largest(self) -> int:
        """Bytes of the operands of a softmax, of which the largest values are found first; else 0 [bytes]."""
        return self.bytes_reread if self.is_softmax else 0


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
