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
from pathlib import Path

from ...units import GIB
from .compiled_predictor import CompiledStep, CompileTarget

POLL_S = 0.2
LIMIT_S = 600.0
LIMIT_BYTES = 12 * GIB  # of the child's resident memory
MODULE = f"{__package__}.child"


def compile_step(
    module: bytes,
    *,
    target: CompileTarget,
    compiler: str,
    limit_s: float = LIMIT_S,
    limit_bytes: int = LIMIT_BYTES,
) -> CompiledStep:
    """Compile a lowered step in a child process.

    Args:
        module: Serialized StableHLO module.
        target: Compilation target.
        compiler: Versions of the compiler's packages.
        limit_s: Time limit [s].
        limit_bytes: Limit of the child's resident memory [bytes].
    """
    with tempfile.TemporaryDirectory(prefix="gpuplan-compile-") as folder:
        path, request, answer, said = (
            Path(folder, name) for name in ("module.bin", "request.json", "answer.json", "said.txt")
        )
        path.write_bytes(module)
        facts = {"module": str(path), "compiler": compiler}
        facts |= {name: getattr(target, name) for name in ("platform", "topology", "description")}
        request.write_text(json.dumps(facts), encoding="utf-8")
        with said.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, str(request), str(answer)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_build_environment(folder),
            )
            try:
                ended = _watch(process, limit_s, limit_bytes)
            finally:
                process.kill()
                process.wait()
        if answer.is_file():
            return CompiledStep(**json.loads(answer.read_bytes()))
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


def _watch(process: subprocess.Popen[bytes], limit_s: float, limit_bytes: int) -> CompiledStep | None:
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
        if gone_s > limit_s:
            message = f"the compiler took more than {limit_s:.0f} s and was stopped"
            return CompiledStep(fault="timed out", message=message, hint="use a smaller model, or allow more time")
        try:
            resident = watched.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        if resident > limit_bytes:
            message = f"the compiler took more than {limit_bytes / GIB:.0f} GiB here and was stopped"
            return CompiledStep(fault="out of memory", message=message, hint="use a machine with more memory")


def _build_exit_fault(code: int, target: CompileTarget, said: Path) -> CompiledStep:
    lines = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if code < 0:
        return _build_signal_fault(-code, target, lines)
    last = lines[-1].strip() if lines else "it printed nothing"
    message = f"the compiler for {target.accelerator} ended with exit code {code}: {last[:200]}"
    return CompiledStep(fault="failed", message=message)


def _build_signal_fault(number: int, target: CompileTarget, lines: Sequence[str]) -> CompiledStep:
    """Return the fault for a compiler ended by a signal, its own (SIGABRT, SIGSEGV) or an external one."""
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    checks = [line.strip() for line in lines if "Check fail" in line]
    why = f": {checks[0][:200]}" if checks else ""
    if number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE):
        message, hint = f"the compiler for {target.accelerator} crashed ({name}){why}", "another batch size"
    else:
        message = f"the compiler for {target.accelerator} was killed by {name}"
        hint = "out of memory?" if number == signal.SIGKILL else ""
    return CompiledStep(fault="killed", message=message, hint=hint)
