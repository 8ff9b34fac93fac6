"""Loops, branches, calls and unknown primitives, from plain JAX functions."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpuplan.workload.capture.load import WorkloadOptions, load_workload
from gpuplan.workload.ops import OpKind
from gpuplan.workload.trace.graph.fusion import compute_peak_bytes, fuse
from gpuplan.workload.trace.graph.graph import Graph
from gpuplan.workload.trace.graph.layers import group_layers
from gpuplan.workload.trace.graph.table import find_unmodelled, tabulate
from gpuplan.workload.trace.jax.flatten import flatten, simplify


def graph_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Graph:
    """Return the simplified graph of a function of float32 arrays."""
    import jax

    graph = flatten(jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(shape, "float32") for shape in shapes)))
    simplify(graph, has_update=False)
    return graph


def product_count(graph: Graph) -> float:
    """Return how often matrix products run."""
    ops = tabulate(graph, group_layers(graph), fuse(graph))
    return sum(op.count for op in ops if op.kind is OpKind.DOT)


def test_scan_multiplies_by_its_length() -> None:
    """A loop of 7 inside a loop of 5 runs its body 35 times."""
    import jax

    def inner(carry: Any, _: Any) -> Any:
        return carry @ carry, None

    def outer(carry: Any, _: Any) -> Any:
        return jax.lax.scan(inner, carry, length=7)[0], None

    assert product_count(graph_of(lambda x: jax.lax.scan(outer, x, length=5)[0], (4, 4))) == 35


def test_while_on_data_is_counted_once_and_named() -> None:
    """An unknown number of iterations: a note says so, with the share of one."""
    import jax

    def run(x: Any) -> Any:
        with jax.named_scope("solver"):
            return jax.lax.while_loop(lambda a: a.sum() < 10.0, lambda a: a @ a, x)

    graph = graph_of(run, (4, 4))
    (missing,) = find_unmodelled(graph)
    assert product_count(graph) == 1
    assert missing.name == "loop of unknown length in solver"
    assert missing.bytes_share == pytest.approx(1.0)


def test_branch_counts_its_dearer_side() -> None:
    """One side multiplies matrices, the other adds; the product is counted, and a note says so."""
    import jax

    graph = graph_of(lambda x: jax.lax.cond(x[0, 0] > 0, lambda a: a + a, lambda a: a @ a, x), (4, 4))
    assert product_count(graph) == 1
    assert [remark.text for remark in graph.remarks] == [
        "a branch in the step depends on data; its most expensive side is counted"
    ]


def test_branches_of_the_update_are_not_worth_a_note(tmp_path: Path) -> None:
    """A loss scale skips the update after an overflow; a layer's own branch is told of."""
    body = """
        import keras
        class Either(keras.layers.Layer):
            def call(self, x):
                return keras.ops.cond(x[0, 0] > 0, lambda: x, lambda: x * 2) if {own} else x
        def build():
            keras.config.set_dtype_policy("mixed_float16")
            model = keras.Sequential([keras.Input((4,)), Either(name="either"), keras.layers.Dense(2)])
            model.compile("adam", "mse")
            return model
    """
    told = {}
    for own in (True, False):
        (tmp_path / f"own_{own}.py").write_text(textwrap.dedent(body.format(own=own)), encoding="utf-8")
        workload = load_workload(f"own_{own}.py:build", options=WorkloadOptions(use_cache=False), base=tmp_path)
        told[own] = [note for note in workload.notes if "most expensive side" in note]
    assert told == {True: ["a branch in either depends on data; its most expensive side is counted"], False: []}


def test_calls_are_seen_through() -> None:
    """jit, checkpoint and custom derivatives are calls; what they call is what counts."""
    import jax

    @jax.custom_jvp
    def square(x: Any) -> Any:
        return x @ x

    square.defjvp(lambda primals, tangents: (square(*primals), tangents[0]))
    run = jax.jit(lambda x: square(jax.checkpoint(lambda a: a @ a)(x)))
    assert product_count(graph_of(run, (4, 4))) == 2


def test_dead_code_is_not_counted() -> None:
    """A product whose result is not used is dropped, as XLA does."""

    def run(x: Any) -> Any:
        x @ x
        return x @ x.T

    assert product_count(graph_of(run, (4, 4))) == 1


