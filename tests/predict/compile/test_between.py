"""Steps between two batch sizes that were compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import FakePredictor, make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.compile.compiled import CompiledStep, CompileFault
from gpuplan.predict.compile.compiled_predictor import Compilation, CompiledPredictor
from gpuplan.predict.compile.constants import load_constants
from gpuplan.predict.compile.targets import find_target
from gpuplan.predict.step_time import StepTime

V5E = replace(load_catalog().accelerators["TPU-v5e"], fp32_tflop_per_s=10.0)


def outcome(cycles: float, needed_bytes: int) -> Compilation:
    target = find_target(V5E)
    assert target is not None
    result = CompiledStep(compiler="libtpu 1", compile_s=1.0, needed_bytes=needed_bytes, cycles={"k": cycles})
    return Compilation(target, result)


@pytest.fixture
def predictor() -> CompiledPredictor:
    """1.5 million cycles at a batch of 32, and four times as many at one of 128."""
    small = make_workload(batch_size=32)
    known = CompiledPredictor(FakePredictor(), small, {"TPU-v5e": outcome(1.5e6, 2**30)})
    known.learn(make_workload(batch_size=128), "TPU-v5e", outcome(6e6, 7 * 2**30))
    return known


def test_time_and_memory_lie_on_the_line_through_both(predictor: CompiledPredictor) -> None:
    """At 1.5 GHz the ends take 1 and 4 ms: 2 ms a third of the way, and 1 + 6 / 3 GiB."""
    step = predictor.step_time(make_workload(batch_size=64), V5E)

    assert isinstance(step, StepTime)
    assert step.basis == "compiled"
    assert step.time_s.mid == pytest.approx(2e-3 * load_constants()["tpu"].slowdown)
    assert step.memory is not None
    assert (step.memory.needed_bytes, step.memory.fits) == (3 * 2**30, True)
    assert "between the compiled batch sizes 32 and 128" in step.note


@pytest.mark.parametrize("batch_size", [16, 256])
def test_beyond_both_nothing_is_extrapolated(predictor: CompiledPredictor, batch_size: int) -> None:
    step = predictor.step_time(make_workload(batch_size=batch_size), V5E)

    assert isinstance(step, StepTime)
    assert step.basis == "modelled"


def test_a_refusal_ends_no_line(predictor: CompiledPredictor) -> None:
    target = find_target(V5E)
    assert target is not None
    refused = Compilation(target, CompileFault(kind="does not fit", message=""))
    predictor.learn(make_workload(batch_size=128), "TPU-v5e", refused)

    step = predictor.step_time(make_workload(batch_size=64), V5E)

    assert isinstance(step, StepTime)
    assert step.basis == "modelled"
