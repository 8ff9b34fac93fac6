"""Fusion by XLA: values stored in memory, kernels that read and write them, and rows that stay on the chip."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from math import prod

from ..rules import FUSIBLE, Role
from .graph import Graph, Node

# XLA: xla/service/gpu/transforms/horizontal_loop_fusion.cc, kShapeThreshold and kMaxFusionBatchSize.
_HORIZONTAL_ELEMENTS = 128 * 2048
_HORIZONTAL_BATCH = 32
_MAX_OPERANDS = 24  # limit for a recomputed value; XLA's limit is 96 for a whole fusion


@dataclass(slots=True)
class FusedKernel:
    """A kernel of the fused step."""

    root: int  # index of its first root node
    last: int  # of its last one
    reads: dict[int, int] = field(default_factory=dict)  # from each value in memory [bytes]
    work: int = 0  # number of elements processed [-]
    ready: int = 0  # length of the dependency chain before it [-]
    writes: int = 0  # [bytes]
    results: set[int] = field(default_factory=set)  # elementwise results that it writes
    terminal: bool = True  # whether its results are not read within the step


@dataclass(slots=True)
class Fusion:
    """Kernels of the fused step in order of their first root, the values stored in memory, and launches."""

    kernels: list[FusedKernel]
    stored: set[int]
    kernel_of: list[int] = field(default_factory=list)  # kernel number of each node; -1 for none
    groups: list[int] = field(default_factory=list)  # launch number of each kernel
    shared: set[int] = field(default_factory=set)  # kernels with all their executions in one horizontal launch


def fuse(graph: Graph, *, kept: Set[str] = frozenset(), into_products: bool = False) -> Fusion:
    """Return the kernels that XLA would build; small ones whose results the step does not read run in batches.

    Results of the primitives in `kept` are stored rather than recomputed if used in two phases of the step.
    `into_products`: whether a product computes pointwise operands itself, as on a TPU.
    """
    fusion = _GrowingFusion(graph, kept, into_products=into_products)
    for index, node in enumerate(graph.nodes):
        fusion.add(index, node)
    kernel_of = fusion.kernel_of
    for index, node in reversed([*enumerate(graph.nodes)]):
        readers = fusion.users[node.outputs[0]] if kernel_of[index] == -1 and node.outputs else []
        if readers:
            kernel_of[index] = kernel_of[readers[0]]
    waiting, started = 0.0, -1
    for number, kernel in enumerate(fusion.kernels):
        if not kernel.terminal or not kernel.results or kernel.work > _HORIZONTAL_ELEMENTS:
            fusion.groups.append(number)
            continue
        if started < 0 or waiting >= _HORIZONTAL_BATCH:
            started, waiting = number, 0.0
        waiting += graph.nodes[kernel.root].count
        fusion.groups.append(started)
        fusion.shared.add(number)
    return fusion


class _GrowingFusion(Fusion):
    def __init__(self, graph: Graph, kept: Set[str], *, into_products: bool) -> None:
        super().__init__([], set(), [-1] * len(graph.nodes))
        self.graph = graph
        takes_in = (*FUSIBLE, Role.CONTRACTION) if into_products else FUSIBLE
        self._takes_in = [node.role in takes_in for node in graph.nodes]
        self._counts = [node.count for node in graph.nodes]
        self.kept = kept
        self.users = graph.users()
        self.outputs = set(graph.outputs)
        self._operands: dict[int, dict[int, int]] = {}  # operands of a recomputed value
        self._ready: dict[int, int] = {}  # dependency chain length of a stored value
        self._maker: dict[int, int] = {}  # kernel that writes a stored pointwise value
        self._readers: dict[int, list[int]] = {}  # kernels that read a stored value
        self._scalars: dict[str, int] = {}

    def add(self, index: int, node: Node) -> None:
        """Place a node: inside its consumers, in an existing kernel, or in a new one."""
        reads = self._reads(node)
        if node.role is Role.POINTWISE and self._recomputes(node, reads):
            for value in node.outputs:
                size = self.graph.sizes[value]  # of a split, each result reads its share
                parts = {v: min(part, size) for v, part in reads.items()} if len(node.outputs) > 1 else reads
                self._operands[value] = parts
            return
        ready = max((self._ready.get(value, 0) for value in reads), default=0)
        number = None
        if node.role in FUSIBLE and node.work > 1:
            number = self._joinable(node, reads, ready)
        elif node.role in FUSIBLE and node.count == 1:
            number = self._scalars.get(str(node.phase))
        if number is None:
            number = len(self.kernels)
            self.kernels.append(FusedKernel(index, index, work=node.work, ready=ready))
            if node.work <= 1 and node.role in FUSIBLE:
                self._scalars[str(node.phase)] = number
        kernel = self.kernels[number]
        self.kernel_of[index] = number
        for value, size in reads.items():
            if self._maker.get(value) != number:
                kernel.reads[value] = max(size, kernel.reads.get(value, 0))
                self._readers.setdefault(value, []).append(number)
        kernel.writes += node.writes
        kernel.last = index
        self.stored.update(node.outputs)
        self._ready.update(dict.fromkeys(node.outputs, kernel.ready + 1))
        self._maker.update(dict.fromkeys(node.outputs, number))
        kernel.terminal &= not any(map(self.users.__getitem__, node.outputs))
        if node.role is Role.POINTWISE:
            kernel.results.update(node.outputs)

    def _reads(self, node: Node) -> dict[int, int]:
        """Return the bytes read from memory by a node, with recomputed values replaced by their operands."""
        reads: dict[int, int] = {}
        for value, size in zip(node.inputs, node.reads, strict=True):
            operands = self._operands.get(value)
            if operands is not None and len(node.inputs) == 1 and size >= self.graph.sizes[value]:
                return operands
            if operands is None:
                reads[value] = max(size, reads.get(value, 0))
                continue
            whole = self.graph.sizes[value]
            for operand, part in operands.items():
                reads[operand] = max(part if size >= whole else min(part, size), reads.get(operand, 0))
        return reads

    def _recomputes(self, node: Node, reads: dict[int, int]) -> bool:
        users = [user for value in node.outputs for user in self.users[value]]
        if not (users and self.outputs.isdisjoint(node.outputs) and all(map(self._takes_in.__getitem__, users))):
            return False
        if node.name in self.kept and node.work > 1 and len({self.graph.nodes[u].phase for u in users}) > 1:
            return False
        if max(map(self._counts.__getitem__, users)) > node.count:
            return not reads  # stays outside the loop
        if len(node.outputs) > 1:
            return True
        stored, again = self.graph.sizes[node.outputs[0]], sum(reads.values())
        return len(reads) <= _MAX_OPERANDS and (
            len(users) == 1 or len(users) * again <= again + (1 + len(users)) * stored
        )

    def _joinable(self, node: Node, reads: dict[int, int], ready: int) -> int | None:
        """Return a kernel over the same elements that shares or produces a large operand."""
        for value, size in sorted(reads.items(), key=lambda item: -item[1])[:3]:
            if size < node.work:  # less than a byte per element: a small side operand
                break
            maker = self._maker.get(value)
            if maker is not None and value in self.kernels[maker].results:
                others = max((self._ready.get(v, 0) for v in reads if self._maker.get(v) != maker), default=0)
                read = [v for v in reads if self._maker.get(v) == maker]  # its sums are not ready while it runs
                if self._fits(node, maker, others) and self.kernels[maker].results.issuperset(read):
                    return maker
            for reader in reversed(self._readers.get(value, ())):
                if self._fits(node, reader, ready):
                    return reader
        return None

    def _fits(self, node: Node, number: int, ready: int) -> bool:
        kernel, root = self.kernels[number], self.graph.nodes[self.kernels[number].root]
        alike = kernel.work == node.work and root.count == node.count and root.role in FUSIBLE
        return alike and ready <= kernel.ready


LONGEST_ROW = 16384  # [elements]
_HALF_BYTES = 2
_COMPOSED = "tensorflow"  # of `Node.composed`: layer normalization among others


def find_row_kernels(graph: Graph, fusion: Fusion) -> dict[int, tuple[int, int]]:
    """Return, by number, the first kernel of rows that one of XLA joins, and what it need not read [-, bytes].

    It joins one over the same elements if it reads a row reduction of it, and a whole operand that that one read.
    """

    def continues(first: int, nodes: list[Node]) -> bool:
        """Return whether nodes continue a kernel of rows: over its elements, and in the same pass."""
        root = graph.nodes[fusion.kernels[first].root]
        normalizes = any(node.composed == _COMPOSED and node.phase == "forward" for node in nodes)
        alike = all((node.phase, node.count) == (root.phase, root.count) for node in nodes if not node.scalar)
        return alike and not normalizes and max(node.work for node in nodes) == fusion.kernels[first].work

    trains = any(node.phase == "backward" for node in graph.nodes)
    members: dict[int, list[Node]] = {}
    for node, number in zip(graph.nodes, fusion.kernel_of, strict=True):
        if number >= 0:
            members.setdefault(number, []).append(node)
    first_of: dict[int, int] = {}  # first kernel of rows, by result of a reduction of them
    operands: dict[int, set[int]] = {}  # read by the kernels of rows, by the first of them
    found: dict[int, tuple[int, int]] = {}
    for number, kernel in enumerate(fusion.kernels):
        nodes = members.get(number, [])
        whole = {value for value, size in kernel.reads.items() if size >= kernel.work}
        reduced = {value for node in nodes if _reduces_rows(node) for value in node.outputs}
        started = [first_of[value] for value in kernel.reads if value in first_of]
        first = next((one for one in started if continues(one, nodes)), number)
        shared = whole & operands.get(first, set())
        half = all(graph.sizes[value] <= _HALF_BYTES * kernel.work for value in shared)
        if shared and not (half and trains and not reduced):
            found[number] = first, sum(kernel.reads[value] for value in shared)
        elif not shared:
            first = number
        operands.setdefault(first, set()).update(whole)
        first_of.update(dict.fromkeys(reduced, first))
    return found


def _reduces_rows(node: Node) -> bool:
    """Return whether a node reduces the last axes of an array to rows that fit on the chip."""
    if not node.name.startswith("reduce_") or "axes" not in node.equation.params:
        return False
    axes, shape = sorted(node.equation.params["axes"]), node.equation.invars[0].aval.shape
    last = list(range(len(shape) - len(axes), len(shape)))
    return 0 < len(axes) < len(shape) and axes == last and prod(shape[axis] for axis in axes) <= LONGEST_ROW
