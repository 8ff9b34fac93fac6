"""Steps from compilations, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import FakePredictor, make_accelerator, make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.compile import compiled_predictor as predicting
from gpuplan.predict.compile.compiled import CompiledStep, CompileFault
from gpuplan.predict.compile.compiled_predictor import Compilation, CompiledPredictor
from gpuplan.predict.compile.constants import load_constants
from gpuplan.predict.compile.targets import find_target
from gpuplan.predict.step_time import StepTime

V3 = replace(load_catalog().accelerators["TPU-v3"], fp32_tflop_per_s=10.0)
TARGET = find_target(V3)
assert TARGET is not None
CYCLES = CompiledStep(compiler="libtpu 1", compile_s=1.0, needed_bytes=3 * 2**30, cycles={"kOutput": 94e6})


def predicted(result: CompiledStep | CompileFault, *, devices: float = 1) -> StepTime:
    workload = make_workload()
    assert TARGET is not None
    predictor = CompiledPredictor(FakePredictor(), workload, {"TPU-v3": Compilation(TARGET, result)})
    step = predictor.step_time(workload, V3, devices=devices)
    assert isinstance(step, StepTime)
    return step


def test_cycles_over_clock_and_what_was_fitted() -> None:
    """94 million cycles at 940 MHz are 0.1 s."""
    constants, step = load_constants()["tpu"], predicted(CYCLES)

    assert step.basis == "compiled"
    assert step.parts_s["compute"] == pytest.approx(0.1 * constants.slowdown)
    assert sum(step.parts_s.values()) == pytest.approx(step.time_s.mid)


def test_memory_is_the_compilers_for_both_cores_of_a_chip() -> None:
    step = predicted(CYCLES)

    assert step.memory is not None
    assert (step.memory.needed_bytes, step.memory.fits) == (6 * 2**30, True)


def test_more_chips_only_add_the_sum_of_gradients() -> None:
    one, four = predicted(CYCLES), predicted(CYCLES, devices=4)

    assert four.parts_s["compute"] == one.parts_s["compute"]
    assert four.parts_s["link"] > one.parts_s["link"] > 0


def test_a_failed_compilation_leaves_the_model_and_says_so() -> None:
    step = predicted(CompileFault(kind="killed", message="the compiler was killed by signal 9"))

    assert step.basis == "modelled"
    assert step.note == "not compiled: the compiler was killed by signal 9"


def test_the_compilers_refusal_is_the_verdict_on_memory() -> None:
    step = predicted(CompileFault(kind="does not fit", message="", needed_bytes=17 * 2**30))

    assert step.memory is not None
    assert (step.memory.needed_bytes, step.memory.fits) == (34 * 2**30, False)
    assert "does not fit" in step.note


def test_a_refusal_without_a_size_is_a_refusal() -> None:
    step = predicted(CompileFault(kind="does not fit", message=""))

    assert step.memory is not None
    assert (step.memory.needed_bytes, step.memory.fits) == (None, False)


def test_far_from_the_model_both_are_told_with_where_the_time_goes() -> None:
    """FakePredictor says 80 to 150 ms; ten times the cycles take a second."""
    slow = CompiledStep(
        compiler="libtpu 1", compile_s=1.0, needed_bytes=1, cycles={"kOutput": 9e8, "copy": 1e8}
    )

    assert "modelled says 80 to 150 ms" in predicted(slow).note
    assert "90% of the compiler's cycles are kOutput" in predicted(slow).note
    assert "modelled says" not in predicted(CYCLES).note


def test_another_workload_is_predicted_as_before() -> None:
    predictor = CompiledPredictor(FakePredictor(), make_workload(), {})

    step = predictor.step_time(make_workload(), make_accelerator("T4"))

    assert isinstance(step, StepTime)
    assert step.basis == "modelled"


KERNEL = {
    "category": "dot", "dtype": "float32", "count": 1.0, "flops": 2.0 * 1024**3, "bytes_moved": 3.0 * 2**22,
    "m": 1024, "n": 1024, "k": 1024, "batch": 1, "winograd": False, "streamed": False,
}  # fmt: skip


def on_t4(monkeypatch: pytest.MonkeyPatch, *, rows: int) -> StepTime:
    """Return one product of 1024 x 1024 float32 matrices, with constants that rest on so many rows."""
    constants = replace(load_constants()["cuda"], fitted_on={"rows": rows})
    monkeypatch.setattr(predicting, "load_constants", lambda: {"cuda": constants})
    t4 = load_catalog().accelerators["T4"]
    result = CompiledStep(compiler="xla 1", compile_s=1.0, needed_bytes=2**30, kernels=(KERNEL,))
    workload, target = make_workload(), find_target(t4)
    assert target is not None
    step = CompiledPredictor(FakePredictor(), workload, {"T4": Compilation(target, result)}).step_time(
        workload, t4
    )
    assert isinstance(step, StepTime)
    assert step.memory is not None
    assert (step.memory.needed_bytes, step.memory.fits) == (2**30, None)
    return step


def test_unchecked_kernels_of_a_gpu_give_their_memory_and_leave_the_time_to_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = on_t4(monkeypatch, rows=0)

    assert step.basis == "modelled"
    assert "memory as compiled for T4; its kernels take" in step.note


def test_kernels_that_were_checked_on_published_steps_give_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 x 1024^3 FLOP take 0.26 ms or more at the 8.1 TFLOP/s of a T4's data sheet."""
    step = on_t4(monkeypatch, rows=20)

    assert step.basis == "compiled"
    assert step.parts_s["compute"] > 2.0 * 1024**3 / 8.2e12
    assert "interval assumed" not in step.note
