"""Measurement of all configurations of a model, each in several processes, as run by `gpuplan profile`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import GpuplanError, UsageError
from ..plain import to_plain
from ..profile_schema import MemoryRecord, ProfileDocument, RowRecord
from ..workload.reference import parse_reference
from .configurations import count_configurations, iter_configurations
from .document import (
    Configuration,
    build_row,
    complete_profile,
    create_profile,
    create_row,
    find_accelerator_name,
)
from .measuring_process import MeasuringProcess, ProcessResult
from .profile_request import ProfileRequest
from .schedule import Schedule
from .statistics import is_enough

BACKENDS = ("jax", "tensorflow", "torch")
OnEvent = Callable[[dict[str, Any]], None]
Keep = Callable[[ProfileDocument], None]


def profile(
    request: ProfileRequest, *, on_event: OnEvent = lambda message: None, keep: Keep = lambda doc: None
) -> ProfileDocument:
    """Measure every configuration and return the profile.

    Args:
        request: Request for a profile.
        on_event: Callback for events: `left` (expected seconds until the answer), `begin`, `ready`, `warm`,
            `window`, `done`, `failed`.
        keep: Callback with the whole document after each process, also after an interruption.

    Raises:
        UsageError, GpuplanError: The model cannot be built; nothing was measured.
        KeyboardInterrupt: The user interrupted; measured values were passed to `keep`.
    """
    base = Path.cwd()
    reference = parse_reference(request.model, base=base)
    if reference.kind == "json":
        raise UsageError(
            f"`{request.model}` contains results, not a model", hint="give the model from which it was made"
        )
    backend = select_backend(request.backend)
    document = create_profile(
        model=request.model,
        mode=request.options.mode,
        backend=backend,
        data=request.data,
        rules=to_plain(request.rules) | {"processes": to_plain(request.several)},
        source="profile",
    )
    configurations: list[_Measurement] = []
    schedule = Schedule(began_s=time.monotonic(), answer_s=request.answer_s, fewest=request.several.fewest)

    def measure(configuration: _Measurement) -> None:
        counts = [len(one.results) for one in configurations]
        unseen = max(count_configurations(request) - len(counts), 0)
        left_s = schedule.left_s(time.monotonic(), [*counts, *[0] * unseen])
        on_event({"event": "left", "left_s": left_s})
        began_s = time.monotonic()
        try:
            configuration.run(request, backend=backend, base=base, on_event=on_event)
        except KeyboardInterrupt:
            document["status"] = "interrupted"
            raise
        finally:
            schedule.took_s.append(time.monotonic() - began_s)
            if configuration.results:
                configuration.row = build_row(
                    configuration.results,
                    asked=configuration.asked,
                    rules=request.rules,
                    options=request.typed,
                )
                document["rows"] = [one.row for one in configurations]
                _add_environment(document, configuration.results[-1])
                keep(complete_profile(document))

    for asked in iter_configurations(request, document):
        configurations.append(_Measurement(asked=asked))
        measure(configurations[-1])
    # Round by round, so that temporary slowdowns of the machine affect all configurations equally.
    while due := [one for one in configurations if one.is_due(request)]:
        for configuration in due:
            if not schedule.has_time(time.monotonic()):
                break
            measure(configuration)
        else:
            continue
        break
    document["status"] = "complete"
    if request.trace:
        _trace(document, request, base, on_event)
    return complete_profile(document)


@dataclass(slots=True, kw_only=True)
class _Measurement:
    """Measurement of one configuration so far.

    Args:
        asked: Requested configuration.
        results: Results of the processes so far.
        row: Row of the profile built from the results.
        took_s: Total time of the processes, from start to end [s].
    """

    asked: Configuration
    results: list[ProcessResult] = field(default_factory=list)
    row: RowRecord = field(default_factory=lambda: create_row(status="failed", batch_size=None))
    took_s: float = 0.0

    def run(self, request: ProfileRequest, *, backend: str, base: Path, on_event: OnEvent) -> None:
        """Measure in one more process; an interruption adds the values that had arrived."""
        on_event({"event": "begin", "process": len(self.results) + 1, **self.asked})
        first = not self.results
        child = _build_child_request(request, backend, self.asked, base) | {"pipeline": first}
        child["brief"] = request.brief or (request.answer_s is not None and not first)
        began_s = time.monotonic()
        process = MeasuringProcess(child, on_event, request.options.script, limit_s=request.limit_s)
        try:
            self.results.append(process.run())
        except KeyboardInterrupt:
            process.stop()
            self.results.append(process.interrupted())
            raise
        finally:
            process.stop()
            self.took_s += time.monotonic() - began_s

    def is_due(self, request: ProfileRequest) -> bool:
        """Return whether another process should measure."""
        fit = self.row["fit"]
        if fit is None or any(result.status != "measured" for result in self.results):
            return False
        several = request.several
        return not is_enough(
            fit,
            several=several,
            processes=len(self.results),
            took_s=self.took_s,
            most_s=request.rules.most_s * several.fewest,
        )


def _add_environment(document: ProfileDocument, result: ProcessResult) -> None:
    """Add the environment of the first process that reports one, and the accelerator's name."""
    if result.environment is not None and document["environment"] is None:
        document["environment"] = result.environment
        document["accelerator"] = find_accelerator_name(result.environment["device"])


