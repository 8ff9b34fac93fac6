"""Compilation in a child process with limits of time and memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...units import GIB
from ...workload.device_mesh import Mesh
from .compiled import (
    CompiledStep,
    CompileFault,
    compute_result_key,
    load_result,
    parse_result,
    store_result,
)
from .targets import INSTALL, CompileTarget, find_compiler_version

POLL_S = 0.2
MODULE = f"{__package__}.child"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileLimits:
    """Limits of a compilation.

    Args:
        seconds: Time limit [s].
        memory_bytes: Limit of the child's resident memory [bytes].
    """

    seconds: float = 600.0
    memory_bytes: int = 12 * GIB


DEFAULT_LIMITS = CompileLimits()


def compile_step(
    module: Path,
    *,
    digest: str,
    target: CompileTarget,
    limits: CompileLimits = DEFAULT_LIMITS,
    use_cache: bool = True,
    child: str = MODULE,
    mesh: Mesh = (),
) -> CompiledStep | CompileFault:
    """Compile a lowered step, or return the cached result.

    Args:
        module: File of the lowered step.
        digest: Digest of that file.
        target: Compilation target.
        limits: Limits of time and memory.
        use_cache: Whether a cached result may be used.
        child: Module that compiles.
        mesh: Axes of the device mesh of a sharded step; empty for one device.
    """
    compiler = find_compiler_version(target.platform)
    if compiler is None:
        return build_missing_compiler_fault(target)
    key = compute_result_key(module=digest, target=target.digest, compiler=compiler)
    known = load_result(key) if use_cache else None
    if known is not None:
        return known
    result = _run_child(module, target, compiler, limits=limits, child=child, mesh=mesh)
    if use_cache:
        store_result(key, result)
    return result


def build_missing_compiler_fault(target: CompileTarget) -> CompileFault:
    """Return the fault for a missing compiler, with the command to install it."""
    message = f"no compiler for {target.accelerator} is installed"
    return CompileFault(kind="missing", message=message, hint=f"`{INSTALL[target.platform]}`")


def _run_child(
    module: Path, target: CompileTarget, compiler: str, *, limits: CompileLimits, child: str, mesh: Mesh
) -> CompiledStep | CompileFault:
    with tempfile.TemporaryDirectory(prefix="gpuplan-compile-") as folder:
        request, answer, said = (Path(folder, name) for name in ("request.json", "answer.json", "said.txt"))
        facts = {"module": str(module), "compiler": compiler, "mesh": mesh}
        facts |= {name: getattr(target, name) for name in ("platform", "topology", "description")}
        request.write_text(json.dumps(facts), encoding="utf-8")
        with said.open("wb") as output:
            command = [sys.executable, "-P", "-m", child, str(request), str(answer)]
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_build_environment(folder),
            )
            try:
                ended = _watch(process, limits)
            finally:
                _stop(process)
        if answer.is_file():
            return parse_result(json.loads(answer.read_bytes()))
        return ended or _build_exit_fault(process.returncode, target, said)


def _build_environment(folder: str) -> dict[str, str]:
    """Return the child's environment: no accelerators of this machine, and no logs outside its own folder."""
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "KERAS_BACKEND": "jax",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_LOG_DIR": "disabled",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TPU_MIN_LOG_LEVEL": "2",
        "TMPDIR": folder,
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # libtpu locks chips; there are none
    }


def _watch(process: subprocess.Popen[bytes], limits: CompileLimits) -> CompileFault | None:
    """Wait for the process to end, or return the exceeded limit."""
    import psutil

    started_s = time.monotonic()
    watched = psutil.Process(process.pid)
    while True:
        try:
            process.wait(POLL_S)
            return None
        except subprocess.TimeoutExpired:
            gone_s = time.monotonic() - started_s
        if gone_s > limits.seconds:
            message = f"the compiler took more than {limits.seconds:.0f} s and was stopped"
            return CompileFault(
                kind="timed out", message=message, hint="use a smaller model, or allow more time"
            )
        try:
            resident = watched.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        if resident > limits.memory_bytes:
            message = f"the compiler took more than {limits.memory_bytes / GIB:.0f} GiB here and was stopped"
            return CompileFault(kind="out of memory", message=message, hint="use a machine with more memory")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def _build_exit_fault(code: int, target: CompileTarget, said: Path) -> CompileFault:
    lines = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if code < 0:
        return _build_signal_fault(-code, target, lines)
    last = lines[-1].strip() if lines else "it printed nothing"
    message = f"the compiler for {target.accelerator} ended with exit code {code}: {last[:200]}"
    return CompileFault(kind="failed", message=message)


def _build_signal_fault(number: int, target: CompileTarget, lines: Sequence[str]) -> CompileFault:
    """Return the fault for a compiler ended by a signal, its own (SIGABRT, SIGSEGV) or an external one."""
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    checks = [line.strip() for line in lines if "Check fail" in line]
    why = f": {checks[0][:200]}" if checks else ""
    if number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE):
        message, hint = f"the compiler for {target.accelerator} crashed ({name}){why}", "another batch size"
    else:
        message = f"the compiler for {target.accelerator} was killed by {name}"
        hint = "out of memory?" if number == signal.SIGKILL else ""
    return CompileFault(kind="killed", message=message, hint=hint)
