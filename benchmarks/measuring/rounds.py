"""Fresh processes in rounds: several build and compile at the same time, then each has the device to itself.

A process that dies, hangs, or takes too much memory ends alone; its configuration is written down with the reason.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .machine import MOVING, resident_bytes, smi
from .models import ROOT
from .plan import Configuration

__all__ = ["Limits", "Outcome", "Worker", "ask", "child_environment", "run_round"]

WORKER = Path(__file__).with_name("worker.py")
POLL_S = 0.05
MEASURE_RESERVE_S = 4.0  # kept of the budget for each process of a round that gets ready
GIB = 2**30
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a process.

    Args:
        prepare_s: Time to import, build and compile [s].
        measure_s: Time to warm up and measure [s].
        host_bytes: Resident memory [bytes].
        device_fraction: Share of the device's memory [-].
    """

    prepare_s: float = 180.0
    measure_s: float = 60.0
    host_bytes: int = 32 * GIB
    device_fraction: float = 0.92


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a configuration.

    Args:
        configuration: What was run.
        status: `measured`, `out_of_memory`, `timed_out`, `failed`; `stopped` when the budget ended it.
        facts: For the row.
    """

    configuration: Configuration
    status: str
    facts: dict[str, Any] = field(default_factory=dict)


class Worker:
    """A process that answers one request; `poll` never waits."""

    def __init__(self, request: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self.log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  (closed by `stop`)
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=dict(environment),
            cwd=ROOT,
            start_new_session=True,
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def poll(self) -> dict[str, Any] | None:
        """Return the next message; None when there is none yet; a `failed` one when the process ended."""
        try:
            line = self.lines.get_nowait()
        except queue.Empty:
            return None
        if line is not None:
            message: dict[str, Any] = json.loads(line)
            return message
        return {"event": "failed", **self._end()}

    def _end(self) -> dict[str, Any]:
        code = self.process.wait()
        self.log.seek(0)
        last = self.log.read().strip().splitlines()[-1:] or ["it said nothing"]
        killed = code == -signal.SIGKILL
        how = f"ended with code {code}: {last[0][:300]}"
        return {"status": "out_of_memory" if killed else "failed", "message": f"the process {how}"}

    def go(self) -> None:
        """Let the process use the device."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write("go\n")
            self.process.stdin.flush()

    def stop(self) -> None:
        """End the process and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join(timeout=5)
        for stream in (self.process.stdin, self.process.stdout, self.log):
            with suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]


def child_environment(backend: str, *, platform: str, device_fraction: float) -> dict[str, str]:
    """Return the environment of a process: the backend, the device, memory taken as needed, not all at once."""
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": str(device_fraction),
    }
    if platform == "cpu":
        return {**environment, "JAX_PLATFORMS": "cpu", "KERAS_TORCH_DEVICE": "cpu"}
    environment.setdefault("CUDA_VISIBLE_DEVICES", "0")
    environment["JAX_PLATFORMS"] = "tpu,cpu" if platform == "tpu" else "cuda,cpu"
    return environment


def ask(request: Mapping[str, Any], environment: Mapping[str, str], *, within_s: float) -> dict[str, Any]:
    """Return the one answer of a process; a `failed` one when it takes too long."""
    worker = Worker(request, environment)
    try:
        return _next(worker, before=time.monotonic() + within_s, host_bytes=None)
    finally:
        worker.stop()


def _next(worker: Worker, *, before: float, host_bytes: int | None) -> dict[str, Any]:
    """Return the next message of a process, or the reason why there is none."""
    while True:
        message = worker.poll() or _excess(worker, host_bytes)
        if message is not None:
            return message
        if time.monotonic() > before:
            return {"event": "failed", "status": "timed_out", "message": "it took too long"}
        time.sleep(POLL_S)


def _excess(worker: Worker, host_bytes: int | None) -> dict[str, Any] | None:
    """Return a failure when a process holds more memory than it may."""
    held = resident_bytes(worker.process.pid) if host_bytes is not None else None
    if held is None or host_bytes is None or held <= host_bytes:
        return None
    text = f"{held / GIB:.1f} GiB of the host's memory, more than the {host_bytes / GIB:.1f} allowed"
    return {"event": "failed", "status": "out_of_memory", "message": text}


def run_round(
    configurations: Sequence[Configuration],
    *,
    rules: Mapping[str, Any],
    limits: Limits,
    platform: str,
    stop_at: float,
    kernels: bool = False,
) -> Iterator[Outcome]:
    """Yield the outcome of each configuration as soon as it is known.

    Args:
        configurations: Prepared at the same time.
        rules: Fields of `clock.Rules`.
        limits: For each process.
        platform: `gpu`, `tpu` or `cpu`.
        stop_at: When everything must have ended, in terms of `time.monotonic` [s].
        kernels: Whether the kernels of a few more steps are traced after each row.
    """
    workers: dict[Configuration, Worker] = {}
    try:
        for configuration in configurations:
            workers[configuration] = _start(
                configuration, rules=rules, limits=limits, platform=platform, kernels=kernels
            )
        ready: dict[Configuration, dict[str, Any]] = {}
        yield from _prepared(workers, ready, limits=limits, stop_at=stop_at)
        for configuration, facts in ready.items():
            yield _measured(configuration, workers[configuration], facts, limits=limits, stop_at=stop_at)
            workers[configuration].stop()
    finally:
        for worker in workers.values():
            worker.stop()


def _start(
    configuration: Configuration,
    *,
    rules: Mapping[str, Any],
    limits: Limits,
    platform: str,
    kernels: bool,
) -> Worker:
    request = {
        "do": "measure",
        "configuration": configuration.to_json(),
        "rules": dict(rules),
        "memory_fraction": limits.device_fraction,
        "kernels": kernels,
    }
    fraction = limits.device_fraction
    return Worker(
        request, child_environment(configuration.backend, platform=platform, device_fraction=fraction)
    )


def _prepared(
    workers: Mapping[Configuration, Worker],
    ready: dict[Configuration, dict[str, Any]],
    *,
    limits: Limits,
    stop_at: float,
) -> Iterator[Outcome]:
    """Fill in what got ready, with its facts; yield what did not."""
    own, budget = time.monotonic() + limits.prepare_s, stop_at - MEASURE_RESERVE_S * len(workers)
    waiting = dict(workers)
    while waiting:
        for configuration, worker in list(waiting.items()):
            message = worker.poll() or _excess(worker, limits.host_bytes)
            if message is None:
                message = _overdue(own=own, budget=budget)
            if message is None:
                continue
            del waiting[configuration]
            if message["event"] == "ready":
                ready[configuration] = message["facts"]
            else:
                worker.stop()
                yield _not_measured(configuration, message, while_="preparing")
        time.sleep(POLL_S)


def _overdue(*, own: float, budget: float) -> dict[str, Any] | None:
    now = time.monotonic()
    if now <= min(own, budget):
        return None
    status = "stopped" if budget < own else "timed_out"
    return {"event": "failed", "status": status, "message": "it was not ready in time"}


def _measured(
    configuration: Configuration, worker: Worker, facts: dict[str, Any], *, limits: Limits, stop_at: float
) -> Outcome:
    own = time.monotonic() + limits.measure_s
    state = None
    worker.go()
    while True:
        message = _next(worker, before=min(own, stop_at), host_bytes=limits.host_bytes)
        if message["event"] == "warm":
            state = smi(MOVING)
        elif message["event"] == "done":
            facts = {"prepare": facts, **message["result"], "state_while_timed": state}
            return Outcome(configuration=configuration, status="measured", facts=facts)
        else:
            if message["status"] == "timed_out" and stop_at < own:
                message = {**message, "status": "stopped"}
            return _not_measured(configuration, message, while_="measuring")


def _not_measured(configuration: Configuration, message: Mapping[str, Any], *, while_: str) -> Outcome:
    facts = {"message": f"while {while_}: {message['message']}"}
    return Outcome(configuration=configuration, status=message["status"], facts=facts)
