"""Compilations that end badly, in real child processes that only pretend to compile."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from gpuplan.predict.compile import compiled_predictor as targets
from gpuplan.predict.compile import worker
from gpuplan.predict.compile.compiled_predictor import CompiledStep, CompileTarget
from gpuplan.predict.compile.worker import compile_step
from gpuplan.units import MIB

TPU = CompileTarget(accelerator="TPU-v3", platform="tpu", topology="v3:2x2", cores=2)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Return a function that runs a fake compiler's source as the child."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(worker, "MODULE", "fake_compiler")

    def compile_with(source: str, **limits: float) -> CompiledStep:
        (tmp_path / "fake_compiler.py").write_text(source)
        return compile_step(b"", target=TPU, compiler="fake 1.0", **limits)  # type: ignore[arg-type]

    return compile_with


def test_a_killed_fake_compiler_is_one_line(run) -> None:  # type: ignore[no-untyped-def]
    result = run("import os; os.kill(os.getpid(), 9)")

    assert (result.fault, result.message) == ("killed", "the compiler for TPU-v3 was killed by SIGKILL")


def test_a_fake_compiler_that_aborts_says_which_check_failed(run) -> None:  # type: ignore[no-untyped-def]
    """As libtpu does: a line on standard error, then SIGABRT."""
    result = run(
        "import os, sys; print('F0000 x.cc:1 Check failed: a == b', file=sys.stderr, flush=True); os.abort()"
    )

    assert result.fault == "killed"
    assert result.message == "the compiler for TPU-v3 crashed (SIGABRT): F0000 x.cc:1 Check failed: a == b"


def test_a_crashing_fake_compiler_says_its_last_line(run) -> None:  # type: ignore[no-untyped-def]
    result = run("raise SystemExit('F0000 check failed: topology')")

    assert result.fault == "failed"
    assert result.message == "the compiler for TPU-v3 ended with exit code 1: F0000 check failed: topology"


def test_a_fake_compiler_that_hangs_is_stopped(run) -> None:  # type: ignore[no-untyped-def]
    result = run("import threading; threading.Event().wait()", limit_s=0.3)

    assert result.fault == "timed out"


def test_a_fake_compiler_that_takes_too_much_memory_is_stopped(run) -> None:  # type: ignore[no-untyped-def]
    result = run(
        "import threading; kept = bytearray(b'x' * 2**27); threading.Event().wait()", limit_bytes=100 * MIB
    )

    assert result.fault == "out of memory"


def test_what_a_fake_compiler_answers_is_the_result(run) -> None:  # type: ignore[no-untyped-def]
    result = run(
        "import sys; from gpuplan.child_process import Parent\n"
        "Parent(sys.argv[1]).finish('compiled', step={'compiler': 'c', 'needed_bytes': 5})"
    )

    assert result == CompiledStep(compiler="c", needed_bytes=5)


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_the_install_line_brings_every_package_that_is_looked_for(platform: str) -> None:
    """`jax.export` writes flatbuffers, which no package of JAX brings along."""
    extra = f'extra == "{platform}-compile"'
    brought = [line for line in metadata.requires("gpuplan") or () if extra in line]

    assert any(line.startswith("flatbuffers") for line in brought)
    assert any(line.startswith("jax[") for line in brought)
    assert "flatbuffers" in targets.PACKAGES[platform]


def test_a_fake_compiler_that_ends_without_an_answer_has_failed(run) -> None:  # type: ignore[no-untyped-def]
    result = run("")

    assert (result.fault, result.hint) == ("failed", "")
    assert result.message == "the compiler for TPU-v3 ended with exit code 0: it printed nothing"


def test_a_compiler_is_stopped_at_the_documented_limits() -> None:
    """docs/compile.md states both."""
    page = Path(__file__).parents[3] / "docs" / "compile.md"
    text = " ".join(page.read_text(encoding="utf-8").split())

    assert f"ten minutes or at {worker.LIMIT_BYTES / 2**30:g} GiB of memory" in text
    assert worker.LIMIT_S == 10 * 60


@pytest.mark.parametrize(
    ("text", "fault", "message", "needed_bytes"),
    [
        ("INTERNAL: no such unit\nat line 3", "failed", "the compiler failed: INTERNAL: no such unit", None),
        (" \n", "failed", "the compiler failed: ValueError", None),
        (f"INTERNAL: {'x' * 400}", "failed", f"the compiler failed: INTERNAL: {'x' * 290}", None),
        (
            "RESOURCE_EXHAUSTED: Used 2.00G of 1.75G hbm.",
            "does not fit",
            "the compiler reports that it does not fit",
            2 * 2**30,
        ),
        ("RESOURCE_EXHAUSTED: no size", "does not fit", "the compiler reports that it does not fit", None),
    ],
)
def test_an_error_of_the_compiler_is_one_line_or_a_verdict(
    text: str, fault: str, message: str, needed_bytes: int | None
) -> None:
    """The first line of an error, of at most 300 characters; out of memory is an answer, with stated bytes."""
    found = worker._build_fault(ValueError(text))

    assert (found.fault, found.message, found.needed_bytes) == (fault, message, needed_bytes)
