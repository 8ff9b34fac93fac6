"""The process that times one configuration: builds and compiles, waits to be told, then has the device to itself.

It is started by `measure_device.py`, reads lines from stdin and writes lines of JSON to what was stdout; what
libraries print goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measuring.clock import Rules, summary, time_steps
from measuring.kernels import trace_kernels

STDOUT, STDERR = 1, 2
OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "out of memory", "OutOfMemory", "Failed to allocate")


def main() -> int:
    """Answer the request on the command line: `probe` describes the device, `measure` times a configuration."""
    request = json.loads(sys.argv[1])
    out = os.fdopen(os.dup(STDOUT), "w", buffering=1)
    os.dup2(STDERR, STDOUT)
    try:
        (_probe if request["do"] == "probe" else _measure)(request, out)
    except Exception as error:
        _tell(out, event="failed", status=_status(error), message=_one_line(error))
        return 1
    return 0


def _tell(out: IO[str], **message: Any) -> None:
    out.write(json.dumps(message) + "\n")


def _probe(request: dict[str, Any], out: IO[str]) -> None:
    from measuring.machine import device_of, software

    backend = request["backend"]
    _tell(out, event="done", device=device_of(backend), software=software(backend, os.environ))


def _measure(request: dict[str, Any], out: IO[str]) -> None:
    from measuring.stepper import stepper_for

    wanted, rules = request["configuration"], Rules(**request["rules"])
    started = time.perf_counter()
    import keras  # noqa: F401  (timed apart: it loads the backend)

    import_s = time.perf_counter() - started
    if wanted["backend"] == "torch":
        _limit_torch(request["memory_fraction"])
    stepper = stepper_for(
        wanted["backend"],
        wanted["model"],
        batch_size=wanted["batch_size"],
        mode=wanted["mode"],
        precision=wanted["precision"],
    )
    _tell(out, event="ready", facts={"import_s": import_s, **stepper.facts})
    if not sys.stdin.readline().startswith("go"):
        return
    stepper.move()
    timing = time_steps(
        stepper.step,
        stepper.synchronize,
        rules=rules,
        clock=time.perf_counter,
        warm=lambda: _tell(out, event="warm"),
    )
    result = {**summary(timing, rules=rules), **stepper.after()}
    if request.get("kernels"):
        result["kernels"] = trace_kernels(wanted["backend"], stepper.step, stepper.synchronize)
    _tell(out, event="done", result=result)


def _limit_torch(fraction: float) -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(fraction)


def _status(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    memory = isinstance(error, MemoryError) or any(sign in text for sign in OUT_OF_MEMORY)
    return "out_of_memory" if memory else "failed"


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:400]


if __name__ == "__main__":
    sys.exit(main())
