"""Table of operations from the graph and its two groupings."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any

from ...model import Unmodelled
from ...ops import Op, OpKind
from ..rules import SETS, Product, describe_convolution, describe_dot, describe_ragged_dot, describe_window
from .fusion import Fusion, count_column_rows, find_row_kernels
from .graph import Graph, Node
from .layers import LayerKernels

_FUSED_BYTES = ("fused_bytes_read", "fused_bytes_written", "fused_bytes_reread")
_LAYER_BYTES = ("layer_bytes_read", "layer_bytes_written", "layer_bytes_reread", "layer_bytes_max")
_EMPTY: dict[str, Any] = dict.fromkeys((*_LAYER_BYTES, *_FUSED_BYTES), 0.0)


def _find_products_in_sums(graph: Graph) -> set[int]:
    """Return the products in the update of variables that are part of a sum, one per sum."""
    users, outputs = graph.users(), set(graph.outputs)
    found: dict[int, int] = {}
    for node in graph.nodes:
        if node.phase == "update" and node.name in SETS["products"] and outputs.isdisjoint(node.outputs):
            readers = users[node.outputs[0]]
            if len(readers) == 1 and graph.nodes[readers[0]].name in SETS["sums"]:
                found.setdefault(readers[0], node.outputs[0])
    return set(found.values())


def tabulate(graph: Graph, layers: LayerKernels, fusion: Fusion) -> tuple[Op, ...]:
    """Build the table of a simplified step: one row for the nodes of one layer kernel and one fused kernel."""
    keys = [(layers.kernel_of[index], fusion.kernel_of[index]) for index in range(len(graph.nodes))]
    nodes: dict[tuple[int, int], list[Node]] = {}
    for key, node in zip(keys, graph.nodes, strict=True):
        nodes.setdefault(key, []).append(node)
    joined = find_row_kernels(graph, fusion)
    rows: dict[tuple[int, int], dict[str, Any]] = {}  # by the field of `Op`
    for called, fused in nodes:
        row = rows[called, fused] = {**_EMPTY, "layer_group": called}
        row["fused_group"] = fusion.groups[fused] if fused >= 0 else -1
        first, _, row["row_norm"] = joined.get(fused, (-1, 0, False))
        row["row_group"] = fusion.groups[first] if first >= 0 else -1
    for number, kernel in enumerate(fusion.kernels):
        row = rows[keys[kernel.root]]
        row["fused_bytes_read"] += sum(kernel.reads.values())
        row["fused_bytes_written"] += kernel.writes
        row["fused_bytes_reread"] += joined[number][1] if number in joined else 0
    moved = {key: row["fused_bytes_read"] + row["fused_bytes_written"] for key, row in rows.items()}
    heaviest: dict[int, tuple[int, int]] = {}  # row of each layer kernel that receives the kernel's own bytes
    for key in sorted(rows, key=lambda key: -moved[key]):
        heaviest.setdefault(key[0], key)
    for number, layer in enumerate(layers.kernels):
        row = rows[heaviest[number]]
        row["layer_bytes_read"] += layer.bytes_read
        row["layer_bytes_written"] += layer.bytes_written
        row["layer_bytes_reread"] += layer.bytes_reread
        row["layer_bytes_max"] += layer.bytes_reread if layer.is_softmax else 0
    for key in [key for key in rows if moved[key] == 0 and heaviest[key[0]] != key]:
        nodes[heaviest[key[0]]] += nodes.pop(key)
    weights, taken_in = graph.weights().keys(), _find_products_in_sums(graph)
    built = ((key[1], _build_op(nodes[key], rows[key], weights, taken_in)) for key in nodes)
    return tuple(
        one
        for kernel, op in built
        if op is not None
        for one in (_split_op(op) if op.count != 1 and kernel in fusion.shared else [op])
    )


def _split_op(op: Op) -> list[Op]:
    """Return an operation as it is executed unfused, and all its executions as one launch of a fused kernel."""
    whole: dict[str, Any] = {name: getattr(op, name) * op.count for name in _FUSED_BYTES}
    unfused: dict[str, Any] = dict.fromkeys(("bytes_read", "bytes_written", "flops", *_LAYER_BYTES), 0.0)
    none: dict[str, Any] = dict.fromkeys(whole, 0.0)
    apart = replace(op, fused_group=-1, row_group=-1, **none)
    return [apart, replace(op, count=1.0, primitives=0, layer_group=-1, **unfused, **whole)]


def _build_op(nodes: list[Node], row: dict[str, Any], weights: Set[int], taken_in: Set[int]) -> Op | None:
    main = max(nodes, key=lambda node: node.bytes_moved)
    if main.equation is None:
        return None
    described = _describe_contraction(main, weights)
    # Where each primitive is a kernel, all but broadcasts and scalar work are launched.
    kernels = [node for node in nodes if node.name != "broadcast_in_dim" and not node.scalar] or nodes
    whole = [node for node in kernels if taken_in.isdisjoint(node.outputs)]
    reads = (pair for node in kernels for pair in zip(node.inputs, node.reads, strict=True))
    flops = sum(node.rule.flops(node.equation) for node in nodes)
    facts: dict[str, Any] = {"kind": main.rule.kind, "flops": flops}
    if main.rule.kind is OpKind.POOL:
        facts["kernel"], facts["stride"] = describe_window(main.equation)
    variables = main.equation.invars or main.equation.outvars
    columns = list(filter(None, map(count_column_rows, nodes)))
    return Op(
        **(described or facts),
        name=main.name,
        phase=main.phase or "forward",
        layer=main.layer,
        dtype=str(variables[0].aval.dtype) if variables else "",
        count=main.count,
        bytes_read=float(sum(size for value, size in reads if value not in taken_in)),
        bytes_written=float(sum(node.writes for node in whole)),
        **row,
        primitives=len(whole) or 1,
        composed=next((node.composed for node in nodes if node.composed), ""),
        column_sums=len(columns),
        column_rows=float(max(columns, default=0)),
        loop=main.loop,
    )


def _describe_contraction(node: Node, weights: Set[int]) -> Product | None:
    """Return a contraction as a matrix product, by whether an operand is a trainable variable; else None."""
    if node.product is not None:
        return node.product
    if node.rule.kind is OpKind.CONV:
        return describe_convolution(node.equation, kernel_reversed=node.kernel_reversed)
    if node.rule.kind is not OpKind.DOT:
        return None
    variant = "fprop"
    if node.phase == "backward":
        batched = any(node.equation.params["dimension_numbers"][1])
        variant = "dgrad" if batched or not weights.isdisjoint(node.inputs) else "wgrad"
    describe = describe_dot if node.name == "dot_general" else describe_ragged_dot
    return describe(node.equation, variant=variant)


def find_unmodelled(graph: Graph) -> tuple[Unmodelled, ...]:
    """Return the unmodelled operations with their share of all bytes of the step, largest first."""
    total = sum(node.bytes_moved * node.count for node in graph.nodes) or 1.0
    found: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if not node.rule.known:
            found.setdefault(node.name, []).append(node)
    groups = [(name, sum(node.count for node in nodes), nodes) for name, nodes in found.items()]
    for remark in (one for one in graph.remarks if one.unknown_loop):  # counted as one iteration
        inside = [node for node in graph.nodes if node.outputs and node.outputs[0] in remark.values]
        groups.append((remark.text, 1.0, inside))
    rows = [
        Unmodelled(name=name, count=count, bytes_share=sum(one.bytes_moved * one.count for one in nodes) / total)
        for name, count, nodes in groups
    ]
    return tuple(sorted(rows, key=lambda row: -row.bytes_share))
