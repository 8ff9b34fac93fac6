"""Memory of steps from compilations, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import FakePredictor, make_accelerator, make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.compile.compiled_predictor import CompiledPredictor, CompiledStep, CompileTarget, find_target
from gpuplan.predict.step_time import StepTime
from gpuplan.units import GIB

CATALOG = load_catalog().accelerators
V3 = replace(CATALOG["TPU-v3"], fp32_tflop_per_s=10.0)
FITS = CompiledStep(compiler="libtpu 1 jax 2", needed_bytes=3 * GIB)
REFUSED = CompiledStep(fault="does not fit", message="", needed_bytes=17 * GIB)
ALONE = FakePredictor().step_time(make_workload(), V3)


def get_target(name: str = "TPU-v3") -> CompileTarget:
    target = find_target(CATALOG[name])
    assert target is not None
    return target


def predicted(result: CompiledStep, *, name: str = "TPU-v3", batch_size: int = 32, devices: float = 1) -> StepTime:
    """Return a step at a batch size, of a workload that was compiled at 32."""
    known = {name: (get_target(name), result)}
    predictor = CompiledPredictor(FakePredictor(), make_workload(batch_size=32), known)
    accelerator = V3 if name == "TPU-v3" else CATALOG[name]
    step = predictor.step_time(make_workload(batch_size=batch_size), accelerator, devices=devices)
    assert isinstance(step, StepTime)
    return step


@pytest.mark.parametrize("devices", [1, 4])
def test_memory_is_the_compilers_for_both_cores_of_a_chip_and_the_time_the_models(devices: int) -> None:
    step = predicted(FITS, devices=devices)

    assert isinstance(ALONE, StepTime)
    assert (step.time_s, step.basis) == (ALONE.time_s, "modelled")
    assert step.memory is not None
    assert (step.memory.needed_bytes, step.memory.fits) == (6 * GIB, True)
    assert step.note == "memory as compiled for TPU-v3 by libtpu 1"


def test_a_gpus_size_decides_whether_it_fits() -> None:
    step = predicted(FITS, name="T4")

    assert step.memory is not None
    assert (step.memory.needed_bytes, step.memory.fits) == (3 * GIB, None)


@pytest.mark.parametrize("batch_size", [32, 64])
def test_a_failed_compilation_leaves_the_model_and_says_so(batch_size: int) -> None:
    fault = CompiledStep(fault="killed", message="the compiler was killed by signal 9")
    step = predicted(fault, batch_size=batch_size)

    assert step.memory is None
    assert step.note == "not compiled: the compiler was killed by signal 9"


def test_the_compilers_refusal_is_the_verdict_on_memory() -> None:
    step = predicted(REFUSED)

    assert step.memory is not None
    assert (step.memory.needed_bytes, step.memory.fits) == (34 * GIB, False)
    assert "does not fit" in step.note


def test_a_refusal_without_a_size_is_a_refusal() -> None:
    step = predicted(CompiledStep(fault="does not fit", message=""))

    assert step.memory is not None
    assert (step.memory.needed_bytes, step.memory.fits) == (None, False)


@pytest.mark.parametrize(("batch_size", "known"), [(16, False), (64, True)])
def test_what_does_not_fit_does_not_at_larger_batch_sizes_either(batch_size: int, known: bool) -> None:
    memory = predicted(REFUSED, batch_size=batch_size).memory

    assert (memory is not None) is known
    assert memory is None or (memory.needed_bytes, memory.fits) == (None, False)


@pytest.mark.parametrize("batch_size", [16, 64])
def test_memory_at_other_batch_sizes_is_the_models(batch_size: int) -> None:
    step = predicted(FITS, batch_size=batch_size)

    assert (step.memory, step.note) == (None, "")


def test_another_workload_is_predicted_as_before() -> None:
    predictor = CompiledPredictor(FakePredictor(), make_workload(), {"T4": (get_target("T4"), FITS)})

    step = predictor.step_time(make_workload(parameters=7), make_accelerator("T4"))

    assert isinstance(step, StepTime)
    assert (step.memory, step.note) == (None, "")
