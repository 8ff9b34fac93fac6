"""Parent's side of a measuring process: start, messages, limits on memory and time, end."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..errors import GpuplanError, UsageError
from ..profile_schema import LoadRecord, MeasuredValues
from ..units import GIB
from ..workload.capture.process import ScriptProcess, build_process_environment
from ..workload.options import ScriptOptions
from ..workload.reference import parse_reference
from .background_load import LoadMonitor
from .machine import read_device_state
from .statistics import MIN_WINDOWS
from .windows import MeasurementRules, Meter

POLL_S = 0.2
MEMORY_RESERVE = 0.05  # share of the host's memory left to other processes [-]
# Errors that the user can fix, by kind: a wrong argument, or code that fails before there is a model.
USER_ERRORS = {"usage": UsageError, "capture": GpuplanError}
CHILD = f"{__package__}.child"
PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}


@dataclass(slots=True)
class ProcessResult:
    """Result of one process.

    Args:
        status: `measured`, `out_of_memory`, `failed` or `interrupted`.
        values: Measured values; after an interruption, those that had arrived.
        environment: Environment of the child; None if it ended before it had a model.
        load: Processor use during the measurement; None if there was none.
        message: Reason for not being measured.
        is_late: Whether it was stopped at its time limit.
    """

    status: str = "failed"
    values: MeasuredValues = field(default_factory=MeasuredValues)
    environment: dict[str, Any] | None = None
    load: LoadRecord | None = None
    message: str | None = None
    is_late: bool = False


def build_child_environment(
    backend: str, device: str | None, *, terms: ScriptOptions, folder: Path
) -> dict[str, str]:
    """Build the environment of a measuring process: backend, device, no preallocated device memory."""
    environment = build_process_environment(terms, folder)
    environment |= {"KERAS_BACKEND": backend, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    if device is not None:
        environment["JAX_PLATFORMS"] = PLATFORMS[device]
    if device == "cpu":
        environment |= {"KERAS_TORCH_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "-1"}
    return environment


class MeasuringProcess:
    """A child process that measures one configuration."""

    def __init__(
        self,
        request: Mapping[str, Any],
        on_event: Callable[[dict[str, Any]], None],
        terms: ScriptOptions,
        *,
        limit_s: float | None = None,
        host_bytes: int | None = None,
        module: str = CHILD,
    ) -> None:
        """Start the process; call `stop` at the end.

        Args:
            request: Request to `module`.
            on_event: Callback for every message.
            terms: Options for running the user's code until there is a model.
            limit_s: Time after which it is stopped, with the windows that it has by then; None for no limit [s].
            host_bytes: Resident memory at which it is stopped; None for what the host has [bytes].
            module: Module to run, `CHILD` or one with the same messages.
        """
        self._limit_s, self._began_s = limit_s, time.monotonic()
        self._host_bytes, self._on_event = host_bytes, on_event
        self._folder = tempfile.TemporaryDirectory(prefix="gpuplan-")
        folder, base, reference = Path(self._folder.name), Path(request["base"]), request["reference"]
        path = folder / "request.json"
        path.write_text(json.dumps(request), encoding="utf-8")
        self._log = (folder / "log").open("w+", encoding="utf-8", errors="replace")
        self._child = ScriptProcess(
            module,
            [path],
            name=reference,
            terms=replace(terms, tell=lambda line: on_event({"event": "script", "at": line})),
            environment=build_child_environment(request["backend"], request["device"], terms=terms, folder=folder),
            own=parse_reference(reference, base=base).folder(base),
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self.process = self._child.process
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.result = ProcessResult()
        self._state: dict[str, Any] | None = None
        self._meters: dict[str, Meter] = {}
        self._watch: LoadMonitor | None = None

    def _read(self) -> None:
        if self.process.stdout is not None:
            for line in self.process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def start(self, *, limit_s: float | None) -> None:
        """Give the device to a process that is prepared, with another time limit from now on [s]."""
        self._limit_s, self._began_s = limit_s, time.monotonic()
        self._child.ask()

    def run(self, *, until: str = "done") -> ProcessResult:
        """Receive messages until a certain one, or until the measurement or the process ends."""
        while True:
            try:
                line = self._lines.get(timeout=POLL_S)
            except queue.Empty:
                if self._stop_if_over_limit() or self._stop_if_too_late():
                    return self.result
                continue
            if line is None:
                return self._explain_exit()
            message = json.loads(line)
            self._on_event(message)
            if self._receive(message) or message["event"] == until or self._stop_if_too_late():
                return self.result

    def _stop_if_over_limit(self) -> bool:
        """Stop the process if the host runs out of memory; return whether it did.

        Raises:
            ScriptTimeoutError: The user's code exceeded its time limit.
        """
        if self.result.environment is None:
            self._child.check()
        excess = self._find_excess()
        if excess is not None:
            self.stop()
            self._finish("out_of_memory", excess)
        return excess is not None

    def _stop_if_too_late(self) -> bool:
        """Stop the process at its time limit; return whether it did. Enough windows are a measurement."""
        if self._limit_s is None or time.monotonic() - self._began_s < self._limit_s:
            return False
        self.stop()
        windows = len(self._meters["fit"].steps_s) if "fit" in self._meters else 0
        if windows >= MIN_WINDOWS:
            self._keep_windows("fit")
            self._finish("measured", f"stopped after {self._limit_s:.0f} s, with {windows} windows")
        else:
            self._finish("failed", f"not measured within {self._limit_s:.0f} s").is_late = True
        return True

    def _receive(self, message: dict[str, Any]) -> bool:
        """Process a message; return whether it was the last."""
        event = message["event"]
        if event == "ready":
            self.result.environment = message["environment"]
            self.result.values = {"batch_size": message["batch_size"], "prepare": message["facts"]}
            self._watch = LoadMonitor([self.process.pid])
        elif event == "window":
            self._state = self._state or read_device_state()
            meter = self._meters.setdefault(message["phase"], Meter(MeasurementRules()))
            meter.steps_s.append(message["step_s"])
            meter.counts.append(message["steps"])
        elif event == "done":
            self.result.values = message["row"] | {"state_while_timed": self._state}
            self._finish("measured", None)
            return True
        elif event == "failed":
            kind = message["kind"]
            if kind in USER_ERRORS:
                raise USER_ERRORS[kind](message["message"], hint=message["hint"])
            self._finish(kind, message["message"])
            return True
        return False

    def _finish(self, status: str, message: str | None) -> ProcessResult:
        self.result.status, self.result.message = status, message
        self.result.load = self._watch.stop() if self._watch is not None else None
        return self.result

    def _explain_exit(self) -> ProcessResult:
        code = self.process.wait()
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        if code == -signal.SIGKILL:
            return self._finish(
                "out_of_memory", "the process was killed, as the system does when memory is used up"
            )
        last = lines[-1][:300] if lines else "it printed nothing"
        return self._finish("failed", f"the process ended with code {code}: {last}")

    def _find_excess(self) -> str | None:
        """Return the reason to stop the process for its use of the host's memory; None while there is none."""
        import psutil

        memory = psutil.virtual_memory()
        short = memory.available <= MEMORY_RESERVE * memory.total
        own_bytes = 0
        with suppress(psutil.Error):
            own_bytes = psutil.Process(self.process.pid).memory_info().rss
        if short and own_bytes > memory.available:
            return "the host's memory was nearly used up; the process was stopped"
        if self._host_bytes is not None and own_bytes > self._host_bytes:
            return f"{own_bytes / GIB:.1f} GiB of host memory, more than {self._host_bytes / GIB:.1f} allowed"
        return None

    def interrupted(self) -> ProcessResult:
        """Return the windows received so far as the result."""
        self._keep_windows("fit", "step")
        return self._finish("interrupted", "stopped by the user")

    def _keep_windows(self, *phases: Literal["fit", "step"]) -> None:
        """Take the windows received so far for the timing of phases."""
        for phase in phases:
            if phase in self._meters:
                self.result.values[phase] = self._meters[phase].to_json() | {"stopped": "interrupted"}

    def stop(self) -> None:
        """End the process and its descendants, and clean up; may be called repeatedly."""
        self._child.stop()
        self._reader.join(timeout=5)
        for stream in (self.process.stdout, self._log):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._folder.cleanup()
