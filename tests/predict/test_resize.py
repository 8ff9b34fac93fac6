"""A workload at a third batch size, from two traces, beside the trace of that batch size itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from factories import make_product, make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.resize import Resizer, can_resize, interpolate_workload
from gpuplan.predict.step_time import StepTime
from gpuplan.workload.capture.load import WorkloadOptions, load_workload
from gpuplan.workload.model import Workload
from gpuplan.workload.ops import change_op

ROOT = Path(__file__).parents[2]


def test_a_changed_operation_is_that_of_replace() -> None:
    """Law: the fast copy has the given values, all others of the original, and leaves that as it is."""
    (op,) = make_workload(ops=(make_product(m=7, flops=3.0),)).ops
    changed = change_op(op, {"m": 2, "bytes_read": 0.5})

    assert changed == replace(op, m=2, bytes_read=0.5)
    assert (op.m, changed.m, changed.flops) == (7, 2, 3.0)


def traced(model: str, batch_size: int) -> Workload:
    """Return a model of the benchmarks, traced at a batch size."""
    options = WorkloadOptions(batch_size=batch_size, samples=640, epochs=2)
    return load_workload(f"benchmarks/workloads.py:{model}", options=options, base=ROOT)


@pytest.mark.parametrize("model", ["cifar_cnn", "mlp", "lstm_language"])
def test_between_two_traces_is_what_a_third_trace_says(model: str) -> None:
    """Batch 8 from traces at 64 and 16: every row, all variables; the steps on three chips within 0.1 %."""
    found = interpolate_workload(traced(model, 64), traced(model, 16), batch_size=8)
    truth = traced(model, 8)

    assert found.steps == truth.steps == 160
    assert found.memory.compute_fixed_bytes(compiled=True) == truth.memory.compute_fixed_bytes(compiled=True)
    assert found.flops_per_step == pytest.approx(truth.flops_per_step, rel=1e-6)
    assert found.memory.input_bytes == truth.memory.input_bytes
    predictor, chips = Predictor.load(), load_catalog().accelerators
    for chip in ("T4", "V100-16GB", "A100-80GB"):
        ours, theirs = (predictor.step_time(one, chips[chip], look_up=False) for one in (found, truth))
        assert isinstance(ours, StepTime)
        assert isinstance(theirs, StepTime)
        assert ours.time_s.mid == pytest.approx(theirs.time_s.mid, rel=1e-3)


def test_other_work_is_not_resized() -> None:
    """Another precision, another number of rows, or the same batch size: no line can be drawn."""
    one = make_workload(batch_size=32)
    assert can_resize(one, replace(one, batch_size=16))
    assert not can_resize(one, one)
    assert not can_resize(one, replace(one, batch_size=16, precision="mixed_float16"))
    assert not can_resize(one, replace(one, batch_size=16, ops=()) if one.ops else replace(one, parameters=1))


def test_a_resizer_traces_once_for_any_number_of_sizes() -> None:
    """At an eighth of the batch; where the rows differ, at each size that is asked for."""
    one, asked = make_workload(batch_size=64), []

    def trace(batch_size: int) -> Workload:
        asked.append(batch_size)
        return replace(one, batch_size=batch_size)

    resizer = Resizer(one, trace)
    assert [resizer(size).batch_size for size in (64, 32, 16, 8, 4, 32)] == [64, 32, 16, 8, 4, 32]
    assert asked == [8]

    def another(batch_size: int) -> Workload:
        return replace(trace(batch_size), parameters=batch_size)

    asked.clear()
    resizer = Resizer(one, another)
    assert resizer(32).batch_size == 32
    assert asked == [8, 32]
