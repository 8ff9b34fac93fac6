"""The parent's side of one measuring process: starts it, listens, watches memory and load, ends it."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import GpuplanError, UsageError
from ..workload.capture.process import ScriptProcess, build_process_environment
from ..workload.capture.terms import ScriptOptions
from ..workload.reference import parse_reference
from .background_load import LoadMonitor, ProcessorUse
from .statistics import summarize

__all__ = ["MeasuringProcess", "ProcessResult", "build_child_environment"]

POLL_S = 0.2
MEMORY_RESERVE = 0.05  # of the host's memory, left to everybody else [-]
PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}


@dataclass(slots=True)
class ProcessResult:
    """What came of one configuration.

    Args:
        status: `measured`, `out_of_memory`, `failed`, `interrupted`.
        row: What the child measured; of an interrupted one what had arrived.
        environment: Of the child; None when it did not get that far.
        busy: What else the processor did while it measured.
        message: Why it was not measured.
    """

    status: str = "failed"
    row: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] | None = None
    busy: ProcessorUse | None = None
    message: str | None = None


def build_child_environment(
    backend: str, device: str | None, *, terms: ScriptOptions, folder: Path
) -> dict[str, str]:
    """Return the environment of a measuring process: backend, device, memory taken as needed.

    Args:
        backend: Keras's.
        device: Where it computes; None: where the backend does by itself.
        terms: On which the user's code runs.
        folder: A temporary one.
    """
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
    """One process for one configuration."""

    def __init__(
        self, request: Mapping[str, Any], on_event: Callable[[dict[str, Any]], None], terms: ScriptOptions
    ) -> None:
        """Start it; `run` listens, `stop` ends it.

        Args:
            request: See `profile_child`.
            on_event: Called with every message.
            terms: On which the user's code runs until there is a model.
        """
        self._on_event = on_event
        self._folder = tempfile.TemporaryDirectory(prefix="gpuplan-")
        folder, base, reference = Path(self._folder.name), Path(request["base"]), request["reference"]
        path = folder / "request.json"
        path.write_text(json.dumps(request), encoding="utf-8")
        self._log = (folder / "log").open("w+", encoding="utf-8", errors="replace")
        environment = build_child_environment(
            request["backend"], request["device"], terms=terms, folder=folder
        )
        reporting = replace(terms, tell=lambda line: on_event({"event": "script", "at": line}))
        self._child = ScriptProcess(
            f"{__package__}.child", [path], name=reference, terms=reporting, environment=environment,
            own=parse_reference(reference, base=base).folder(base), stdout=subprocess.PIPE, stderr=self._log,
        )  # fmt: skip
        self.process = self._child.process
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.outcome = ProcessResult()
        self._windows: dict[str, list[tuple[float, int]]] = {}
        self._watch: LoadMonitor | None = None

    def _read(self) -> None:
        if self.process.stdout is not None:
            for line in self.process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def run(self) -> ProcessResult:
        """Listen until the process is done or dead."""
        while True:
            try:
                line = self._lines.get(timeout=POLL_S)
            except queue.Empty:
                if self._is_over():
                    return self.outcome
                continue
            if line is None:
                return self._died()
            message = json.loads(line)
            self._on_event(message)
            if self._heard(message):
                return self.outcome

    def _is_over(self) -> bool:
        """Return whether it was stopped for memory; ScriptTimeoutError when the user's code took too long."""
        if self.outcome.environment is None:
            self._child.check()
        if self._starves_the_host():
            self.stop()
            self._ended("out_of_memory", "the host's memory was nearly used up; it was stopped")
            return True
        return False

    def _heard(self, message: dict[str, Any]) -> bool:
        """Take a message in; return whether it was the last."""
        event = message["event"]
        if event == "ready":
            self.outcome.environment = message["environment"]
            self.outcome.row = {"batch_size": message["batch_size"], "prepare": message["facts"]}
            self._watch = LoadMonitor([self.process.pid])
        elif event == "window":
            self._windows.setdefault(message["phase"], []).append((message["step_s"], message["steps"]))
        elif event == "done":
            self.outcome.row = message["row"]
            self._ended("measured", None)
            return True
        elif event == "failed":
            _raise_if_the_users(message)
            status = "out_of_memory" if message["kind"] == "out_of_memory" else "failed"
            self._ended(status, message["message"])
            return True
        return False

    def _ended(self, status: str, message: str | None) -> ProcessResult:
        self.outcome.status, self.outcome.message = status, message
        self.outcome.busy = self._watch.stop() if self._watch is not None else None
        return self.outcome

    def _died(self) -> ProcessResult:
        code = self.process.wait()
        self._log.seek(0)
        said = self._log.read().strip().splitlines()
        if code == -signal.SIGKILL:
            return self._ended(
                "out_of_memory", "the process was killed, as the system does when memory is used up"
            )
        last = said[-1][:300] if said else "it said nothing"
        return self._ended("failed", f"the process ended with code {code}: {last}")

    def _starves_the_host(self) -> bool:
        import psutil

        memory = psutil.virtual_memory()
        if memory.available > MEMORY_RESERVE * memory.total:
            return False
        with suppress(psutil.Error):
            own = psutil.Process(self.process.pid).memory_info().rss
            return bool(own > memory.available)
        return False

    def interrupted(self) -> ProcessResult:
        """Return what had arrived."""
        for phase, windows in self._windows.items():
            steps_s, counts = [list(column) for column in zip(*windows, strict=True)]
            found = summarize(steps_s, [int(count) for count in counts]).to_json()
            self.outcome.row[phase] = {
                **found, "windows_s": steps_s, "steps_per_window": counts, "stopped": "interrupted",
                "warm_up": {"windows_s": [], "settled": None},
            }  # fmt: skip
        return self._ended("interrupted", "stopped by the user")

    def stop(self) -> None:
        """End the process and all that it started, and clean up; may be called twice."""
        self._child.stop()
        self._reader.join(timeout=5)
        for stream in (self.process.stdout, self._log):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._folder.cleanup()


def _raise_if_the_users(message: Mapping[str, Any]) -> None:
    """Raise what the user can mend: a wrong argument, code that fails before there is a model."""
    if message["kind"] == "usage":
        raise UsageError(message["message"], hint=message["hint"])
    if message["kind"] == "capture":
        raise GpuplanError(message["message"], hint=message["hint"])
