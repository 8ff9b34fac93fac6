"""Division of traced steps over a mesh: shapes, collectives and laws, by hand."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import keras
from gpuplan.workload.build.fit_inputs import FitInputs, build_training_state
from gpuplan.workload.ops import PRODUCTS, Op
from gpuplan.workload.options import ArraySpec
from gpuplan.workload.trace.division.divider import divide_step
from gpuplan.workload.trace.division.spec import (
    Axis,
    Placement,
    Spec,
    choose_divided_dimension,
    divide_reshaped,
    place_in_parts,
)
from gpuplan.workload.trace.graph.graph import find_inner_jaxprs
from gpuplan.workload.trace.jax.step import trace_step
from keras import layers

BATCH, LENGTH, WIDTH, HEADS, ROWS, BLOCKS = 4, 16, 32, 4, 64, 2
WAYS = 4
MODEL, SAMPLES = (Axis("model", 4),), (Axis("batch", 1),)
MESH = Placement(sizes={"batch": 2, "model": 4}, replicas=frozenset(["batch"]))


def divide(function: Any, *arguments: tuple[tuple[int, ...], Spec], outputs: Spec | None = None) -> Any:
    """Return the local jaxpr of a function of float32 arrays, by shape and division."""
    arrays = [jax.ShapeDtypeStruct(shape, "float32") for shape, _ in arguments]
    traced = jax.make_jaxpr(function)(*arrays)
    wanted = [outputs for _ in traced.jaxpr.outvars]
    return divide_step(traced, inputs=[spec for _, spec in arguments], outputs=wanted, mesh=MESH).jaxpr


def list_collectives(jaxpr: Any) -> list[tuple[str, int, int]]:
    """Return name, devices and bytes of the collectives of a local jaxpr and of those that it calls."""
    found = []
    for one in jaxpr.eqns:
        if "message_bytes" in one.params:
            found.append((one.primitive.name, one.params["devices"], one.params["message_bytes"]))
        for inner in find_inner_jaxprs(one):
            found += list_collectives(inner)
    return found


def get_shapes(jaxpr: Any) -> list[tuple[int, ...]]:
    return [tuple(one.aval.shape) for one in jaxpr.outvars]


def test_columns_need_no_exchange_and_rows_one_sum() -> None:
    """Megatron-LM, section 3: Y = f(X A) B with A by columns and B by rows; X is 8 x 16, A 16 x 64."""
    jaxpr = divide(
        lambda x, a, b: jax.nn.relu(x @ a) @ b,
        ((8, 16), (SAMPLES, ())),
        ((16, 64), ((), MODEL)),
        ((64, 16), (MODEL, ())),
        outputs=(SAMPLES, ()),
    )
    assert list_collectives(jaxpr) == [("all_reduce", 4, 8 * 16 * 4)]
    assert get_shapes(jaxpr) == [(8, 16)]
    products = [one for one in jaxpr.eqns if one.primitive.name == "dot_general"]
    assert [tuple(one.outvars[0].aval.shape) for one in products] == [(8, 16), (8, 16)]


def test_a_partial_sum_is_summed_once_for_all_its_readers() -> None:
    jaxpr = divide(
        lambda x, a: (jax.numpy.exp(x @ a), jax.numpy.sin(x @ a) + 1.0),
        ((8, 64), (SAMPLES, MODEL)),
        ((64, 16), (MODEL, ())),
    )
    assert [name for name, *_ in list_collectives(jaxpr)] == ["all_reduce", "all_reduce"]  # of two products

    def read_twice(x: Any, a: Any) -> Any:
        product = x @ a
        return jax.numpy.exp(product), jax.numpy.sin(product)

    shared = divide(read_twice, ((8, 64), (SAMPLES, MODEL)), ((64, 16), (MODEL, ())))
    assert [name for name, *_ in list_collectives(shared)] == ["all_reduce"]


def test_weights_in_parts_among_replicas_are_gathered_and_their_gradients_scattered() -> None:
    """FSDP: weights of 16 x 64 divided along `batch`; gradients of all samples are needed in parts."""
    parts = ((Axis("batch", 2),), ())

    def update(x: Any, w: Any, m: Any) -> Any:
        gradient = jax.grad(lambda v: (x @ v).sum())(w)
        return m * 0.9 + gradient

    jaxpr = divide(update, ((8, 16), (SAMPLES, ())), ((16, 64), parts), ((16, 64), parts), outputs=parts)
    assert ("reduce_scatter", 2, 16 * 64 * 4) in list_collectives(jaxpr)
    assert get_shapes(jaxpr) == [(8, 64)]
    forward = divide(lambda x, w: x @ w, ((8, 16), (SAMPLES, ())), ((16, 64), parts))
    assert list_collectives(forward) == [("all_gather", 2, 16 * 64 * 4)]


def test_rows_of_a_table_are_looked_up_in_parts() -> None:
    jaxpr = divide(
        lambda table, x: jax.numpy.take(table, x.astype("int32"), axis=0),
        ((64, 8), (MODEL, ())),
        ((4, 16), (SAMPLES, ())),
        outputs=(SAMPLES, (), ()),
    )
    assert [(name, size) for name, _, size in list_collectives(jaxpr)] == [("all_reduce", 4 * 16 * 8 * 4)]


def test_a_loop_carries_a_division_through_all_its_iterations() -> None:
    """A recurrent layer whose state is divided by features sums nothing, but for the product of its state."""

    def run(x: Any, w: Any) -> Any:
        state = jax.numpy.zeros((4, 64))
        return jax.lax.scan(lambda h, v: (jax.numpy.tanh(v @ w + h), None), state, x)[0]

    jaxpr = divide(run, ((5, 4, 16), ((), SAMPLES, ())), ((16, 64), ((), MODEL)))
    assert get_shapes(jaxpr) == [(4, 16)]
    assert list_collectives(jaxpr) == []


def test_a_branch_is_divided_like_the_code_around_it() -> None:
    """The update under a scaled loss is the branch of a condition: nothing is gathered for it."""

    def update(finite: Any, w: Any, g: Any) -> Any:
        return jax.lax.cond(finite.sum() > 0, lambda w, g: w - 0.1 * g, lambda w, g: w, w, g)

    jaxpr = divide(update, ((1,), ((),)), ((64, 16), (MODEL, ())), ((64, 16), (MODEL, ())), outputs=(MODEL, ()))
    assert list_collectives(jaxpr) == []
    assert get_shapes(jaxpr) == [(16, 16)]


def test_a_dimension_that_is_needed_whole_is_gathered() -> None:
    jaxpr = divide(lambda x: jax.numpy.sort(x, axis=1), ((8, 64), (SAMPLES, MODEL)))
    assert list_collectives(jaxpr) == [("all_gather", 4, 8 * 64 * 4)]
    maximum = divide(lambda x: x.max(axis=1), ((8, 64), (SAMPLES, MODEL)))
    assert list_collectives(maximum) == [("all_reduce", 4, 8 * 4)]


@pytest.mark.parametrize(
    ("before", "spec", "after", "expected"),
    [
        ((2, 12), ((), MODEL), (2, 4, 3), ((), MODEL, ())),
        ((2, 4, 3), ((), MODEL, ()), (2, 12), ((), MODEL)),
        ((2, 4, 3), ((), (), MODEL), (2, 12), ((), ())),
        ((8, 16, 4), (SAMPLES, (), MODEL), (128, 4), (SAMPLES, MODEL)),
        ((8, 1, 4), (SAMPLES, (), MODEL), (8, 4), (SAMPLES, MODEL)),
        ((8, 6), ((), MODEL), (8, 2, 3), ((), (), ())),
    ],
)
def test_a_reshape_keeps_the_outermost_division(
    before: tuple[int, ...], spec: Spec, after: tuple[int, ...], expected: Spec
) -> None:
    assert divide_reshaped(before, spec, after) == expected


# --- a Transformer --------------------------------------------------------------------------------------------


def build_transformer() -> keras.Model:
    tokens = layers.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(ROWS, WIDTH)(tokens)
    for number in range(BLOCKS):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=f"attention{number}")(y, y)
        y = layers.Dense(4 * WIDTH, activation="gelu", name=f"up{number}")(layers.LayerNormalization()(x))
        x = x + layers.Dense(WIDTH, name=f"down{number}")(y)
    model = keras.Model(tokens, layers.Dense(ROWS, name="logits")(x))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    target = ArraySpec((LENGTH,), "int32")
    build_training_state(model, target, target, model.outputs[0], feed=FitInputs(), batch_size=BATCH)
    return model


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return build_transformer()


def trace(model: keras.Model, ways: int) -> Any:
    spec = ArraySpec((LENGTH,), "int32")
    placement = place_in_parts(model, ways, mode="train")
    return trace_step(model, (spec, spec), batch_size=BATCH, placement=placement)


def sum_flops(ops: tuple[Op, ...]) -> float:
    return sum(op.flops * op.count for op in ops if op.kind in PRODUCTS)


def test_a_transformer_sums_its_activations_twice_a_block_and_pass(model: keras.Model) -> None:
    """Megatron-LM, figure 4: two all-reduces in the forward and two in the backward pass of a block.

    One more sums what is looked up in the table, and one the gradient of what the logits are computed from.
    """
    divided = trace(model, WAYS).divided
    size = BATCH * LENGTH * WIDTH * 4
    large = [one for one in divided.collectives if one.message_bytes == size]

    for phase in ("forward", "backward"):
        assert sum(one.count for one in large if one.phase == phase) == 2 * BLOCKS + 1
    assert all(one.kind == "all_reduce" and one.devices == WAYS and not one.replicas for one in large)
    rest = sum(one.sent_bytes for one in divided.collectives if one.message_bytes != size)
    assert rest < 0.05 * sum(one.sent_bytes for one in large)


def test_devices_share_all_products_evenly(model: keras.Model) -> None:
    found = trace(model, WAYS)
    assert sum_flops(found.divided.ops) == pytest.approx(sum_flops(found.ops) / WAYS)
    assert found.divided.memory.activation_bytes < found.memory.activation_bytes
    assert found.divided.memory.activation_bytes > found.memory.activation_bytes / WAYS


def test_fused_attention_is_divided_by_heads(model: keras.Model) -> None:
    found = trace(model, WAYS)
    whole, part = found.fused_attention, found.divided.fused_attention
    assert whole is not None
    assert part is not None
    assert part.calls == whole.calls
    heads = [[op.batch for op in ops if op.kind == "attention"] for ops in (whole.ops, part.ops)]
    assert heads[0] == [WAYS * batch for batch in heads[1]] != []


def test_one_device_shares_nothing(model: keras.Model) -> None:
    """Law: a mesh of one device is no division."""
    assert trace(model, 1).divided is None


@pytest.mark.parametrize("ways", [2, 4])
def test_more_devices_never_hold_more(model: keras.Model, ways: int) -> None:
    """Law: activations of a device fall with the number that share the model."""
    few, many = trace(model, ways // 2 or 1), trace(model, ways)
    before = few.memory if few.divided is None else few.divided.memory
    assert many.divided.memory.activation_bytes <= before.activation_bytes


def test_variables_and_their_optimizer_state_are_divided_alike(model: keras.Model) -> None:
    placement = place_in_parts(model, WAYS, mode="train")
    named = {one.path: placement.get_spec(one) for one in model.trainable_variables}
    axis = (Axis("model", WAYS),)

    assert named["attention0/query/kernel"] == ((), axis, ())
    assert named["attention0/query/bias"] == (axis, ())
    assert named["attention0/attention_output/kernel"] == (axis, (), ())
    assert named["attention0/attention_output/bias"] == ((),)
    assert (named["up0/kernel"], named["up0/bias"]) == (((), axis), (axis,))
    assert (named["down0/kernel"], named["down0/bias"]) == ((axis, ()), ((),))
    (table,) = (spec for path, spec in named.items() if path.endswith("/embeddings"))
    assert table == (axis, ())
    divided = [one for one in model.optimizer.variables if any(placement.get_spec(one))]
    assert len(divided) == 2 * sum(any(spec) for spec in named.values())


@pytest.mark.parametrize(
    ("shape", "name", "expected"),
    [
        ((512, 512), "query", 1),
        ((512, 512), "attention_output", 0),
        ((512, 512), "out_proj", 0),
        ((8, 512, 64), "query", 0),
        ((8, 64, 512), "attention_output", 0),
        ((512, 6, 64), "query", None),
        ((3, 3, 64, 64), "conv", None),
    ],
)
def test_the_divided_dimension_is_that_of_megatron(
    shape: tuple[int, ...], name: str, expected: int | None
) -> None:
    assert choose_divided_dimension(shape, name=name, devices=WAYS) == expected


def test_factors_of_lora_are_divided_like_their_kernel() -> None:
    up, down = layers.Dense(128, name="up"), layers.Dense(32, name="down")
    tokens = layers.Input((32,))
    model = keras.Model(tokens, down(up(tokens)))
    for layer in (up, down):
        layer.enable_lora(4)
    placement = place_in_parts(model, WAYS, mode="infer")
    axis = (Axis("model", WAYS),)

    specs = {one.path: placement.get_spec(one) for one in model.trainable_variables}
    assert specs["up/lora_kernel_b"] == ((), axis)
    assert specs["down/lora_kernel_a"] == (axis, ())
    assert not any(specs["up/lora_kernel_a"])
    assert not any(specs["down/lora_kernel_b"])


def test_local_shapes_are_those_that_xla_gives_to_a_device() -> None:
    """Of sizes that do not divide evenly, the largest part; of a batch as traced, all samples."""
    jaxpr = divide(lambda x, w: x @ w, ((8, 16), (SAMPLES, ())), ((16, 30), ((), MODEL)))
    assert get_shapes(jaxpr) == [(8, math.ceil(30 / 4))]
