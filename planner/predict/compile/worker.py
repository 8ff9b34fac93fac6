"""The parent's side of a compilation: a child process with a limit of time and one of memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...units import GIB
from ...workload.layout import Mesh
from .compiled import (
    Compiled,
    CompileFault,
    answer_path,
    drop_oldest,
    recall,
    result_from,
    result_key,
    retain,
)
from .targets import INSTALL, Target, compiler_version

__all__ = ["Limits", "compile_step", "missing_compiler"]

POLL_S = 0.2
MODULE = f"{__package__}.child"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a compilation may take.

    Args:
        seconds: Longest [s].
        memory_bytes: Resident, of the child [bytes].
    """

    seconds: float = 600.0
    memory_bytes: int = 12 * GIB


@dataclass(frozen=True, slots=True)
class _How:
    limits: Limits
    tell: Callable[[float], None]
    child: str
    kept: str  # where the compiler's answer is, or is to be put; empty: nowhere
    mesh: Mesh


def compile_step(
    module: Path, *, digest: str, target: Target, limits: Limits | None = None, use_cache: bool = True,
    tell: Callable[[float], None] = lambda _: None, child: str = MODULE, mesh: Mesh = (),
) -> Compiled | CompileFault:  # fmt: skip
    """Return what the compiler says of a lowered step, from the cache when it was asked before.

    Args:
        module: File of the lowered step.
        digest: Of that file.
        target: What to compile for.
        limits: Of time and memory.
        use_cache: Whether an earlier result of the same content may be taken.
        tell: Called a few times a second with the seconds gone.
        child: Module that compiles.
        mesh: Axes of the devices that the step is laid out over; empty: one device.
    """
    compiler = compiler_version(target.platform)
    if compiler is None:
        return missing_compiler(target)
    key = result_key(module=digest, target=target.digest, compiler=compiler)
    known = recall(key) if use_cache else None
    if known is not None:
        return known
    kept = answer_path(module=digest, target=target.digest, compiler=compiler) if use_cache else None
    how = _How(limits or Limits(), tell, child, str(kept or ""), mesh)
    result = _compile(module, target, compiler, how)
    if use_cache:
        retain(key, result)
        drop_oldest()
    return result


def missing_compiler(target: Target) -> CompileFault:
    """Return what to say, and what to install, where a target's compiler is not there."""
    message = f"no compiler for {target.accelerator} is installed"
    return CompileFault(kind="missing", message=message, hint=f"`{INSTALL[target.platform]}`")


def _compile(module: Path, target: Target, compiler: str, how: _How) -> Compiled | CompileFault:
    with tempfile.TemporaryDirectory(prefix="gpuplan-compile-") as folder:
        request, answer, said = (Path(folder, name) for name in ("request.json", "answer.json", "said.txt"))
        facts = {"module": str(module), "compiler": compiler, "kept": how.kept, "mesh": how.mesh}
        facts |= {name: getattr(target, name) for name in ("platform", "topology", "description")}
        request.write_text(json.dumps(facts), encoding="utf-8")
        with said.open("wb") as output:
            command = [sys.executable, "-P", "-m", how.child, str(request), str(answer)]
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=_environment(folder)
            )
            try:
                ended = _watch(process, how.limits, how.tell)
            finally:
                _stop(process)
        if answer.is_file():
            return result_from(json.loads(answer.read_bytes()))
        return ended or _without_answer(process.returncode, target, said)


def _environment(folder: str) -> dict[str, str]:
    """Return what the child sees: no accelerator of this machine, and no log outside its own folder."""
    return {
        **os.environ, "JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax", "TPU_SKIP_MDS_QUERY": "1",
        "TPU_LOG_DIR": "disabled", "TF_CPP_MIN_LOG_LEVEL": "2", "TPU_MIN_LOG_LEVEL": "2", "TMPDIR": folder,
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # libtpu guards chips with a lock; there are none
    }  # fmt: skip


def _watch(
    process: subprocess.Popen[bytes], limits: Limits, tell: Callable[[float], None]
) -> CompileFault | None:
    """Wait for the end, or return the limit that was reached."""
    import psutil

    started_s = time.monotonic()
    watched = psutil.Process(process.pid)
    while True:
        try:
            process.wait(POLL_S)
            return None
        except subprocess.TimeoutExpired:
            gone_s = time.monotonic() - started_s
        tell(gone_s)
        if gone_s > limits.seconds:
            message = f"the compiler took more than {limits.seconds:.0f} s and was stopped"
            return CompileFault(kind="timed out", message=message, hint="a smaller model, or more time")
        try:
            resident = watched.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        if resident > limits.memory_bytes:
            message = f"the compiler took more than {limits.memory_bytes / GIB:.0f} GiB here and was stopped"
            return CompileFault(kind="out of memory", message=message, hint="a machine with more memory")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def _without_answer(code: int, target: Target, said: Path) -> CompileFault:
    lines = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if code < 0:
        return _killed(-code, target, lines)
    last = lines[-1].strip() if lines else "it said nothing"
    message = f"the compiler for {target.accelerator} ended with exit code {code}: {last[:200]}"
    return CompileFault(kind="failed", message=message)


def _killed(number: int, target: Target, lines: Sequence[str]) -> CompileFault:
    """Return what to say of a compiler that a signal ended: its own (SIGABRT, SIGSEGV), or another's."""
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    checks = [line.strip() for line in lines if "Check fail" in line]
    why = f": {checks[0][:200]}" if checks else ""
    if number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE):
        message, hint = f"the compiler for {target.accelerator} crashed ({name}){why}", "another batch size"
    else:
        message = f"the compiler for {target.accelerator} was killed by {name}"
        hint = "out of memory?" if number == signal.SIGKILL else ""
    return CompileFault(kind="killed", message=message, hint=hint)
