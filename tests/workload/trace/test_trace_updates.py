"""Updates of equal variables are traced once and counted as often as there are variables."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from gpuplan.workload.trace.jax import step as step_module

Trace = Callable[..., Any]


def four_equal_layers() -> Any:
    """Return a network of which three layers are alike."""
    import keras

    dense = [keras.layers.Dense(32) for _ in range(4)]
    return keras.Sequential([keras.Input((20,)), *dense, keras.layers.Dense(3)])


@contextlib.contextmanager
def every_update(optimizer: Any) -> Iterator[None]:
    """Trace every update, as Keras does."""
    yield


def totals(traced: Any) -> dict[str, float]:
    """Return what the update phase adds up to."""
    names = ("flops", "bytes_read", "bytes_written", "layer_bytes_read", "layer_bytes_written", "primitives")
    rows = traced.rows(phase="update")
    return {name: sum(getattr(op, name) * op.count for op in rows) for name in names}


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "rmsprop", "adamw", "lion", "adagrad"])
def test_tracing_once_changes_no_sum(trace: Trace, monkeypatch: pytest.MonkeyPatch, optimizer: str) -> None:
    """FLOPs, bytes and primitives of the update are those of the trace that spells out every variable."""
    once = trace(four_equal_layers, optimizer=optimizer)
    monkeypatch.setattr(step_module, "trace_equal_updates_once", every_update)
    spelled_out = trace(four_equal_layers, optimizer=optimizer)

    assert totals(once) == pytest.approx(totals(spelled_out), rel=1e-3)
    assert once.flops() == pytest.approx(spelled_out.flops(), rel=1e-3)
    assert once.step.memory == spelled_out.step.memory


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("settings", [{}, {"amsgrad": True, "global_clipnorm": 1.0}])
def test_adamw_repeats_the_trace_that_it_has_of_each_variable(
    trace: Trace, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], scheduled: bool
) -> None:
    """The rows are those of the trace that spells out every variable."""
    import keras

    rate = keras.optimizers.schedules.CosineDecay(1e-3, 1000) if scheduled else 1e-3
    build = functools.partial(keras.optimizers.AdamW, rate, **settings)
    once = trace(four_equal_layers, optimizer=build())
    monkeypatch.setattr(step_module, "trace_equal_updates_once", every_update)
    spelled_out = trace(four_equal_layers, optimizer=build())

    assert len(once.rows(phase="update")) >= len(once.model.trainable_variables)
    nameless = [[replace(op, layer="") for op in one.step.ops] for one in (once, spelled_out)]
    assert nameless[0] == nameless[1]
    assert once.step.memory == spelled_out.step.memory


def test_equal_variables_share_a_row(trace: Trace) -> None:
    """Three kernels of 32 x 32: one row of three executions."""
    rows = trace(four_equal_layers, optimizer="adam").rows(phase="update")
    assert [op.count for op in rows if op.layer_bytes_read == pytest.approx(4 * 32 * 32 * 4, rel=0.01)] == [3]


def test_an_optimizer_of_the_users_own_is_traced_in_full(trace: Trace) -> None:
    """It is unknown whether it treats equal variables alike."""
    import keras

    class Mine(keras.optimizers.SGD):
        pass

    rows = trace(four_equal_layers, optimizer=Mine()).rows(phase="update")
    assert {op.count for op in rows} == {1.0}


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_the_optimizer_is_left_as_it_was(trace: Trace, name: str) -> None:
    """Nothing of the tracing stays on the user's object."""
    optimizer = trace(four_equal_layers, optimizer=name).model.optimizer
    assert not vars(optimizer).keys() & {"_backend_update_step", "update_step"}
