"""The parent's side of the child process that runs the user's code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import GpuplanError, UsageError
from .faults import CaptureError
from .options import WorkloadOptions

__all__ = ["run_child"]

STDERR = 2
INTERRUPTED = 130
SECONDS_TO_STOP = 3.0


def run_child(text: str, *, base: Path, options: WorkloadOptions, argv: Sequence[str]) -> dict[str, Any]:
    """Trace a reference in a process of its own, so that neither its backend nor its policies leak.

    Returns:
        `workload` (see `Workload.from_json`) and `files` (path to hash of every file that took part).

    Raises:
        UsageError, CaptureError: As the child found.
        GpuplanError: The child was killed.
    """
    request = {
        "reference": text,
        "base": str(base),
        "options": options.to_json(),
        "argv": list(argv),
        "backend": os.environ.get("KERAS_BACKEND"),
    }
    with tempfile.TemporaryDirectory(prefix="gpuplan-") as folder:
        request_path, result_path = Path(folder, "request.json"), Path(folder, "result.json")
        request_path.write_text(json.dumps(request), encoding="utf-8")
        code = _run([request_path, result_path])
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if not result_path.exists():
            raise _without_result(text, code)
        return _unwrap(json.loads(result_path.read_bytes()))


def _run(arguments: Sequence[Path]) -> int:
    """Run the child to its end; whatever ends this call ends the child too."""
    command = [sys.executable, "-P", "-m", f"{__package__}.capture_child", *map(str, arguments)]
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=STDERR, env=environment)
    try:
        return child.wait()
    finally:
        _stop(child)


def _stop(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _without_result(text: str, code: int) -> GpuplanError:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    hint = "out of memory?" if code == -9 else "what it printed above says more"
    return GpuplanError(f"the process that ran `{text}` {how} and left no result", hint=hint)


def _unwrap(answer: dict[str, Any]) -> dict[str, Any]:
    error = answer.get("error")
    if error is None:
        return answer
    kind = UsageError if error["kind"] == "usage" else CaptureError
    raise kind(error["message"], hint=error["hint"])
