"""`gpuplan estimate --compile`, where nothing can be compiled."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from factories import make_product, make_workload
from gpuplan.estimate_document import read_offers
from gpuplan.plan import compilation
from gpuplan.predict.compile import compiled_predictor as targets
from gpuplan.predict.compile.compiled_predictor import CompiledStep
from gpuplan.units import GIB
from gpuplan.workload.capture.tracing_process import LoweredStep
from gpuplan.workload.options import WorkloadOptions

Run = Callable[..., Any]
SCHEMAS = Path(str(files("gpuplan.schemas")))


PRODUCT = make_product()


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """A saved workload of one product of 1024 x 1024 matrices."""
    path = tmp_path / "product.json"
    path.write_text(json.dumps(make_workload(ops=(PRODUCT,)).to_json()))
    return str(path)


def test_what_to_compile_for_must_be_said(gpuplan: Run, saved: str) -> None:
    done = gpuplan("estimate", saved, "--compile")

    assert done.code == 2
    assert "--compile" in done.err
    assert "--accelerator TPU-v5e" in done.err


def test_a_missing_compiler_is_one_line_and_the_row_says_so(
    gpuplan: Run, saved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(targets.PACKAGES, "cuda", ("no-such-package-at-all",))

    done = gpuplan("estimate", saved, "--compile", "--accelerator", "T4", "--provider", "aws", "--json")
    offers = read_offers(json.loads(done.out))

    assert done.code == 0
    assert done.err == (
        "warning: T4: no compiler for T4 is installed (`pip install 'gpuplan[cuda-compile]'`); "
        "its memory is modelled\n"
    )
    assert {offer["basis"] for offer in offers} == {"datasheet"}
    assert all("not compiled: no compiler for T4 is installed" in " ".join(o["notes"]) for o in offers)


def test_a_saved_workload_holds_no_program(gpuplan: Run, saved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(targets.PACKAGES, "tpu", ("pytest",))

    done = gpuplan("estimate", saved, "--compile", "--accelerator", "TPU-v5e", "--devices", "1", "--json")

    assert done.code == 0
    assert "contains measurements but no program" in done.err
    assert {offer["basis"] for offer in read_offers(json.loads(done.out))} == {"datasheet"}


def test_accelerators_that_no_compiler_describes_stay_modelled(gpuplan: Run, saved: str) -> None:
    done = gpuplan("estimate", saved, "--compile", "--accelerator", "MI300X", "--json")

    assert done.code == 0
    assert "no compiler describes these accelerators" in done.err


def test_memory_is_what_a_fake_compiler_says_and_the_time_is_the_models(
    gpuplan: Run, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 GiB are the compiler's, and not the model's."""
    result = CompiledStep(compiler="libtpu 0 jax 0", needed_bytes=3 * GIB)
    monkeypatch.setitem(targets.PACKAGES, "tpu", ("pytest",))
    monkeypatch.setattr(compilation, "lower_step", lambda *_, **__: LoweredStep(b"", {}))
    monkeypatch.setattr(compilation, "compile_step", lambda *_, **__: result)

    asked = ("estimate", saved, "--accelerator", "TPU-v5e", "--devices", "1", "--json")
    done, without = gpuplan(*asked, "--compile"), gpuplan(*asked)
    document = json.loads(done.out)
    jsonschema.validate(document, json.loads((SCHEMAS / "gpuplan.estimate.json").read_text()))

    assert done.code == 0
    assert read_offers(document)
    for offer, modelled in zip(read_offers(document), read_offers(json.loads(without.out)), strict=True):
        assert (offer["basis"], offer["step_time_s"]) == (modelled["basis"], modelled["step_time_s"])
        assert (offer["memory_bytes"], offer["memory_fits"]) == (3 * GIB, True)
        assert "memory as compiled for TPU-v5e by libtpu 0" in " ".join(offer["notes"])


@pytest.mark.parametrize("option", ["--compile", "--accelerator"])
def test_a_profile_is_compiled_by_estimate(gpuplan: Run, saved: str, option: str) -> None:
    done = gpuplan("profile", saved, option, "T4")

    assert done.code == 2
    assert "hint: run `gpuplan estimate MODEL" in done.err


