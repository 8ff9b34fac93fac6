"""`gpuplan profile`: which configurations, each in a process of its own, and the file that comes of them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..errors import GpuplanError, UsageError
from ..workload.options import WorkloadOptions
from ..workload.reference import parse_reference
from .document import build_row, complete_profile, create_profile, find_accelerator_name
from .pooling import ProcessLimits, is_enough
from .windows import MeasurementRules
from .worker import MeasuringProcess, ProcessResult

__all__ = ["BACKENDS", "ProfileRequest", "profile"]

BACKENDS = ("jax", "tensorflow", "torch")
SWEEP = 4  # the default sweep's other batch is this many times smaller [-]
OnEvent = Callable[[dict[str, Any]], None]
Keep = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """What is to be measured.

    Args:
        model: A MODEL reference.
        batch_sizes: To be measured; empty: the model's own and a quarter of it [-].
        precisions: To be measured; empty: the model's own.
        backend: Keras's; None: `KERAS_BACKEND`, else JAX.
        device: Where; None: where the backend computes by itself.
        data: Random data of the true shapes, or the script's own.
        options: Mode, loss, optimizer, samples and epochs.
        argv: Arguments of a script.
        rules: When a process starts to count, and when it stops.
        several: How many processes measure each configuration.
        trace: Whether to add what the rows compute, for plans.
        typed: The options as typed, for advice that does not repeat them.
    """

    model: str
    batch_sizes: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    backend: str | None = None
    device: Literal["cpu", "gpu", "tpu"] | None = None
    data: Literal["synthetic", "script"] = "synthetic"
    options: WorkloadOptions = field(default_factory=WorkloadOptions)
    argv: tuple[str, ...] = ()
    rules: MeasurementRules = field(default_factory=MeasurementRules)
    several: ProcessLimits = field(default_factory=ProcessLimits)
    trace: bool = True
    typed: str = ""


def profile(
    request: ProfileRequest, *, on_event: OnEvent = lambda message: None, keep: Keep = lambda doc: None
) -> dict[str, Any]:
    """Measure every configuration and return the profile.

    Args:
        request: What.
        on_event: Told what goes on: `begin`, `ready`, `warm`, `window`, `done`, `failed`.
        keep: Called with the whole document whenever there is more of it; also before KeyboardInterrupt leaves.

    Raises:
        UsageError, GpuplanError: The model cannot be built; nothing was measured.
        KeyboardInterrupt: After what was measured was kept.
    """
    base = Path.cwd()
    reference = parse_reference(request.model, base=base)
    if reference.kind == "json":
        raise UsageError(f"`{request.model}` is a file of results", hint="give the model that it was made of")
    backend = _backend(request.backend)
    document = create_profile(
        model=request.model, mode=request.options.mode, backend=backend, data=request.data,
        rules=request.rules.to_json() | {"processes": request.several.to_json()}, source="profile",
    )  # fmt: skip
    configurations: list[_Configuration] = []

    def measure(configuration: _Configuration) -> None:
        try:
            configuration.run(request, backend=backend, base=base, on_event=on_event)
        except KeyboardInterrupt:
            document["status"] = "interrupted"
            raise
        finally:
            if configuration.outcomes:
                configuration.row = build_row(
                    configuration.outcomes, asked=configuration.asked, rules=request.rules, options=request.typed
                )  # fmt: skip
                document["rows"] = [one.row for one in configurations]
                _tell_machine(document, configuration.outcomes[-1])
                keep(complete_profile(document))

    for asked in _asked(request, document):
        configurations.append(_Configuration(asked))
        measure(configurations[-1])
    # Round by round, so that fast and slow minutes of the machine fall on all configurations alike.
    while due := [one for one in configurations if one.is_due(request)]:
        for configuration in due:
            measure(configuration)
    document["status"] = "complete"
    if request.trace:
        _trace(document, request, base, on_event)
    return complete_profile(document)


@dataclass(slots=True)
class _Configuration:
    """A batch size and a precision, and what came of each process that measured them.

    Args:
        asked: `batch_size`, `precision`; None where it is the model's own.
        outcomes: One a process.
        row: Of the profile, what all of them say together.
        took_s: All processes together, from start to end [s].
    """

    asked: dict[str, Any]
    outcomes: list[ProcessResult] = field(default_factory=list)
    row: dict[str, Any] = field(default_factory=dict)
    took_s: float = 0.0

    def run(self, request: ProfileRequest, *, backend: str, base: Path, on_event: OnEvent) -> None:
        """Let one more process measure; what had arrived is an outcome too when the user interrupts."""
        on_event({"event": "begin", "process": len(self.outcomes) + 1, **self.asked})
        child = _child_request(request, backend, self.asked, base) | {"pipeline": not self.outcomes}
        began_s = time.monotonic()
        worker = MeasuringProcess(child, on_event, request.options.script)
        try:
            self.outcomes.append(worker.run())
        except KeyboardInterrupt:
            worker.stop()
            self.outcomes.append(worker.interrupted())
            raise
        finally:
            worker.stop()
            self.took_s += time.monotonic() - began_s

    def is_due(self, request: ProfileRequest) -> bool:
        """Return whether another process is to measure."""
        if any(outcome.status != "measured" for outcome in self.outcomes):
            return False
        several = request.several
        return not is_enough(
            self.row["fit"], several=several, processes=len(self.outcomes), took_s=self.took_s,
            most_s=request.rules.most_s * several.fewest,
        )  # fmt: skip


def _tell_machine(document: dict[str, Any], outcome: ProcessResult) -> None:
    """Add what a process said of the machine, once."""
    if outcome.environment is not None and document["environment"] is None:
        document["environment"] = outcome.environment
        document["accelerator"] = find_accelerator_name(outcome.environment["device"])


def _trace(document: dict[str, Any], request: ProfileRequest, base: Path, on_event: OnEvent) -> None:
    """Add what each measured row computes, so that the plan knows the work; compare the memory.

    Run after everything was measured, for tracing takes a processor. What cannot be traced is a note.
    """
    from ..workload.load import load_workload

    for row in document["rows"]:
        if row["status"] != "measured":
            continue
        options = replace(
            request.options, batch_size=row["batch_size"], precision=row["asked_precision"],
            compiled=False if document["backend"] == "torch" else None,
        ).with_callback(lambda line: on_event({"event": "script", "at": line}))  # fmt: skip
        try:
            workload = load_workload(request.model, options=options, base=base, argv=request.argv)
        except GpuplanError as error:
            document["notes"].append(f"not traced, so no plan can be made of it: {error}")
            return
        row["workload"] = len(document["workloads"])
        document["workloads"].append(workload.to_json())
        _compare_memory(row["memory"], workload.memory.total_bytes)


def _compare_memory(memory: dict[str, Any] | None, predicted_bytes: int) -> None:
    """Add what was predicted, and how far off that is where the device's memory is counted."""
    if memory is None:
        return
    peak = memory["device_peak_bytes"]
    memory["predicted_bytes"] = predicted_bytes
    memory["measured_over_predicted"] = peak / predicted_bytes if peak else None


