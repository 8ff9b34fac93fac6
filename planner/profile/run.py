"""Measurement of all configurations of a model, each in several processes, as run by `gpuplan profile`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from ..errors import GpuplanError, UsageError
from ..profile_schema import ProfileDocument, RowRecord
from ..records import Frozen, to_plain
from ..workload.backend import find_keras_default
from ..workload.options import WorkloadOptions
from ..workload.reference import parse_reference
from .document import Configuration, build_row, complete_profile, create_profile, create_row, find_accelerator_name
from .measuring_process import MeasuringProcess, ProcessResult
from .statistics import ProcessLimits, is_enough
from .windows import MeasurementRules

BACKENDS = ("jax", "tensorflow", "torch")
Device = Literal["cpu", "gpu", "tpu"]


class ProfileRequest(Frozen):
    """Request for a profile.

    Raises:
        UsageError: An invalid batch size, precision or combination.
    """

    model: str  # a MODEL reference
    batch_sizes: tuple[int, ...] = ()  # batch sizes to measure; empty for the model's own and a quarter of it [-]
    precisions: tuple[str, ...] = ()  # precisions to measure; empty for the model's own
    backend: str | None = None  # Keras backend; None for `KERAS_BACKEND`, else JAX
    device: Device | None = None  # device; None for the backend's default
    # random data of the model's shapes, or the script's own data
    data: Literal["synthetic", "script"] = "synthetic"
    options: WorkloadOptions = field(default_factory=WorkloadOptions)  # mode, loss, optimizer, samples and epochs
    argv: tuple[str, ...] = ()  # arguments of a script
    rules: MeasurementRules = field(default_factory=MeasurementRules)  # start and stop rules of each process
    several: ProcessLimits = field(default_factory=ProcessLimits)  # number of processes for each configuration
    # time until the answer (see `Schedule`); with it only the first process of a configuration also measures the
    # step alone and epochs. None for no limit [s]
    answer_s: float | None = None
    limit_s: float | None = None  # time limit of each process, from its start; None for no limit [s]
    # whether the steps of the loop are all that is measured: neither the step alone nor epochs, and no workload is
    # added to the rows, which estimates need
    brief: bool = False

    def __post_init__(self) -> None:
        for batch_size in self.batch_sizes:
            WorkloadOptions(batch_size=batch_size)
        for precision in self.precisions:
            WorkloadOptions(precision=precision)
        if self.data == "script" and self.options.mode == "infer":
            raise UsageError(
                "--data script measures fit(), which --mode infer does not call", hint="leave out one of them"
            )
        if self.data == "script" and self.batch_sizes:
            raise UsageError("--data script has its own batches", hint="leave out `--batch-size`")

    @property
    def derives_another(self) -> bool:
        """Whether a second batch size follows from the model's own."""
        return not self.batch_sizes and self.data == "synthetic"

    @property
    def configurations(self) -> int:
        """Number of configurations if all fit in memory [-]."""
        return max(len(self.precisions), 1) * (2 if self.derives_another else max(len(self.batch_sizes), 1))


SWEEP = 4  # ratio of the two batch sizes of the default sweep [-]


def iter_configurations(request: ProfileRequest, document: ProfileDocument) -> Iterator[Configuration]:
    """Yield batch sizes and precisions; by default the model's own batch size and another one derived from it.

    None is yielded of which a batch of at most its size ran out of memory at its precision.
    """
    for precision in request.precisions or (None,):
        for batch_size in request.batch_sizes or (request.options.batch_size,):
            if not _is_too_large(document, batch_size, precision):
                yield {"batch_size": batch_size, "precision": precision}
        own = max((size for row in document["rows"] if (size := row["batch_size"])), default=None)
        fixed = any("fixed" in (row["message"] or "") for row in document["rows"])
        if request.derives_another and own is not None and not fixed:
            other = own // SWEEP if own >= SWEEP else own * SWEEP
            if not _is_too_large(document, other, precision):
                yield {"batch_size": other, "precision": precision}


