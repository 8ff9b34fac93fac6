"""Which part of a loop waits for the step before, and which loops a library could run whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gpuplan.workload.ops import Loop, OpKind
from gpuplan.workload.trace.graph.fusion import fuse
from gpuplan.workload.trace.graph.layers import group_layers
from gpuplan.workload.trace.graph.table import tabulate
from gpuplan.workload.trace.jax.flatten import flatten, simplify
from gpuplan.workload.trace.jax.step import trace_step

Trace = Callable[..., Any]


def products_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> dict[int, Loop | None]:
    """Return the place in its loop of each matrix product of a function, by its inner dimension."""
    import jax

    graph = flatten(jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(shape, "float32") for shape in shapes)))
    simplify(graph, has_update=False)
    ops = tabulate(graph, group_layers(graph), fuse(graph))
    return {op.k: op.loop for op in ops if op.kind is OpKind.DOT}


def test_only_what_lies_on_a_cycle_is_the_chain() -> None:
    """h U waits for the step before; x W does not; y V hangs on the chain and holds nothing up; x x' is summed."""
    import jax
    from jax import numpy as jnp

    def run(x: Any, w: Any, u: Any, v: Any, h: Any) -> Any:
        def step(carry: Any, now: Any) -> Any:
            hidden, total = carry
            new = jnp.tanh(now @ w + hidden @ u)
            return (new, total + now.T @ now), new[:, :5] @ v

        return jax.lax.scan(step, (h, jnp.zeros((2, 2))), x)

    found = products_of(run, (7, 3, 2), (2, 11), (11, 11), (5, 13), (3, 11))
    assert {k: loop.part for k, loop in found.items() if loop} == {2: "apart", 11: "chain", 5: "apart", 3: "sum"}
    assert {loop.length for loop in found.values() if loop} == {7}


def test_a_sum_that_is_looked_at_on_the_way_is_a_chain() -> None:
    """A running total is read by the product in every step, so that the order matters."""
    import jax

    def run(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda total, now: (total + total @ w, now), x, None, length=4)[0]

    assert products_of(run, (3, 6), (6, 6)) == {6: Loop(part="chain", length=4)}


def test_a_counter_makes_no_chain_of_what_it_points_at() -> None:
    """Each step looks its own row up by a counter that is carried along: the product waits for nothing."""
    import jax

    def run(x: Any, w: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            index, hidden = carry
            return (index + 1, hidden * 0.5 + x[index] @ w), None

        return jax.lax.scan(step, (0, x[0] @ w * 0), None, length=4)[0][1]

    assert {loop.part for loop in products_of(run, (4, 6), (6, 5)).values() if loop} == {"apart"}


def test_a_product_outside_a_loop_has_no_place_in_one() -> None:
    """None, not the empty place."""
    assert products_of(lambda x: x @ x, (4, 4)) == {4: None}


def recurrent(layer: str, **settings: Any) -> Callable[[], Any]:
    """Return a function that builds a network of one recurrent layer of 10 units on 20 steps of 6 numbers."""

    def build() -> Any:
        import keras

        inputs = keras.Input((20, 6))
        hidden = keras.layers.Masking()(inputs) if settings.pop("masked", False) else inputs
        return keras.Model(inputs, getattr(keras.layers, layer)(10, **settings)(hidden))

    return build


def test_the_six_products_of_an_lstm(trace: Trace) -> None:
    """Forward: input and state times weights. Backward: the same with respect to state, input and both weights.

    The first layer's input has no gradient, so its product is missing: a second layer has it.
    """

    def build() -> Any:
        import keras

        lstm = keras.layers.LSTM
        return keras.Sequential([keras.Input((20, 6)), lstm(7, return_sequences=True), lstm(10, name="second")])

    rows = [op for op in trace(build, batch_size=3).rows(kind=OpKind.DOT) if op.layer.startswith("second")]
    found = sorted((op.phase, op.loop.part, op.m, op.n, op.k) for op in rows)
    assert found == [
        ("backward", "apart", 3, 7, 40),
        ("backward", "chain", 3, 10, 40),
        ("backward", "sum", 40, 7, 3),
        ("backward", "sum", 40, 10, 3),
        ("forward", "apart", 3, 40, 7),
        ("forward", "chain", 3, 40, 10),
    ]
    assert {op.loop.layer for op in rows} == {"lstm"}


def test_keras_on_jax_takes_the_input_of_a_gru_out_of_its_loop(trace: Trace) -> None:
    """One product over the sequence before the loop, one with the state inside."""
    rows = trace(recurrent("GRU"), batch_size=3).rows(kind=OpKind.DOT, phase="forward")
    assert sorted((op.loop.part if op.loop else "", op.count) for op in rows) == [("", 1.0), ("chain", 20.0)]
    assert {op.loop.layer for op in rows if op.loop} == {"gru"}


@pytest.mark.parametrize(
    ("layer", "settings"),
    [
        ("LSTM", {"activation": "relu"}),
        ("LSTM", {"recurrent_activation": "hard_sigmoid"}),
        ("LSTM", {"recurrent_dropout": 0.1}),
        ("LSTM", {"use_bias": False}),
        ("LSTM", {"use_cudnn": False}),
        ("LSTM", {"masked": True}),
        ("GRU", {"reset_after": False}),
        ("SimpleRNN", {}),
    ],
)
def test_what_cudnn_does_not_take_stays_a_loop(trace: Trace, layer: str, settings: dict[str, Any]) -> None:
    """Keras's own conditions (`cudnn_ok` of its backends): the loop is there, and no library runs it."""
    rows = trace(recurrent(layer, **settings), batch_size=3).rows(kind=OpKind.DOT)
    assert {op.loop.layer for op in rows if op.loop} == {""}


def test_both_directions_are_known(trace: Trace) -> None:
    """The layers inside a wrapper are found."""

    def build() -> Any:
        import keras

        return keras.Sequential([keras.Input((20, 6)), keras.layers.Bidirectional(keras.layers.LSTM(10))])

    rows = trace(build, batch_size=3).rows(kind=OpKind.DOT)
    assert len(rows) == 2 * 5
    assert {op.loop.layer for op in rows} == {"lstm"}


def test_an_lstm_is_the_same_loop_where_jax_says_that_it_has_a_gpu(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake GPU: on a real one Keras puts a call to cuDNN into the step, here it would."""
    import jax

    here = trace(recurrent("LSTM"), batch_size=3)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    there = trace_step(here.model, (here.x_spec, here.y_spec), batch_size=3)
    assert there.ops == here.step.ops


def test_a_model_is_left_as_it_was(trace: Trace) -> None:
    """What stands in for the layer's method while it is traced is gone, and its own setting is back."""
    (layer,) = [part for part in trace(recurrent("LSTM")).model.layers if part.name.startswith("lstm")]
    assert "inner_loop" not in vars(layer)
    assert layer.use_cudnn == "auto"