def _trace(document: ProfileDocument, request: ProfileRequest, base: Path, on_event: OnEvent) -> None:
    """Add the traced workload of each measured row, and compare its memory with the measured one.

    Call after all measurements, since tracing loads the processor. A failure becomes a note.
    """
    from ..workload.load import load_workload

    for row in document["rows"]:
        if row["status"] != "measured":
            continue
        options = replace(
            request.options,
            batch_size=row["batch_size"],
            precision=row["asked_precision"],
            compiled=False if document["backend"] == "torch" else None,
        ).with_callback(lambda line: on_event({"event": "script", "at": line}))
        try:
            whole = load_workload(request.model, options=options, base=base, argv=request.argv)
        except GpuplanError as error:
            document["notes"].append(f"not traced, so estimates cannot use it: {error}")
            return
        # The first call of fit() is the one that was measured.
        workload = min(whole.phases, key=lambda one: one.fit_call)
        row["workload"] = len(document["workloads"])
        document["workloads"].append(workload.to_json())
        _compare_memory(row["memory"], workload.memory.total_bytes)


def _compare_memory(memory: MemoryRecord | None, predicted_bytes: int) -> None:
    """Add the predicted memory, and the ratio of the measured to it if the device's memory is tracked."""
    if memory is None:
        return
    peak = memory["device_peak_bytes"]
    memory["predicted_bytes"] = predicted_bytes
    memory["measured_over_predicted"] = peak / predicted_bytes if peak else None


def select_backend(wanted: str | None) -> str:
    """Return the Keras backend to measure; UsageError if it is unknown or not installed."""
    name = wanted or os.environ.get("KERAS_BACKEND") or "jax"
    if name not in BACKENDS:
        raise UsageError(f"unknown backend `{name}`", hint=f"choose one of {', '.join(BACKENDS)}")
    from importlib.util import find_spec

    if find_spec(name) is None:
        raise UsageError(f"{name} is not installed", hint=f"`pip install 'gpuplan[{name}]'`")
    return name


def _build_child_request(
    request: ProfileRequest, backend: str, configuration: Configuration, base: Path
) -> dict[str, Any]:
    options = replace(request.options, **configuration)
    # The interval of the pooled median is narrower than that of one process by the square root of their number.
    rules = replace(request.rules, width=request.rules.width * math.sqrt(request.several.fewest))
    return {
        "reference": request.model,
        "base": str(base),
        "options": options.to_json(),
        "argv": list(request.argv),
        "backend": backend,
        "device": request.device,
        "data": request.data,
        "brief": request.brief,
        "rules": to_plain(rules),
    }