def _is_too_large(document: ProfileDocument, batch_size: int | None, precision: str | None) -> bool:
    return batch_size is not None and any(
        row["status"] == "out_of_memory" and row["asked_precision"] == precision
        for row in document["rows"]
        if row["batch_size"] and row["batch_size"] <= batch_size
    )


FIRST_GUESS_S = 12.0  # of a process before one has ended: imports, compilation, warm-up, windows
TRACE_S = 6.0  # of the trace at the end


@dataclass(slots=True, kw_only=True)
class Schedule:
    """Start of a profile, its time limit, and the durations of its processes."""

    began_s: float  # start on a monotonic clock [s]
    # time after which no process starts that would end later; None for no limit. A first process of each
    # configuration always starts [s]
    answer_s: float | None
    fewest: int  # wanted processes of each configuration [-]
    took_s: list[float] = field(default_factory=list)  # durations of the processes so far [s]

    @property
    def process_s(self) -> float:
        """Expected duration of the next process: the mean so far, or a guess [s]."""
        return sum(self.took_s) / len(self.took_s) if self.took_s else FIRST_GUESS_S

    def has_time(self, now_s: float) -> bool:
        """Return whether another process, and the trace after it, are expected to end within the limit."""
        if self.answer_s is None:
            return True
        return now_s - self.began_s + self.process_s + TRACE_S <= self.answer_s

    def left_s(self, now_s: float, processes: Sequence[int]) -> float:
        """Return the expected time until the answer, at the start of a process [s].

        `processes` of each configuration have ended, 0 of one that has not started [-].
        """
        missing = sum(max(self.fewest - count, 0) for count in processes)
        left_s = max(missing, 1) * self.process_s
        if self.answer_s is not None:
            first = max(sum(1 for count in processes if count == 0), 1) * self.process_s
            left_s = min(left_s, max(self.answer_s - TRACE_S - (now_s - self.began_s), first))
        return left_s + TRACE_S


OnEvent = Callable[[dict[str, Any]], None]
Keep = Callable[[ProfileDocument], None]


