"""Compilations that end badly, in real child processes that only pretend to compile; what is kept of others."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from gpuplan.predict.compile import targets, worker
from gpuplan.predict.compile.compiled import (
    CompiledStep,
    CompileFault,
    compute_result_key,
    load_result,
    store_result,
)
from gpuplan.predict.compile.targets import CompileTarget
from gpuplan.predict.compile.worker import CompileLimits, compile_step
from gpuplan.units import MIB

TPU = CompileTarget(accelerator="TPU-v3", platform="tpu", topology="v3:2x2", cores=2)
GOOD = """
import json, sys
facts = {"compiler": "c", "needed_bytes": 5}
json.dump({"schema": "x", "fault": False, **facts}, open(sys.argv[2], "w"))
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Return a function that runs a fake compiler's source as the child, with a cache of its own."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(worker, "find_compiler_version", lambda platform: "fake 1.0")

    def compile_with(source: str, **limits: float) -> CompiledStep | CompileFault:
        (tmp_path / "fake_compiler.py").write_text(source)
        return compile_step(
            tmp_path / "module", digest="d", target=TPU, child="fake_compiler", limits=CompileLimits(**limits)
        )

    return compile_with


def test_a_killed_fake_compiler_is_one_line(run) -> None:  # type: ignore[no-untyped-def]
    result = run("import os; os.kill(os.getpid(), 9)")

    assert isinstance(result, CompileFault)
    assert (result.kind, result.message) == ("killed", "the compiler for TPU-v3 was killed by SIGKILL")


def test_a_fake_compiler_that_aborts_says_which_check_failed(run) -> None:  # type: ignore[no-untyped-def]
    """As libtpu does: a line on standard error, then SIGABRT."""
    result = run(
        "import os, sys; print('F0000 x.cc:1 Check failed: a == b', file=sys.stderr, flush=True); os.abort()"
    )

    assert result.kind == "killed"
    assert result.message == "the compiler for TPU-v3 crashed (SIGABRT): F0000 x.cc:1 Check failed: a == b"


def test_a_crashing_fake_compiler_says_its_last_line(run) -> None:  # type: ignore[no-untyped-def]
    result = run("raise SystemExit('F0000 check failed: topology')")

    assert result.kind == "failed"
    assert result.message == "the compiler for TPU-v3 ended with exit code 1: F0000 check failed: topology"


def test_a_fake_compiler_that_hangs_is_stopped(run) -> None:  # type: ignore[no-untyped-def]
    result = run("import threading; threading.Event().wait()", seconds=0.3)

    assert result.kind == "timed out"


def test_a_fake_compiler_that_takes_too_much_memory_is_stopped(run) -> None:  # type: ignore[no-untyped-def]
    result = run(
        "import threading; kept = bytearray(b'x' * 2**27); threading.Event().wait()", memory_bytes=100 * MIB
    )

    assert result.kind == "out of memory"


def test_what_a_fake_compiler_found_is_asked_for_once(run) -> None:  # type: ignore[no-untyped-def]
    first = run(GOOD)
    again = run("raise SystemExit('asked again')")

    assert first == again
    assert again.needed_bytes == 5


def test_a_compiler_that_is_not_installed_gets_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(targets.PACKAGES, "tpu", ("no-such-package-at-all",))

    result = compile_step(Path("none"), digest="d", target=TPU)

    assert isinstance(result, CompileFault)
    assert (result.kind, result.hint) == ("missing", "`pip install 'gpuplan[tpu-compile]'`")


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_the_install_line_brings_every_package_that_is_looked_for(platform: str) -> None:
    """`jax.export` writes flatbuffers, which no package of JAX brings along."""
    extra = f'extra == "{platform}-compile"'
    brought = [line for line in metadata.requires("gpuplan") or () if extra in line]

    assert any(line.startswith("flatbuffers") for line in brought)
    assert any(line.startswith("jax[") for line in brought)
    assert "flatbuffers" in targets.PACKAGES[platform]


def test_a_refusal_is_kept_and_a_crash_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path))
    refusal = CompileFault(kind="does not fit", message="does not fit", needed_bytes=20 * 2**30)

    store_result("a", refusal)
    store_result("b", CompileFault(kind="killed", message="signal 9"))

    assert load_result("a") == refusal
    assert load_result("b") is None


def test_another_compiler_version_is_another_result() -> None:
    one, other = (
        compute_result_key(module="m", target=TPU.digest, compiler=version) for version in ("1", "2")
    )

    assert one != other
