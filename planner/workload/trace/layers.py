"""What is left of the step when each layer call is one kernel: only what crosses the layer's border moves.

The primitives of one layer and phase that follow each other are one kernel, as in hand-written kernels for
batch normalization, activations or softmax. Contractions, look-ups, pooling, sorting and random numbers are
kernels of their own. Values that only the same layer's backward pass needs again, and that it can recompute
from what the layer read, are recomputed, as such kernels do. The update of one variable is one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .graph import Graph, Node
from .rule import Role

__all__ = ["LayerKernel", "LayerKernels", "group_layers"]

_FUSIBLE = (Role.POINTWISE, Role.REDUCE)


@dataclass(slots=True)
class LayerKernel:
    """One layer call and phase: what it reads of each value, and writes [bytes]."""

    first: int
    reads: dict[int, int] = field(default_factory=dict)
    writes: int = 0


@dataclass(slots=True)
class LayerKernels:
    """The kernels, and for each node the number of its kernel."""

    kernels: list[LayerKernel]
    kernel_of: list[int]


def group_layers(graph: Graph) -> LayerKernels:
    """Return the step with one kernel a layer call and phase."""
    kernel_of = _number(graph)
    kernels = [LayerKernel(-1) for _ in range(max(kernel_of, default=-1) + 1)]
    for index, number in enumerate(kernel_of):
        if kernels[number].first < 0:
            kernels[number].first = index
    _Borders(graph, kernels, kernel_of).count()
    return LayerKernels(kernels, kernel_of)


def _number(graph: Graph) -> list[int]:
    """Return each node's kernel, numbered in program order."""
    keys: list[tuple[object, ...]] = []
    run = 0
    previous: tuple[object, ...] | None = None
    updates = _update_components(graph)
    for index, node in enumerate(graph.nodes):
        if node.role not in _FUSIBLE:
            keys.append((index,))
            previous = None if node.role is Role.CONTRACTION else previous
        elif index in updates:
            keys.append(("update", updates[index]))
        else:
            place = (node.layer, node.phase, node.count)
            run += place != previous
            previous = place
            keys.append((*place, run))
    numbers: dict[tuple[object, ...], int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _update_components(graph: Graph) -> dict[int, int]:
    """Return, for nodes of the update, the variable that they update: linked by values that are not scalars.

    Scalar work (a bias correction) belongs to the next variable that is updated.
    """
    updates = [
        (index, node)
        for index, node in enumerate(graph.nodes)
        if node.phase == "update" and node.role in _FUSIBLE
    ]
    roots: dict[int, int] = {index: index for index, _ in updates}

    def find(index: int) -> int:
        while roots[index] != index:
            roots[index] = roots[roots[index]]
            index = roots[index]
        return index

    maker = {value: index for index, node in updates if not node.scalar for value in node.outputs}
    first_reader: dict[int, int] = {}
    for index, node in updates:
        for value in node.inputs if not node.scalar else ():
            other = maker.get(value)
            if other is None and graph.sizes[value] > 8:
                other = first_reader.setdefault(value, index)
            if other is not None and not (node.scalar or _is_scalar_result(graph, other)):
                roots[find(index)] = find(other)
    return _with_scalars(updates, find)


def _is_scalar_result(graph: Graph, index: int) -> bool:
    return graph.nodes[index].role is Role.REDUCE


def _with_scalars(updates: list[tuple[int, Node]], find: object) -> dict[int, int]:
    components: dict[int, int] = {}
    following = -1
    for index, node in reversed(updates):
        if not node.scalar:
            following = find(index)  # type: ignore[operator]
        components[index] = following
    return components


class _Borders:
    """Counts what crosses the borders of the kernels."""

    def __init__(self, graph: Graph, kernels: list[LayerKernel], kernel_of: list[int]) -> None:
        self.graph = graph
        self.kernels = kernels
        self.kernel_of = kernel_of
        self.users = graph.users()
        self.producers = graph.producers()
        self.outputs = set(graph.outputs)
        self._stage = [0] * len(graph.nodes)
        self._operands: dict[int, dict[int, int] | None] = {}
        self._written: set[int] = set()

    def count(self) -> None:
        """Fill in every kernel's reads and writes."""
        first_pass: dict[tuple[int, int], int] = {}
        for index, node in enumerate(self.graph.nodes):
            self._stage[index] = self._stage_of(index, node)
            for value, size in zip(node.inputs, node.reads, strict=True):
                if self._inside(value, index):
                    continue
                for operand, part in self._stored_operands(value, size).items():
                    self._read(index, operand, part, first_pass)
        for value in self.outputs:
            self._write(value)

    def _inside(self, value: int, index: int) -> bool:
        producer = self.producers.get(value)
        return producer is not None and self.kernel_of[producer] == self.kernel_of[index]

    def _stage_of(self, index: int, node: Node) -> int:
        """Return 1 for work that needs a reduction of the same kernel to be finished first, else 0."""
        stage = 0
        for value in node.inputs:
            producer = self.producers.get(value)
            if producer is not None and self.kernel_of[producer] == self.kernel_of[index]:
                finished = self.graph.nodes[producer].role is Role.REDUCE
                stage = max(stage, 1 if finished else self._stage[producer])
        return stage

    def _read(self, index: int, value: int, size: int, first_pass: dict[tuple[int, int], int]) -> None:
        """Count an operand once; twice when a reduction over it must finish before it is used again."""
        number = self.kernel_of[index]
        kernel, stage = self.kernels[number], self._stage[index]
        started = first_pass.setdefault((number, value), stage)
        passes = 2 if started != stage or kernel.reads.get(value, 0) > self.graph.sizes[value] else 1
        kernel.reads[value] = max(kernel.reads.get(value, 0), passes * size)
        self._write(value)

    def _write(self, value: int) -> None:
        """Count a value as written by whatever makes it, once."""
        producer = self.producers.get(value)
        if producer is None or value in self._written:
            return
        self._written.add(value)
        node = self.graph.nodes[producer]
        share = node.writes if len(node.outputs) == 1 else self.graph.sizes[value]
        self.kernels[self.kernel_of[producer]].writes += share

    def _stored_operands(self, value: int, size: int) -> dict[int, int]:
        """Return what is read in place of a value: itself, or what it is recomputed from."""
        operands = self._recomputed(value)
        if operands is None:
            return {value: size}
        return {operand: min(part, max(size, part)) for operand, part in operands.items()}

    def _recomputed(self, value: int) -> dict[int, int] | None:
        """Return the operands that a value is recomputed from; None when it lies in memory."""
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
            deeper = self._recomputed_inside(operand, producer)
            operands.update({operand: size} if deeper is None else deeper)
        return operands if sum(operands.values()) <= 2 * self.graph.sizes[value] + 4096 else None

    def _recomputed_inside(self, value: int, reader: int) -> dict[int, int] | None:
        """Return what a value within a kernel is made of; None at its border and at reductions."""
        producer = self.producers.get(value)
        if producer is None or self.kernel_of[producer] != self.kernel_of[reader]:
            return self._recomputed(value)
        if self.graph.nodes[producer].role is not Role.POINTWISE or value in self.outputs:
            return None
        return self._affordable(value, producer)

    def _may_recompute(self, value: int, producer: int) -> bool:
        node = self.graph.nodes[producer]
        if node.role is not Role.POINTWISE or value in self.outputs:
            return False
        readers = [
            self.graph.nodes[user]
            for user in self.users[value]
            if self.kernel_of[user] != self.kernel_of[producer]
        ]
        fusible = all(reader.role in _FUSIBLE and reader.count <= node.count for reader in readers)
        if not node.inputs or node.work == 0 or node.name == "broadcast_in_dim":
            return fusible
        return fusible and all(r.layer == node.layer and r.phase == "backward" for r in readers)