def profile(
    request: ProfileRequest, *, on_event: OnEvent = lambda message: None, keep: Keep = lambda doc: None
) -> ProfileDocument:
    """Measure every configuration and return the profile.

    Args:
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
    request = replace(request, backend=select_backend(request.backend, of_script=reference.kind == "script"))
    document = create_profile(
        model=request.model,
        mode=request.options.mode,
        backend=str(request.backend),
        data=request.data,
        rules=to_plain(request.rules) | {"processes": to_plain(request.several)},
        source="profile",
    )
    measurements: list[_Measurement] = []
    schedule = Schedule(began_s=time.monotonic(), answer_s=request.answer_s, fewest=request.several.fewest)
    for measurement in _iter_due(request, document, measurements, schedule):
        counts = [len(one.results) for one in measurements]
        unseen = max(request.configurations - len(counts), 0)
        on_event({"event": "left", "left_s": schedule.left_s(time.monotonic(), [*counts, *[0] * unseen])})
        try:
            measurement.run(request, schedule, base=base, on_event=on_event)
        except KeyboardInterrupt:
            document["status"] = "interrupted"
            raise
        finally:
            if results := measurement.results:
                measurement.row = build_row(results, asked=measurement.asked, rules=request.rules)
                document["rows"] = [one.row for one in measurements]
                environment = results[-1].environment
                if environment is not None and document["environment"] is None:
                    document["environment"] = environment
                    document["accelerator"] = find_accelerator_name(environment["device"])
                keep(complete_profile(document))
    document["status"] = "complete"
    if not request.brief:
        _trace(document, request, base, on_event)
    return complete_profile(document)


def _iter_due(
    request: ProfileRequest, document: ProfileDocument, measurements: list[_Measurement], schedule: Schedule
) -> Iterator[_Measurement]:
    """Yield each new measurement, added to the list, then those that need another process, while there is time.

    Round by round, so that temporary slowdowns of the machine affect all configurations equally.
    """
    for asked in iter_configurations(request, document):
        measurements.append(_Measurement(asked=asked))
        yield measurements[-1]
    while due := [one for one in measurements if one.is_due(request)]:
        for measurement in due:
            if not schedule.has_time(time.monotonic()):
                return
            yield measurement


@dataclass(slots=True, kw_only=True)
class _Measurement:
    """Measurement of one configuration: results of the processes so far, their row, and their total time [s]."""

    asked: Configuration
    results: list[ProcessResult] = field(default_factory=list)
    row: RowRecord = field(default_factory=lambda: create_row(status="failed", batch_size=None))
    took_s: float = 0.0

    def run(self, request: ProfileRequest, schedule: Schedule, *, base: Path, on_event: OnEvent) -> None:
        """Measure in one more process; an interruption adds the values that had arrived."""
        on_event({"event": "begin", "process": len(self.results) + 1, **self.asked})
        began_s = time.monotonic()
        # The interval of the pooled median is narrower than that of one process by the root of their number.
        rules = replace(request.rules, width=request.rules.width * math.sqrt(request.several.fewest))
        child = {
            "reference": request.model,
            "base": str(base),
            "options": replace(request.options, **self.asked).to_json(),
            "argv": list(request.argv),
            "backend": request.backend,
            "device": request.device,
            "data": request.data,
            "brief": request.brief or (request.answer_s is not None and bool(self.results)),
            "pipeline": not self.results,
            "rules": to_plain(rules),
        }
        process = MeasuringProcess(child, on_event, request.options.script, limit_s=request.limit_s)
        try:
            self.results.append(process.run())
        except KeyboardInterrupt:
            process.stop()
            self.results.append(process.interrupted())
            raise
        finally:
            process.stop()
            schedule.took_s.append(time.monotonic() - began_s)
            self.took_s += schedule.took_s[-1]

    def is_due(self, request: ProfileRequest) -> bool:
        """Return whether another process should measure."""
        fit, several, count = self.row["fit"], request.several, len(self.results)
        if fit is None or any(result.status != "measured" for result in self.results):
            return False
        most_s = request.rules.most_s * several.fewest
        return not is_enough(fit, several=several, processes=count, took_s=self.took_s, most_s=most_s)


def _trace(document: ProfileDocument, request: ProfileRequest, base: Path, on_event: OnEvent) -> None:
    """Add the traced workload of each measured row, and compare its memory with the measured one.

    Call after all measurements, since tracing loads the processor. A failure becomes a note.
    """
    from ..workload.capture.load import load_workload

    for row in document["rows"]:
        if row["status"] != "measured":
            continue
        options = replace(request.options, batch_size=row["batch_size"], precision=row["asked_precision"])
        options = replace(options, compiled=False if document["backend"] == "torch" else None)
        options = options.with_callback(lambda line: on_event({"event": "script", "at": line}))
        try:
            whole = load_workload(request.model, options=options, base=base, argv=request.argv)
        except GpuplanError as error:
            document["notes"].append(f"not traced, so estimates cannot use it: {error}")
            return
        # The first call of fit() is the one that was measured.
        workload = min(whole.phases, key=lambda one: one.fit_call)
        row["workload"] = len(document["workloads"])
        document["workloads"].append(workload.to_json())
        if memory := row["memory"]:
            peak_bytes, predicted_bytes = memory["device_peak_bytes"], workload.memory.total_bytes
            memory["predicted_bytes"] = predicted_bytes
            memory["measured_over_predicted"] = peak_bytes / predicted_bytes if peak_bytes else None


def select_backend(wanted: str | None, *, of_script: bool = False) -> str:
    """Return the Keras backend to measure; UsageError if it is unknown or not installed."""
    default = find_keras_default() if of_script else None
    name = wanted or os.environ.get("KERAS_BACKEND") or default or "jax"
    if name not in BACKENDS:
        raise UsageError(f"unknown backend `{name}`", hint=f"choose one of {', '.join(BACKENDS)}")
    if find_spec(name) is None:
        raise UsageError(f"{name} is not installed", hint=f"`pip install 'gpuplan[{name}]'`")
    return name
