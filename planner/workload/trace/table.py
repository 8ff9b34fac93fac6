"""From the graph and its two ways of running to the rows of the table of ops."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..model import Unmodelled
from ..ops import Op, OpKind
from .contraction import Contraction
from .convolutions import describe_convolution
from .dots import describe_dot, describe_ragged_dot
from .fusion import Fusion
from .graph import Graph, Node
from .layers import LayerKernels
from .primitives import Primitives

__all__ = ["tabulate", "unmodelled"]


@dataclass(slots=True)
class _Row:
    """What the nodes of one layer kernel and one fused kernel add up to."""

    nodes: list[Node] = field(default_factory=list)
    layer_read: float = 0.0
    layer_written: float = 0.0
    fused_read: float = 0.0
    fused_written: float = 0.0

    @property
    def fused_bytes(self) -> float:
        """What its fused kernels move [bytes]."""
        return self.fused_read + self.fused_written


def tabulate(graph: Graph, layers: LayerKernels, fusion: Fusion) -> tuple[Op, ...]:
    """Return the rows: one a contraction, one a kernel of everything else.

    Args:
        graph: The simplified step.
        layers, fusion: Its two groupings.
    """
    keys = [(layers.kernel_of[index], fusion.kernel_of[index]) for index in range(len(graph.nodes))]
    rows: dict[tuple[int, int], _Row] = {}
    for key, node in zip(keys, graph.nodes, strict=True):
        rows.setdefault(key, _Row()).nodes.append(node)
    for kernel in fusion.kernels:
        row = rows[keys[kernel.root]]
        row.fused_read += sum(kernel.reads.values())
        row.fused_written += kernel.writes
    heaviest = _heaviest(rows)
    for number, layer in enumerate(layers.kernels):
        row = rows[heaviest[number]]
        row.layer_read += layer.bytes_read
        row.layer_written += layer.bytes_written
    _absorb_idle(rows, heaviest)
    variants, primitives = _Variants(graph), Primitives(graph)
    return tuple(op for key, row in rows.items() for op in _ops(row, key, fusion, variants, primitives))


def _heaviest(rows: dict[tuple[int, int], _Row]) -> dict[int, tuple[int, int]]:
    """Return, for each layer kernel, the row that moves most when fused; the layer's own bytes go there."""
    best: dict[int, tuple[int, int]] = {}
    for key, row in rows.items():
        if key[0] not in best or row.fused_bytes > rows[best[key[0]]].fused_bytes:
            best[key[0]] = key
    return best


def _absorb_idle(rows: dict[tuple[int, int], _Row], heaviest: dict[int, tuple[int, int]]) -> None:
    """Merge rows that move nothing of their own into the main row of their layer kernel."""
    for key in [key for key, row in rows.items() if row.fused_bytes == 0 and heaviest[key[0]] != key]:
        rows[heaviest[key[0]]].nodes += rows.pop(key).nodes


def _ops(
    row: _Row, key: tuple[int, int], fusion: Fusion, variants: _Variants, primitives: Primitives
) -> list[Op]:
    """Return a row's op; two when its executions are one launch in the fused way and many in the others."""
    op = _op(row, key, fusion, variants, primitives)
    if op is None or op.count == 1 or key[1] not in fusion.shared:
        return [op] if op else []
    read, written = op.fused_bytes_read * op.count, op.fused_bytes_written * op.count
    together = replace(
        op, count=1.0, flops=0.0, primitives=0, layer_group=-1, bytes_read=0.0, bytes_written=0.0,
        layer_bytes_read=0.0, layer_bytes_written=0.0, fused_bytes_read=read, fused_bytes_written=written,
    )  # fmt: skip
    return [replace(op, fused_group=-1, fused_bytes_read=0.0, fused_bytes_written=0.0), together]


def _op(
    row: _Row, key: tuple[int, int], fusion: Fusion, variants: _Variants, primitives: Primitives
) -> Op | None:
    layer_group, fused_kernel = key
    main = max(row.nodes, key=lambda node: node.bytes_moved)
    if main.equation is None:
        return None
    described = variants.describe(main)
    flops = described.flops if described else sum(node.rule.flops(node.equation) for node in row.nodes)
    launched = primitives.launched(row.nodes)
    facts: dict[str, Any] = _window(main)
    if described:
        facts = {name: getattr(described, name) for name in Contraction.__slots__ if name != "flops"}
    return Op(
        **{"kind": main.rule.kind, **facts},
        name=main.name, phase=main.phase or "forward", layer=main.layer, dtype=_dtype(main),
        count=main.count, flops=flops,
        bytes_read=launched.bytes_read, bytes_written=launched.bytes_written,
        layer_bytes_read=float(row.layer_read), layer_bytes_written=float(row.layer_written),
        fused_bytes_read=float(row.fused_read), fused_bytes_written=float(row.fused_written),
        layer_group=layer_group, fused_group=fusion.groups[fused_kernel] if fused_kernel >= 0 else -1,
        primitives=launched.kernels, composed=any(node.composed for node in row.nodes), loop=main.loop,
    )  # fmt: skip


def _window(node: Node) -> dict[str, Any]:
    if node.rule.window is None or node.equation is None:
        return {}
    kernel, stride = node.rule.window(node.equation)
    return {"kernel": kernel, "stride": stride}


def _dtype(node: Node) -> str:
    variables = node.equation.invars or node.equation.outvars if node.equation else ()
    return str(variables[0].aval.dtype) if variables else ""


class _Variants:
    """Describes contractions; knows which values are trainable variables, cast or transposed."""

    def __init__(self, graph: Graph) -> None:
        self._weights = set(graph.weights())

    def describe(self, node: Node) -> Contraction | None:
        """Return a contraction as a matrix product; None for everything else."""
        if node.rule.kind is OpKind.CONV:
            return describe_convolution(node.equation, kernel_reversed=node.kernel_reversed)
        if node.name == "dot_general":
            return describe_dot(node.equation, variant=self._variant(node))
        if node.rule.kind is OpKind.DOT:
            return describe_ragged_dot(node.equation, variant=self._variant(node))
        return None

    def _variant(self, node: Node) -> str:
        if node.phase != "backward":
            return "fprop"
        batched = node.equation is not None and any(node.equation.params["dimension_numbers"][1])
        return "dgrad" if batched or not self._weights.isdisjoint(node.inputs) else "wgrad"


def unmodelled(graph: Graph) -> tuple[Unmodelled, ...]:
    """Return what was not understood, with its share of all bytes of the step, largest first."""
    total = sum(node.bytes_moved * node.count for node in graph.nodes)
    found: dict[str, list[float]] = {}
    for node in graph.nodes:
        if not node.rule.known:
            entry = found.setdefault(node.name, [0.0, 0.0])
            entry[0] += node.count
            entry[1] += node.bytes_moved * node.count
    rows = [
        Unmodelled(name=name, count=count, bytes_share=moved / total if total else 0.0)
        for name, (count, moved) in found.items()
    ]
    return tuple(sorted([*rows, *_unknown_loops(graph, total)], key=lambda row: -row.bytes_share))


def _unknown_loops(graph: Graph, total_bytes: float) -> list[Unmodelled]:
    """Return the loops that were counted as one iteration, with the share of that one."""
    rows = []
    for remark in graph.remarks:
        if remark.unknown_loop:
            inside = [node for node in graph.nodes if node.outputs and node.outputs[0] in remark.values]
            moved = sum(node.bytes_moved * node.count for node in inside)
            rows.append(Unmodelled(name=remark.text, count=1.0, bytes_share=moved / (total_bytes or 1.0)))
    return rows