def unheard_of() -> Any:
    """Return a primitive that no table lists."""
    from jax.extend.core import Primitive

    primitive = Primitive("hyperbolic_widget")
    primitive.def_abstract_eval(lambda aval: aval)
    return primitive


def test_unknown_primitive_is_named_with_its_share() -> None:
    """Its bytes are known from its shapes: a read and a write of four tensors' worth (exp does the rest)."""
    import jax.numpy as jnp

    primitive = unheard_of()
    graph = graph_of(lambda x: primitive.bind(jnp.exp(x)), (8, 8))
    (missing,) = find_unmodelled(graph)
    assert (missing.name, missing.count, missing.bytes_share) == ("hyperbolic_widget", 1, 0.5)
    (row,) = [op for op in tabulate(graph, group_layers(graph), fuse(graph)) if op.kind is OpKind.OTHER]
    assert (row.flops, row.bytes_read, row.bytes_written) == (0, 256, 256)
    assert row.layer_group >= 0
    assert row.fused_group >= 0


def test_peak_of_a_chain_of_products() -> None:
    """x W1 W2 W3: a result lives until the next one is there, so the peak is the largest pair."""

    def run(x: Any, a: Any, b: Any, c: Any) -> Any:
        return x @ a @ b @ c

    graph = graph_of(run, (10, 30), (30, 20), (20, 50), (50, 5))
    assert compute_peak_bytes(graph, fuse(graph), donated=False) == 4 * 10 * (20 + 50)


def test_fused_chain_keeps_nothing_in_between() -> None:
    """Five pointwise steps make one kernel: only the result is stored."""
    import jax.numpy as jnp

    graph = graph_of(lambda x: jnp.tanh(jnp.exp(x * 2 + 1) - x), (100,))
    fusion = fuse(graph)
    assert len(fusion.kernels) == 1
    assert (fusion.kernels[0].reads, fusion.kernels[0].writes) == ({graph.inputs[0]: 400}, 400)
    assert compute_peak_bytes(graph, fusion, donated=False) == 400


def test_sums_over_one_array_share_a_kernel() -> None:
    """A sum and a sum of squares read their common operand once."""
    graph = graph_of(lambda x: (x.sum(0), (x * x).sum(0)), (64, 8))
    fusion = fuse(graph)
    assert len(fusion.kernels) == 1
    assert sum(fusion.kernels[0].reads.values()) == 64 * 8 * 4


def test_sum_that_needs_a_sum_waits_for_it() -> None:
    """A variance about the mean is a second kernel: the mean must be there first."""
    graph = graph_of(lambda x: ((x - x.mean(0)) ** 2).sum(0), (64, 8))
    fusion = fuse(graph)
    assert len([kernel for kernel in fusion.kernels if kernel.work == 64 * 8]) == 2


def test_matrix_transposes_are_free_and_batched_ones_are_not() -> None:
    """A matrix product takes either operand transposed; swapping heads and tokens moves data."""
    free = graph_of(lambda a, b: (a @ b.T).T, (4, 8), (5, 8))
    assert [node.name for node in free.nodes] == ["dot_general"]
    moving = graph_of(lambda a: a.transpose(0, 2, 1, 3) + 1, (2, 3, 4, 5))
    assert [node.name for node in moving.nodes] == ["transpose", "add"]


@pytest.mark.parametrize(
    ("function", "kind", "flops"),
    [
        ("sort", OpKind.SORT, 32 * 5),
        ("cumsum", OpKind.REDUCE, 32),
        ("fft.rfft", OpKind.LINALG, 5 * 32 * 5),
        ("argmax", OpKind.REDUCE, 32),
        ("exp", OpKind.ELEMENTWISE, 32),
    ],
)
def test_other_work_is_understood(function: str, kind: OpKind, flops: float) -> None:
    """n log2 n comparisons to sort, 5 n log2 n for a Fourier transform, one an element for the rest."""
    import operator

    import jax.numpy as jnp

    graph = graph_of(operator.attrgetter(function)(jnp), (32,))
    (node,) = [node for node in graph.nodes if node.rule.kind is kind]
    assert node.rule.flops(node.equation) == flops
    assert not find_unmodelled(graph)