def test_each_phase_is_compiled_by_a_fake_compiler(
    gpuplan: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program of each `fit()`: 3 GiB with a frozen backbone, 5 without; the run needs the larger."""
    frozen = make_workload(ops=(PRODUCT,), fit_call=0, trainable_parameters=1000)
    path = tmp_path / "phases.json"
    path.write_text(json.dumps(make_workload(ops=(PRODUCT,), fit_call=1, further=(frozen,)).to_json()))

    def lower(*_: object, options: WorkloadOptions, **__: object) -> LoweredStep:
        return LoweredStep(str(options.fit_call).encode(), {})

    def compile_it(module: bytes, **_: object) -> CompiledStep:
        return CompiledStep(compiler="libtpu 0 jax 0", needed_bytes={b"0": 3, b"1": 5}[module] * GIB)

    monkeypatch.setitem(targets.PACKAGES, "tpu", ("pytest",))
    monkeypatch.setattr(compilation, "lower_step", lower)
    monkeypatch.setattr(compilation, "compile_step", compile_it)

    done = gpuplan("estimate", str(path), "--compile", "--accelerator", "TPU-v5e", "--devices", "1", "--json")

    assert done.code == 0, done.err
    offers = read_offers(json.loads(done.out))
    assert {(offer["memory_bytes"], offer["memory_fits"]) for offer in offers} == {(5 * GIB, True)}


def test_a_fake_compilers_refusal_is_a_row_that_does_not_fit(
    gpuplan: Run, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = CompiledStep(fault="does not fit", message="does not fit", needed_bytes=20 * GIB)
    monkeypatch.setitem(targets.PACKAGES, "tpu", ("pytest",))
    monkeypatch.setattr(compilation, "lower_step", lambda *_, **__: LoweredStep(b"", {}))
    monkeypatch.setattr(compilation, "compile_step", lambda *_, **__: refusal)

    done = gpuplan("estimate", saved, "--compile", "--accelerator", "TPU-v5e", "--devices", "1", "--json")
    offers = read_offers(json.loads(done.out))

    assert {(offer["memory_bytes"], offer["memory_fits"]) for offer in offers} == {(20 * GIB, False)}


@pytest.mark.parametrize(
    ("found", "again"),
    [
        (CompiledStep(compiler="fake 1", needed_bytes=3 * GIB), ("fake 1", 1)),
        (CompiledStep(compiler="fake 1", needed_bytes=3 * GIB), ("fake 2", 2)),
        (CompiledStep(fault="does not fit", needed_bytes=20 * GIB), ("fake 1", 1)),
        (CompiledStep(fault="killed", message="signal 9"), ("fake 1", 2)),
    ],
)
def test_what_a_fake_compiler_found_is_kept_and_a_crash_is_not(
    gpuplan: Run, saved: str, monkeypatch: pytest.MonkeyPatch, found: CompiledStep, again: tuple[str, int]
) -> None:
    """The same question twice; `again` is the compiler of the second, and the compilations of both."""
    asked: list[object] = []

    def compile_it(*_: object, **how: object) -> CompiledStep:
        asked.append(how)
        return found

    monkeypatch.setattr(compilation, "lower_step", lambda *_, **__: LoweredStep(b"", {}))
    monkeypatch.setattr(compilation, "compile_step", compile_it)
    memory = []
    for installed in ("fake 1", again[0]):
        monkeypatch.setattr(compilation, "find_compiler_version", lambda _, installed=installed: installed)
        done = gpuplan("estimate", saved, "--compile", "--accelerator", "TPU-v5e", "--devices", "1", "--json")
        memory.append([offer["memory_bytes"] for offer in read_offers(json.loads(done.out))])

    assert len(asked) == again[1]
    assert memory[0] == memory[1]


def test_a_step_is_lowered_once_for_accelerators_of_one_compiler(
    gpuplan: Run, saved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A v5e and a v6e have one core each, a v3 has two, which share the batch."""
    asked: list[int | None] = []

    def lower(*_: object, options: WorkloadOptions, **__: object) -> LoweredStep:
        asked.append(options.batch_size)
        return LoweredStep(b"", {})

    monkeypatch.setitem(targets.PACKAGES, "tpu", ("pytest",))
    monkeypatch.setattr(compilation, "lower_step", lower)
    monkeypatch.setattr(compilation, "compile_step", lambda *_, **__: CompiledStep(needed_bytes=GIB))
    names = (word for name in ("TPU-v5e", "TPU-v6e", "TPU-v3") for word in ("--accelerator", name))

    done = gpuplan("estimate", saved, "--compile", *names, "--json")

    assert done.code == 0
    assert sorted(asked) == [16, 32]
