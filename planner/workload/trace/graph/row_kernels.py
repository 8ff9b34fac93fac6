"""Kernels of XLA that one kernel replaces where rows stay on the chip: softmax, gradients of normalizations.

On NVIDIA's GPUs since Ampere, XLA computes a reduction of rows and the work that combines its result with the same
rows in one Triton kernel (`SoftmaxRewriterTriton` and priority fusion of openxla/xla): each row is read once.
Programs that XLA 0.10 compiled for an A100 show which:

* softmax and its gradient in float32, and softmax in inference: one kernel each;
* softmax in 16-bit training: its largest values and its sums in one kernel; the rest reads the row again;
* gradients of layer normalization in float32; its forward pass keeps three kernels;
* none of these where a row has more than 16,384 elements.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from .fusion import Fusion
from .graph import Graph, Node

LONGEST_ROW = 16384  # [elements]
_HALF_BYTES = 2
_COMPOSED = "tensorflow"  # of `Node.composed`: layer normalization among others


class RowKernel(NamedTuple):
    """Kernel of rows that a kernel of XLA joins.

    Args:
        first: Number of its first kernel.
        bytes_spared: What the joining kernel does not read again [bytes].
    """

    first: int
    bytes_spared: int


def find_row_kernels(graph: Graph, fusion: Fusion) -> dict[int, RowKernel]:
    """Return the kernel of rows that each joining kernel of XLA becomes part of, by its number.

    A kernel joins an earlier one over the same elements if it reads a row reduction of it and a whole operand that
    the earlier one has read.
    """
    trains = any(node.phase == "backward" for node in graph.nodes)
    members: dict[int, list[Node]] = {}
    for node, number in zip(graph.nodes, fusion.kernel_of, strict=True):
        if number >= 0:
            members.setdefault(number, []).append(node)
    first_of: dict[int, int] = {}  # first kernel of rows, by result of a reduction of them
    operands: dict[int, set[int]] = {}  # read by the kernels of rows, by the first of them
    found: dict[int, RowKernel] = {}
    for number, kernel in enumerate(fusion.kernels):
        nodes = members.get(number, [])
        whole = {value for value, size in kernel.reads.items() if size >= kernel.work}
        reduced = {value for node in nodes if _reduces_rows(node) for value in node.outputs}
        started = [first_of[value] for value in kernel.reads if value in first_of]
        first = next((one for one in started if _continues(graph, fusion, one, nodes)), number)
        shared = whole & operands.get(first, set())
        half = all(graph.sizes[value] <= _HALF_BYTES * kernel.work for value in shared)
        if shared and not (half and trains and not reduced):
            found[number] = RowKernel(first, sum(kernel.reads[value] for value in shared))
        elif not shared:
            first = number
        operands.setdefault(first, set()).update(whole)
        first_of.update(dict.fromkeys(reduced, first))
    return found


def _continues(graph: Graph, fusion: Fusion, first: int, nodes: list[Node]) -> bool:
    """Return whether nodes continue a kernel of rows: over its elements, and in the same pass."""
    kernel = fusion.kernels[first]
    root = graph.nodes[kernel.root]
    normalizes = any(node.composed == _COMPOSED and node.phase == "forward" for node in nodes)
    alike = all((node.phase, node.count) == (root.phase, root.count) for node in nodes if not node.scalar)
    return alike and not normalizes and max(node.work for node in nodes) == kernel.work


def _reduces_rows(node: Node) -> bool:
    """Return whether a node reduces the last axes of an array to rows that fit on the chip."""
    if node.equation is None or not node.name.startswith("reduce_") or "axes" not in node.equation.params:
        return False
    axes, shape = sorted(node.equation.params["axes"]), node.equation.invars[0].aval.shape
    last = list(range(len(shape) - len(axes), len(shape)))
    return 0 < len(axes) < len(shape) and axes == last and prod(shape[axis] for axis in axes) <= LONGEST_ROW
