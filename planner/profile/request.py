"""Request for a profile: what it measures, in which configurations, and in which time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..errors import UsageError
from ..profile_schema import ProfileDocument
from ..workload.options import WorkloadOptions
from .document import Configuration
from .statistics import ProcessLimits
from .windows import MeasurementRules

Device = Literal["cpu", "gpu", "tpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """Request for a profile.

    Args:
        model: A MODEL reference.
        batch_sizes: Batch sizes to measure; empty for the model's own and a quarter of it [-].
        precisions: Precisions to measure; empty for the model's own.
        backend: Keras backend; None for `KERAS_BACKEND`, else JAX.
        device: Device; None for the backend's default.
        data: Random data of the model's shapes, or the script's own data.
        options: Mode, loss, optimizer, samples and epochs.
        argv: Arguments of a script.
        rules: Start and stop rules of each process.
        several: Number of processes for each configuration.
        answer_s: Time until the answer; processes that would end later are not started, except a first one of
            each configuration, and only that one also measures the step alone and epochs. None for no limit [s].
        limit_s: Time limit of each process, from its start; None for no limit [s].
        brief: Whether the steps of the loop are all that is measured: neither the step alone nor epochs, and no
            workload is added to the rows, which estimates need.
        typed: Command-line options given, so that no advice repeats them.

    Raises:
        UsageError: An invalid batch size, precision or combination.
    """

    model: str
    batch_sizes: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    backend: str | None = None
    device: Device | None = None
    data: Literal["synthetic", "script"] = "synthetic"
    options: WorkloadOptions = field(default_factory=WorkloadOptions)
    argv: tuple[str, ...] = ()
    rules: MeasurementRules = field(default_factory=MeasurementRules)
    several: ProcessLimits = field(default_factory=ProcessLimits)
    answer_s: float | None = None
    limit_s: float | None = None
    brief: bool = False
    typed: str = ""

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
        if _derives_another(request) and own is not None and not fixed:
            other = own // SWEEP if own >= SWEEP else own * SWEEP
            if not _is_too_large(document, other, precision):
                yield {"batch_size": other, "precision": precision}


def count_configurations(request: ProfileRequest) -> int:
    """Return the number of configurations that `iter_configurations` yields if all fit in memory."""
    sizes = 2 if _derives_another(request) else max(len(request.batch_sizes), 1)
    return max(len(request.precisions), 1) * sizes


def _derives_another(request: ProfileRequest) -> bool:
    return not request.batch_sizes and request.data == "synthetic"


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
    """Start of a profile, its time limit, and the durations of its processes.

    Args:
        began_s: Start on a monotonic clock [s].
        answer_s: Time after which no process starts that would end later; None for no limit. A first process of
            each configuration always starts [s].
        fewest: Wanted processes of each configuration [-].
        took_s: Durations of the processes so far [s].
    """

    began_s: float
    answer_s: float | None
    fewest: int
    took_s: list[float] = field(default_factory=list)

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
        """Return the expected time until the answer [s].

        Args:
            now_s: Now on the same clock, at the start of a process [s].
            processes: Processes of each configuration that have ended, 0 for one that has not started [-].
        """
        missing = sum(max(self.fewest - count, 0) for count in processes)
        left_s = max(missing, 1) * self.process_s
        if self.answer_s is not None:
            first = max(sum(1 for count in processes if count == 0), 1) * self.process_s
            left_s = min(left_s, max(self.answer_s - TRACE_S - (now_s - self.began_s), first))
        return left_s + TRACE_S
