"""Peak memory of the step's intermediate values."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace

from ...ops import OpKind
from ..rules import FUSIBLE, SETS, Role
from .fusion import FusedKernel, Fusion, fuse
from .graph import Graph
from .layers import LayerKernels

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
            if (
                node.name in SETS["kept_in_float32"]
                and str(node.equation.outvars[position].aval.dtype) == "bfloat16"
            ):
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
