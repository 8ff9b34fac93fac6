"""Format of profiles (`schemas/gpuplan.profile.json`), made by `gpuplan profile`, `StepTimer` and launched runs.

The types describe plain JSON data: a document is a dictionary in memory as it is in its file.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

PROFILE_SCHEMA = "gpuplan.profile/1"


class WarmUp(TypedDict):
    """Windows before the counted ones [s]; whether their times settled, None if unknown."""

    windows_s: list[float]
    settled: bool | None


class Spread(TypedDict, total=False):
    """Statistics of window times."""

    # low_s, high_s: 95 % interval of the median; None for fewer than six windows [s]
    low_s: float | None
    high_s: float | None
    mean_s: float  # total time of all windows over their steps [s]
    spread: float | None  # interquartile range over the median; None for fewer than two windows [-]
    drift: float  # median of the second half over that of the first, minus 1 [-]
    windows: int  # number of windows [-]
    width: float | None  # width of the interval over the median; None without an interval [-]


class WindowStatistics(Spread):
    """Statistics of one or more windows, with their median [s]."""

    median_s: float


class Timing(Spread):
    """Step times of `fit()` or of the compiled step alone: statistics and the raw windows.

    Without windows only the median is there, if known. Statistics of several processes have those of each.
    """

    median_s: float | None
    windows_s: list[float]
    steps_per_window: list[int]
    warm_up: WarmUp
    stopped: str
    process_medians_s: NotRequired[list[float]]
    windows_per_process: NotRequired[list[int]]


class EpochRecord(TypedDict):
    """Time of an epoch outside its steps, number of its steps, and total without validation; None if unknown."""

    beside_steps_s: float | None
    steps: NotRequired[int | None]
    total_s: NotRequired[float | None]


class MemoryRecord(TypedDict):
    """Peak memory of device and process, growth of the process since before the first step, and prediction."""

    device_peak_bytes: int | None
    host_peak_bytes: int | None
    host_growth_bytes: NotRequired[int | None]
    predicted_bytes: NotRequired[int]
    measured_over_predicted: NotRequired[float | None]


class PipelineRecord(TypedDict):
    """Throughput of the script's data pipeline without a device; None if too slow to measure."""

    workers: int | None
    samples_per_s: float | None
    cores: float
    samples_per_s_per_core: float | None
    windows: int
    spread: float | None


class OtherProcess(TypedDict):
    """Another process, and the mean number of cores that it used [-]."""

    pid: int
    name: str
    cores: float


class LoadRecord(TypedDict):
    """Processor use during a measurement."""

    wall_s: float  # length of the interval [s]
    cores: int  # logical cores of the machine [-]
    own_cores: float  # mean number of cores used by the measured processes [-]
    other_cores: float  # mean number used by everything else, including other guests of a hypervisor [-]
    stolen_cores: float  # part of it taken by the hypervisor [-]
    other_share: float  # share of the whole processor used by others [-]
    most: list[OtherProcess]  # other processes with the highest use, descending


class MeasuredValues(TypedDict, total=False):
    """Values measured by one process; after an interruption, those that had arrived."""

    fit: Timing
    prepare: dict[str, Any]
    epoch: EpochRecord
    state_while_timed: dict[str, Any] | None
    step: Timing | None
    memory: MemoryRecord
    pipeline: list[PipelineRecord] | None
    batch_size: int
    kernels: dict[str, Any]


class RowRecord(TypedDict):
    """A measured configuration: batch size and precision. `workload` is an index into the document's.

    `StepTimer` adds `predicted`: step time and basis, for the accelerator of the run.
    """

    batch_size: int | None
    precision: str | None
    asked_precision: str | None
    status: str
    message: str | None
    fit: Timing | None
    step: Timing | None
    epoch: EpochRecord | None
    memory: MemoryRecord | None
    pipeline: list[PipelineRecord] | None
    state_while_timed: dict[str, Any] | None
    workload: int | None
    prepare: dict[str, Any]
    load: LoadRecord | None
    limit: str | None
    findings: list[str]


class ProfileDocument(TypedDict):
    """A profile."""

    schema: str
    gpuplan_version: str
    status: Literal["running", "complete", "interrupted"]
    source: str
    created_at: str
    model: str
    mode: str
    backend: str
    data: str
    rules: dict[str, Any]
    accelerator: str | None
    devices: float
    environment: dict[str, Any] | None
    rows: list[RowRecord]
    splits: list[dict[str, Any]]  # step time at a precision as a fixed part and a part per sample [s]
    largest_batch_size: dict[str, int | None] | None  # measured, and smallest one that ran out of memory [-]
    run: dict[str, Any] | None  # a whole run of `fit()`, by epoch
    workloads: list[dict[str, Any]]
    notes: list[str]
    launch: NotRequired[dict[str, Any]]  # machine, lifetime and compute cost of a launched run
