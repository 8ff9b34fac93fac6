"""Attention as one kernel: sizes counted by hand, memory without scores, and what traces of it keep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import pytest
from gpuplan.predict.resize import can_resize, interpolate_workload
from gpuplan.workload.model import AttentionCall, Workload
from gpuplan.workload.ops import Loop, Op
from gpuplan.workload.options import ArraySpec
from gpuplan.workload.trace.graph.graph import Graph
from gpuplan.workload.trace.graph.layers import build_attention_product, fuse_attention
from gpuplan.workload.trace.jax import step
from gpuplan.workload.trace.jax.step import TracedStep, trace_step

BATCH, LENGTH, HEADS, SIZE = 4, 256, 3, 32
WIDTH = HEADS * SIZE
SCORES_BYTES = BATCH * HEADS * LENGTH**2 * 4


def trace_attention(*, mode: Any = "train", dropout: float = 0.0, layers: int = 2, **call: Any) -> TracedStep:
    """Trace the step of a stack of attention layers."""
    inputs = keras.Input((LENGTH, WIDTH))
    x = inputs
    for _ in range(layers):
        x = keras.layers.MultiHeadAttention(HEADS, SIZE, dropout=dropout)(x, x, **call)
    model = keras.Model(inputs, x)
    model.compile("sgd", "mse")
    model.optimizer.build(model.trainable_variables)
    spec = ArraySpec((LENGTH, WIDTH), "float32")
    return trace_step(model, (spec, spec) if mode == "train" else spec, batch_size=BATCH, mode=mode)


def batched_products(ops: tuple[Op, ...], phase: str) -> list[Op]:
    """Return the products of heads in one phase."""
    return [op for op in ops if op.m and op.batch > 1 and op.phase == phase]


def test_each_pass_is_one_product_of_the_published_size() -> None:
    """Forward 4 T S H FLOP a head, backward 2.5 times that (Dao, 2023, arXiv:2307.08691, section 3.1)."""
    fused = trace_attention().fused_attention

    assert fused is not None
    assert fused.calls == (AttentionCall(dtype="float32", head_size=SIZE, queries=LENGTH, keys=LENGTH),)
    forward, backward = (batched_products(fused.ops, phase) for phase in ("forward", "backward"))
    by_hand = 4.0 * BATCH * HEADS * LENGTH * LENGTH * SIZE
    assert [op.flops for op in forward] == [by_hand] * 2
    assert [op.flops for op in backward] == [2.5 * by_hand] * 2


def test_kernels_move_queries_keys_values_and_results_alone() -> None:
    """Forward: three arrays in, one out, and a sum a query; backward: those and the gradient in, three out."""
    fused = trace_attention(layers=1).fused_attention

    assert fused is not None
    array, sums = BATCH * LENGTH * WIDTH * 4.0, BATCH * HEADS * LENGTH * 4.0
    (forward,), (backward,) = (batched_products(fused.ops, phase) for phase in ("forward", "backward"))
    assert (forward.bytes_read, forward.bytes_written) == (3 * array, array + sums)
    assert (backward.bytes_read, backward.bytes_written) == (5 * array + sums, 3 * array)


def test_scores_are_not_kept_for_the_backward_pass() -> None:
    """Each layer stores its scores without fusion: with it, the peak is lower by more than one of them a layer."""
    traced = trace_attention(layers=3)

    assert traced.fused_attention is not None
    saved = traced.memory.activation_bytes - traced.fused_attention.memory.activation_bytes
    assert saved > 3 * SCORES_BYTES


def test_inference_has_a_fused_kernel_without_sums() -> None:
    """A forward pass alone keeps nothing for gradients."""
    fused = trace_attention(mode="infer", layers=1).fused_attention

    assert fused is not None
    (forward,) = batched_products(fused.ops, "forward")
    assert forward.bytes_written == BATCH * LENGTH * WIDTH * 4.0


@pytest.mark.parametrize(("dropout", "call"), [(0.1, {}), (0.0, {"return_attention_scores": True})])
def test_layers_that_need_scores_have_no_fused_kernel(dropout: float, call: dict[str, bool]) -> None:
    """keras/src/layers/attention/multi_head_attention.py, `use_dot_product_attention`."""
    if call:
        inputs = keras.Input((LENGTH, WIDTH))
        x, scores = keras.layers.MultiHeadAttention(HEADS, SIZE)(inputs, inputs, **call)
        model = keras.Model(inputs, [x, scores])
        spec = ArraySpec((LENGTH, WIDTH), "float32")
        traced = trace_step(model, spec, batch_size=BATCH, mode="infer")
    else:
        traced = trace_attention(dropout=dropout)

    assert traced.fused_attention is None


def test_a_causal_kernel_skips_blocks_above_the_diagonal() -> None:
    """Of two blocks of 128 keys a side, three of four are left; the layer asks for `is_causal`."""
    fused = trace_attention(layers=1, use_causal_mask=True).fused_attention

    assert fused is not None
    assert fused.calls[0].causal
    (forward,) = batched_products(fused.ops, "forward")
    assert forward.flops == 0.75 * 4.0 * BATCH * HEADS * LENGTH * LENGTH * SIZE


def test_recomputed_attention_repeats_its_forward_products() -> None:
    """Two of its seven products: 5 + 2 over the queries."""
    call = AttentionCall(dtype="bfloat16", head_size=64, queries=512, keys=512)

    once, again = (build_attention_product(call, batch=8, backward=True, repeats=n) for n in (0, 1))

    assert again["flops"] / once["flops"] == pytest.approx(7 / 5)


def test_fused_attention_survives_json_and_changes_of_the_batch() -> None:
    """A workload keeps both tables; interpolation between two batch sizes changes both."""
    small, large = (make_workload(batch) for batch in (2, 8))
    middle = interpolate_workload(small, large, batch_size=4)

    assert Workload.from_json(large.to_json()) == large
    assert can_resize(small, large)
    exact = make_workload(4)
    assert middle.with_fused_attention.flops_per_step == pytest.approx(
        exact.with_fused_attention.flops_per_step, rel=1e-6
    )
    assert not can_resize(small, replace(large, fused_attention=None))


def make_workload(batch_size: int) -> Workload:
    """Return a traced workload of one attention layer at a batch size."""
    inputs = keras.Input((LENGTH, WIDTH))
    model = keras.Model(inputs, keras.layers.MultiHeadAttention(HEADS, SIZE, name="attention")(inputs, inputs))
    spec = ArraySpec((LENGTH, WIDTH), "float32")
    traced = trace_step(model, spec, batch_size=batch_size, mode="infer")
    return Workload(
        model="attention",
        mode="infer",
        batch_size=batch_size,
        parameters=1,
        trainable_parameters=1,
        memory=traced.memory,
        ops=traced.ops,
        versions={"keras": keras.__version__},
        fused_attention=traced.fused_attention,
    )


@pytest.fixture
def traced_graph(monkeypatch: pytest.MonkeyPatch) -> tuple[Graph, Any]:
    """The graph of a layer in inference before its attention is fused, and its calls."""
    seen: list[tuple[Graph, Any]] = []
    monkeypatch.setattr(
        step, "fuse_attention", lambda graph, calls: seen.append((graph, calls)) or fuse_attention(graph, calls)
    )
    trace_attention(mode="infer", layers=1)
    return seen[0]


def test_a_kernel_comes_after_all_that_it_reads(traced_graph: tuple[Graph, Any]) -> None:
    """Values projected after the scores: the kernel is named after these and comes where the last product was."""
    graph, calls = traced_graph
    late = [node for node in graph.nodes if "/value" in node.layer]
    nodes = [node for node in graph.nodes if "/value" not in node.layer]
    place = next(index for index, node in enumerate(nodes) if node.layer.endswith("BNTS,BSNH->BTNH"))
    fused, _ = fuse_attention(replace(graph, nodes=[*nodes[:place], *late, *nodes[place:]]), calls)

    made = set(graph.inputs)
    for node in fused.nodes:
        assert made.issuperset(node.inputs)
        made.update(node.outputs)
    assert len(late) == 2
    assert [node.layer.split("/")[-1] for node in fused.nodes if node.product] == ["BTNH,BSNH->BNTS"]


def test_a_call_with_one_node_in_a_loop_is_not_fused(traced_graph: tuple[Graph, Any]) -> None:
    """The scores are made in every iteration of a loop, the rest once: the call keeps its own kernels."""
    graph, calls = traced_graph
    nodes = list(graph.nodes)
    place = next(index for index, node in enumerate(nodes) if node.layer.endswith("BTNH,BSNH->BNTS"))
    nodes[place] = replace(nodes[place], loop=Loop(part="chain", length=2))

    assert fuse_attention(graph, calls)[1]
    assert fuse_attention(replace(graph, nodes=nodes), calls) == (replace(graph, nodes=nodes), ())