def _backend(wanted: str | None) -> str:
    name = wanted or os.environ.get("KERAS_BACKEND") or "jax"
    if name not in BACKENDS:
        raise UsageError(f"unknown backend `{name}`", hint=f"choose one of {', '.join(BACKENDS)}")
    from importlib.util import find_spec

    if find_spec(name) is None:
        raise UsageError(f"{name} is not installed", hint=f"`pip install 'gpuplan[{name}]'`")
    return name


def _asked(request: ProfileRequest, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield batch sizes and precisions; without batch sizes, the model's own tells the other one."""
    for precision in request.precisions or (None,):
        tried: set[int] = set()
        for batch_size in request.batch_sizes or (request.options.batch_size,):
            yield from _unless_too_big(document, batch_size, precision)
            tried |= {row["batch_size"] for row in document["rows"] if row["batch_size"]}
        if not request.batch_sizes and tried and request.data == "synthetic":
            own = max(tried)
            other = own // SWEEP if own >= SWEEP else own * SWEEP
            fixed = any("fixed" in (row["message"] or "") for row in document["rows"])
            if not fixed:
                yield from _unless_too_big(document, other, precision)


def _unless_too_big(
    document: dict[str, Any], batch_size: int | None, precision: str | None
) -> Iterator[dict[str, Any]]:
    """Yield a configuration unless a smaller one of its precision has not fitted."""
    full = [
        row["batch_size"] for row in document["rows"]
        if row["status"] == "out_of_memory" and row["asked_precision"] == precision and row["batch_size"]
    ]  # fmt: skip
    if batch_size is not None and full and batch_size >= min(full):
        return
    yield {"batch_size": batch_size, "precision": precision}


def _child_request(
    request: ProfileRequest, backend: str, configuration: dict[str, Any], base: Path
) -> dict[str, Any]:
    options = replace(request.options, **configuration)
    # The median of all windows is surer than that of one process's, by the root of their number.
    rules = replace(request.rules, width=request.rules.width * math.sqrt(request.several.fewest))
    return {
        "reference": request.model, "base": str(base), "options": options.to_json(), "argv": list(request.argv),
        "backend": backend, "device": request.device, "data": request.data, "rules": rules.to_json(),
    }  # fmt: skip
