"""Steps that accumulate gradients: as traced from an optimizer that does so, and as built from another."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuplan.workload.accumulation import build_accumulation_pass
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.model import Workload
from gpuplan.workload.ops import Op
from gpuplan.workload.options import WorkloadOptions

MODEL = """
import keras


def build(steps: int = 0, scaled: bool = False):
    inputs = keras.Input((64,))
    x = keras.layers.Dense(256, activation="relu")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(10)(x))
    optimizer = keras.optimizers.Adam(gradient_accumulation_steps=steps or None)
    if scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "mse")
    return model
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("accumulation")
    (path / "model.py").write_text(MODEL)
    return path


def trace(folder: Path, arguments: str = "") -> Workload:
    options = WorkloadOptions(batch_size=16)
    return load_workload(f"model.py:build?{arguments}", options=options, base=folder)


def count_update_bytes(ops: tuple[Op, ...]) -> float:
    return sum(op.count * (op.bytes_read + op.bytes_written) for op in ops if op.phase == "update" and op.layer)


def test_a_built_pass_is_what_keras_accumulates(folder: Path) -> None:
    """Sums of gradients in memory, operations and their counts: as traced from Adam with four steps an update."""
    plain, traced = trace(folder), trace(folder, "steps=4")
    built = build_accumulation_pass(plain, 4)

    assert traced.gradient_accumulation_steps == built.gradient_accumulation_steps == 4
    assert traced.memory.optimizer_bytes == built.memory.optimizer_bytes
    assert traced.memory.optimizer_bytes == plain.memory.optimizer_bytes + plain.memory.gradient_bytes
    assert traced.flops_per_step == pytest.approx(built.flops_per_step, rel=1e-9)
    assert count_update_bytes(traced.ops) == pytest.approx(count_update_bytes(built.ops), rel=1e-9)
    assert any("once in 4 steps" in note for note in traced.notes)


def test_an_update_in_four_steps_moves_less_than_one_in_each(folder: Path) -> None:
    """A quarter of the update, and three arrays of gradients for the sums; forward and backward pass stay."""
    plain = trace(folder)
    built = build_accumulation_pass(plain, 4)
    sums_bytes = 3 * plain.memory.gradient_bytes

    whole, left = count_update_bytes(plain.ops), count_update_bytes(built.ops)
    assert left == pytest.approx(whole / 4 + sums_bytes)
    assert [op for op in built.ops if op.phase != "update"] == [op for op in plain.ops if op.phase != "update"]
    assert build_accumulation_pass(plain, 1) is plain


def test_passes_of_a_step_that_accumulates_share_its_sums(folder: Path) -> None:
    """Two passes in each of four steps: one update in eight, with the sums that the optimizer has."""
    traced = trace(folder, "steps=4")
    built = build_accumulation_pass(traced, 2)

    assert built.gradient_accumulation_steps == 8
    assert built.memory == traced.memory
    assert len(built.ops) == len(traced.ops)


def test_the_optimizer_inside_a_loss_scale_is_found(folder: Path) -> None:
    """`LossScaleOptimizer` hands its updates to an optimizer that accumulates."""
    assert trace(folder, "steps=4&scaled=True").gradient_accumulation_steps == 4
