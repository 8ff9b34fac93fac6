"""Parent's side of a measuring process: start, messages, limits on memory and time, end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ..child_process import ChildLimitError, ChildProcess
from ..errors import GpuplanError
from ..profile_schema import LoadRecord, MeasuredValues
from ..workload.capture.process import ScriptProcess, build_process_environment, rebuild_error
from ..workload.options import ScriptOptions
from .background_load import LoadMonitor
from .machine import DOCTOR, read_device_state, require_device
from .statistics import MIN_WINDOWS
from .windows import MeasurementRules, Meter

MEMORY_RESERVE = 0.05  # share of the host's memory left to other processes [-]
PROBE_S = 180.0
CHILD = f"{__package__}.child"
PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}


def build_child_environment(
    backend: str, device: str | None, terms: ScriptOptions, folder: Path
) -> dict[str, str]:
    """Build the environment of a measuring process: backend, device, no preallocated device memory."""
    environment = build_process_environment(terms.variables, folder)
    environment |= {"KERAS_BACKEND": backend, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    if device is not None:
        environment["JAX_PLATFORMS"] = PLATFORMS[device]
    if device == "cpu":
        environment |= {"KERAS_TORCH_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "-1"}
    return environment


def ask_device(backend: str, device: str | None = None, *, timeout_s: float = PROBE_S) -> dict[str, Any] | str:
    """Return the facts of `read_backend_facts`, or why there are none, as a process says that ends at once.

    A TPU belongs to one process at a time.
    """
    child = ChildProcess(
        f"{__package__}.machine",
        {"backend": backend},
        build_environment=partial(build_child_environment, backend, device, ScriptOptions()),
        limit_s=timeout_s,
    )
    try:
        message = child.receive()
    except ChildLimitError:
        return f"no answer within {timeout_s:g} s"
    finally:
        child.stop()
    if message is None:
        return (child.output.read_lines() or [f"ended with code {child.process.returncode}"])[-1].strip()
    facts: dict[str, Any] = message["facts"]
    return facts


def probe_device(backend: str, device: str | None) -> dict[str, Any]:
    """Return the facts of `read_backend_facts` on the device that a backend uses; None for its default.

    Raises:
        UsageError: The backend uses another device.
        GpuplanError: The backend does not start.
    """
    facts = ask_device(backend, device)
    if isinstance(facts, str):
        raise GpuplanError(f"{backend} does not start: {facts}", hint=DOCTOR)
    require_device(facts, device)
    return facts


@dataclass(slots=True)
class ProcessResult:
    """Result of one process."""

    status: str = "failed"  # `measured`, `out_of_memory`, `failed` or `interrupted`
    # measured values; after an interruption, those that had arrived
    values: MeasuredValues = field(default_factory=MeasuredValues)
    environment: dict[str, Any] | None = None  # environment of the child; None if it ended before it had a model
    load: LoadRecord | None = None  # processor use during the measurement; None if there was none
    message: str | None = None  # reason for not being measured
    is_late: bool = False  # whether it was stopped at its time limit


class MeasuringProcess(ScriptProcess):
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
            request: Request to `module`, `CHILD` or one with the same messages; each is told to `on_event`.
            terms: Options for running the user's code until there is a model.
            limit_s: Time after which it is stopped, with the windows that it has by then; None for no limit [s].
            host_bytes: Resident memory at which it is stopped; None for what the host has [bytes].
        """
        self._on_event, self.result = on_event, ProcessResult()
        self._state: dict[str, Any] | None = None
        self._meters: dict[str, Meter] = {}
        self._watch: LoadMonitor | None = None
        build = partial(build_child_environment, request["backend"], request["device"], terms)
        terms = replace(terms, tell=lambda line: on_event({"event": "script", "at": line}))
        how: dict[str, Any] = {"limit_s": limit_s, "limit_bytes": host_bytes}
        super().__init__(module, request, terms=terms, build_environment=build, **how)

    def start(self, *, limit_s: float | None) -> None:
        """Give the device to a process that is prepared, with another time limit from now on [s]."""
        self.set_limit(limit_s)
        self.ask()

    def run(self, *, until: str = "done") -> ProcessResult:
        """Receive messages until a certain one, or until the measurement or the process ends.

        At the time limit, enough windows are a measurement.

        Raises:
            ScriptTimeoutError: The user's code exceeded its time limit.
        """
        try:
            while (message := self.receive()) is not None:
                self._on_event(message)
                if self._take(message) or message["event"] == until:
                    return self.result
        except ChildLimitError as limit:
            self.stop()
            if limit.memory:
                return self._finish("out_of_memory", str(limit))
            meter = self._meters.get("fit")
            if meter is None or len(meter.steps_s) < MIN_WINDOWS:
                self.result.is_late = True
                return self._finish("failed", f"not measured within {self.limit_s:.0f} s")
            self.result.values["fit"] = meter.to_json() | {"stopped": "interrupted"}
            held = f"stopped after {self.limit_s:.0f} s, with {len(meter.steps_s)} windows"
            return self._finish("measured", held)
        code, lines = self.process.returncode, self.output.read_lines()
        if code == -signal.SIGKILL:
            killed = "the process was killed, as the system does when memory is used up"
            return self._finish("out_of_memory", killed)
        last = lines[-1][:300] if lines else "it printed nothing"
        return self._finish("failed", f"the process ended with code {code}: {last}")

    def check(self) -> None:
        """Raise ChildLimitError also where the host runs out of memory."""
        import psutil

        memory = psutil.virtual_memory()
        is_short = memory.available <= MEMORY_RESERVE * memory.total
        if is_short and self.read_resident_bytes() > memory.available:
            message = "the host's memory was nearly used up; the process was stopped"
            raise ChildLimitError(message, memory=True)
        super().check()

    def _take(self, message: dict[str, Any]) -> bool:
        """Process a message; return whether it was the last."""
        event = message["event"]
        if event == "ready":
            self.runs_script = False
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
            if error := rebuild_error(message):
                raise error
            self._finish(message["kind"], message["message"])
            return True
        return False

    def _finish(self, status: str, message: str | None) -> ProcessResult:
        self.result.status, self.result.message = status, message
        self.result.load = self._watch.stop() if self._watch is not None else None
        return self.result

    def interrupted(self) -> ProcessResult:
        """Return the windows received so far as the result."""
        phases: tuple[Literal["fit", "step"], ...] = ("fit", "step")
        for phase in phases:
            if phase in self._meters:
                self.result.values[phase] = self._meters[phase].to_json() | {"stopped": "interrupted"}
        return self._finish("interrupted", "stopped by the user")
