"""Updates of equal variables are traced once and counted as often as there are variables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
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


def test_the_optimizer_is_left_as_it_was(trace: Trace) -> None:
    """Nothing of the tracing stays on the user's object."""
    assert "_backend_update_step" not in vars(trace(four_equal_layers, optimizer="adam").model.optimizer)
