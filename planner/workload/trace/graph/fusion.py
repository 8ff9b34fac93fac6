"""Fusion by XLA: kernels, the values that they store and their peak memory, and rows that stay on the chip."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field, replace
from math import prod

from ...ops import OpKind
from ..rules import FUSIBLE, SETS, Role
from .graph import Graph, Node
from .layers import LayerKernels

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
        return len(reads) <= _MAX_OPERANDS and len(users) * again <= again + (1 + len(users)) * stored

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


def find_row_kernels(graph: Graph, fusion: Fusion) -> dict[int, tuple[int, int, bool]]:
    """Return, by number, the first kernel of rows that one joins, the bytes spared, and whether for a norm.

    It joins one over the same elements if it reads a row reduction of it, and a whole operand that that one read.
    """

    def continues(first: int, nodes: list[Node]) -> bool:
        """Return whether nodes continue a kernel of rows: over its elements, and in the same pass."""
        root = graph.nodes[fusion.kernels[first].root]
        alike = all((node.phase, node.count) == (root.phase, root.count) for node in nodes if not node.scalar)
        return alike and max(node.work for node in nodes) == fusion.kernels[first].work

    trains = any(node.phase == "backward" for node in graph.nodes)
    members: dict[int, list[Node]] = {}
    for node, number in zip(graph.nodes, fusion.kernel_of, strict=True):
        if number >= 0:
            members.setdefault(number, []).append(node)
    first_of: dict[int, int] = {}  # first kernel of rows, by result of a reduction of them
    operands: dict[int, set[int]] = {}  # read by the kernels of rows, by the first of them
    found: dict[int, tuple[int, int, bool]] = {}
    for number, kernel in enumerate(fusion.kernels):
        nodes = members.get(number, [])
        whole = {value for value, size in kernel.reads.items() if size >= kernel.work}
        reduced = {value for node in nodes if _reduces_rows(node) for value in node.outputs}
        started = [first_of[value] for value in kernel.reads if value in first_of]
        first = next((one for one in started if continues(one, nodes)), number)
        shared = whole & operands.get(first, set())
        half = all(graph.sizes[value] <= _HALF_BYTES * kernel.work for value in shared)
        if shared and not (half and trains and not reduced):
            of_norm = any(node.composed == _COMPOSED and node.phase == "forward" for node in nodes)
            found[number] = first, sum(kernel.reads[value] for value in shared), of_norm
        elif not shared:
            first = number
        operands.setdefault(first, set()).update(whole)
        first_of.update(dict.fromkeys(reduced, first))
    return found


def _reduces_rows(node: Node) -> bool:
    """Return whether a node reduces the last axes of an array to rows that fit on the chip."""
    length, is_row = _measure_reduction(node)
    return is_row and 0 < length <= LONGEST_ROW


def count_column_rows(node: Node) -> int:
    """Return the rows that a node sums over other axes than the last [-]; 0 for other nodes."""
    length, is_row = _measure_reduction(node)
    return 0 if is_row else length


def _measure_reduction(node: Node) -> tuple[int, bool]:
    """Return the length of a reduction [elements], 0 for other nodes, and whether it is over the last axes."""
    if not node.name.startswith("reduce_") or "axes" not in node.equation.params:
        return 0, False
    axes, shape = sorted(node.equation.params["axes"]), node.equation.invars[0].aval.shape
    last = list(range(len(shape) - len(axes), len(shape)))
    return (prod(shape[axis] for axis in axes) if len(axes) < len(shape) else 0), axes == last


# The gradient of max pooling, as XLA expands it: a copy of its operand's layout, and four index arrays of the
# pooled size (buffer assignments of InceptionV3 and of a small CNN).
POOL_GRADIENT, POOL_INDICES = "select_and_scatter", 4
LONGEST_CHAIN = 16  # operations from random numbers to a comparison with the rate [-]
# Fields of `Memory` with a peak: with fusible values recomputed wherever that moves fewer bytes; as compiled by
# XLA; kernel by kernel; compiled, with all but matrix products recomputed in the backward pass; as for a TPU.
PEAKS = (
    "activation_bytes", "compiled_activation_bytes", "eager_activation_bytes", "recomputed_activation_bytes",
    "tpu_activation_bytes",
)  # fmt: skip


def compute_peaks(graph: Graph, layers: LayerKernels, fusion: Fusion, *, donated: bool) -> dict[str, int]:
    """Return the peaks of a step's live intermediate values, by the field of `Memory` [bytes].

    On a TPU, a product computes pointwise operands itself, and converts its result before it writes it where all
    readers would (fusions of libtpu 0.0.42): attention that is not fused keeps its scores, not the probabilities.
    `donated`: whether outputs replace inputs in place (a training step).
    """
    users, wide, narrow = graph.users(), list(graph.sizes), list(graph.sizes)
    for node in graph.nodes:
        for position, value in enumerate(node.outputs):
            widens = node.name in SETS["kept_in_float32"]
            if widens and str(node.equation.outvars[position].aval.dtype) == "bfloat16":
                wide[value] *= 2
            readers = [graph.nodes[user] for user in users[value]] if node.role is Role.CONTRACTION else []
            if readers and all(reader.name == "convert_element_type" for reader in readers):
                narrow[value] = min(narrow[value], max(graph.sizes[one.outputs[0]] for one in readers))
    last = {number: index for index, number in enumerate(layers.kernel_of)}
    masks = {**_find_rectified(graph), **_find_dropout_masks(graph)}
    kernels = []  # by layer call
    for number, one in enumerate(layers.kernels):
        root = graph.nodes[one.first]
        backward = root.phase == "backward" and root.role in FUSIBLE
        reads = {masks.get(value, value) if backward else value: size for value, size in one.reads.items()}
        kernels.append(FusedKernel(one.first, last[number], reads))
    by_layer = Fusion(kernels, {value for kernel in kernels for value in kernel.reads} | set(graph.outputs))
    widened, narrowed = replace(graph, sizes=wide), replace(graph, sizes=narrow)
    compiled = fuse(graph, kept=SETS["kept_by_xla"])
    on_tpu = fuse(narrowed, kept=SETS["kept_by_xla"], into_products=True)
    peaks = (
        compute_peak_bytes(graph, fusion, donated=donated),
        compute_peak_bytes(widened, compiled, donated=donated, workspaces=True),
        compute_peak_bytes(graph, by_layer, donated=donated),
        compute_peak_bytes(widened, compiled, donated=donated, workspaces=True, recompute=donated),
        compute_peak_bytes(narrowed, on_tpu, donated=donated, workspaces=True),
    )
    return dict(zip(PEAKS, peaks, strict=True))


def compute_peak_bytes(
    graph: Graph, fusion: Fusion, *, donated: bool, workspaces: bool = False, recompute: bool = False
) -> int:
    """Return the peak of simultaneously live values in program order [bytes].

    A value that a kernel stores lives until the last one that reads it, which may overwrite it if it is pointwise.
    Variables and the batch are no such values, nor are gradients that wait for the update. `workspaces`: whether
    kernels need further memory; `recompute`: whether all but matrix products is recomputed in the backward pass.
    """
    ends, skipped = dict[int, int](), set[int]()
    for kernel in fusion.kernels:
        for value in kernel.reads:
            whole = graph.parents[value]
            ends[whole] = max(ends.get(whole, 0), kernel.last)
    if donated:  # the outputs, and what the update reads of the backward pass, which is counted as gradients
        made = {value for node in graph.nodes if node.phase == "backward" for value in node.outputs}
        updates = [kernel for kernel in fusion.kernels if graph.nodes[kernel.root].phase == "update"]
        skipped |= set(graph.outputs) | made & fusion.stored & {value for one in updates for value in one.reads}
    else:
        ends.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
    again = _end_recomputed(graph, fusion, ends) if recompute else 0
    counted = (ends.keys() & fusion.stored) - skipped
    return again + max(_walk(graph, ends, counted, workspaces=workspaces), default=0)


def _end_recomputed(graph: Graph, fusion: Fusion, ends: dict[int, int]) -> int:
    """End recomputed values with the forward pass; return the memory for one of them at a time."""
    largest = 0
    forward: dict[int, int] = {}
    for kernel in fusion.kernels:
        if graph.nodes[kernel.root].phase == "forward":
            for value in kernel.reads:
                forward[value] = max(forward.get(value, 0), kernel.last)
    for node in graph.nodes:
        if node.phase != "forward" or node.role is Role.CONTRACTION:
            continue
        for value in node.outputs:
            if value in ends and ends[value] > forward.get(value, len(graph.nodes)):
                ends[value] = forward[value]
                largest = max(largest, graph.sizes[value])
    return largest


def _find_rectified(graph: Graph) -> dict[int, int]:
    """Return the results of rectifiers by their operands (before and after a bias), which frameworks overwrite."""
    producers, found = graph.producers(), {}
    for node in graph.nodes:
        if node.name != "max" or len(node.inputs) != 1 or node.phase != "forward" or node.scalar:
            continue
        value, result = node.inputs[0], node.outputs[0]
        found[value] = result
        maker = producers.get(value)
        if maker is not None and graph.nodes[maker].name == "add" and graph.nodes[maker].layer == node.layer:
            found[max(graph.nodes[maker].inputs, key=lambda operand: graph.sizes[operand])] = result
    return found


def _find_dropout_masks(graph: Graph) -> dict[int, int]:
    """Return the masks of dropout, one byte an element, by the random numbers that they are made of.

    Frameworks keep the mask for the backward pass: PyTorch's `native_dropout` returns it (pytorch/pytorch,
    native_functions.yaml), TensorFlow's `tf.nn.dropout` selects by it.
    """
    users, found = graph.users(), {}
    for node in graph.nodes:
        if node.rule.kind is not OpKind.RANDOM or node.phase != "forward" or not node.outputs:
            continue
        value = node.outputs[0]
        for _ in range(LONGEST_CHAIN):
            readers = [graph.nodes[user] for user in users[value]]
            following = [one for one in readers if one.phase == "forward" and one.role is Role.POINTWISE]
            if not following:
                break
            value = following[0].outputs[0]
            if following[0].name in SETS["comparisons"]:
                found[node.outputs[0]] = value
                break
    return found


def _walk(graph: Graph, ends: dict[int, int], counted: Set[int], *, workspaces: bool) -> Iterator[int]:
    """Yield the memory of some values while each node runs [bytes]."""
    freed = [0] * (len(graph.nodes) + 1)  # by the last use of values that were made before
    live = 0
    for index, node in enumerate(graph.nodes):
        made = [value for value in node.outputs if value in counted]
        needed = sum(graph.sizes[value] for value in made)
        if node.role is Role.POINTWISE or node.name.startswith("scatter"):  # which write over an operand
            needed -= min(needed, freed[index])
        elif workspaces and node.name.startswith(POOL_GRADIENT):
            needed += graph.sizes[node.outputs[0]] + POOL_INDICES * graph.sizes[node.inputs[0]]
        yield live + needed
        live -= freed[index]
        for value in made:
            if ends[value] > index:
                live += graph.sizes[value]
                freed[ends[value]] += graph.sizes[value]
