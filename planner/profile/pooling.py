"""Pooling of measurements from several processes: joint windows, and variation between processes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..profile_schema import Timing
from .statistics import summarize

__all__ = [
    "ProcessLimits",
    "compute_process_spread",
    "compute_processes_interval",
    "is_enough",
    "pool_timings",
]

# 97.5 % quantiles of Student's t distribution from 1 degree of freedom on (NIST/SEMATECH, "e-Handbook of
# Statistical Methods", section 1.3.6.7.2); the last one is used beyond, where it is at most 7 % too large.
T_975 = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """Number of processes that measure a configuration.

    Step times differ between processes by a few percent for their whole lifetime, due to memory placement and
    machine state. The windows of a single process do not show this, however many there are.

    Args:
        fewest: Minimum [-].
        most: Maximum; in between, processes are added until the 95 % interval is narrow enough [-].
        whole_s: Total time, including compilation, after which none is added beyond the minimum [s].
    """

    fewest: int = 3
    most: int = 6
    whole_s: float = 45.0


def compute_processes_interval(medians_s: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean over all processes, relative to that of the sample [-].

    exp(±t s / √n) with Student's t quantile t and the standard deviation s of the n log medians: repetition
    counts at the level that varies (Kalibera and Jones, 2013, "Rigorous Benchmarking in Reasonable Time",
    ISMM, doi:10.1145/2464157.2464160). None for a single process. With two processes the interval is
    13 times as wide as their difference.

    Example:
        >>> [round(end, 3) for end in compute_processes_interval([0.99, 1.0, 1.01])]
        [0.975, 1.025]
    """
    count = len(medians_s)
    if count < 2:
        return None
    spread_log = statistics.stdev(math.log(median_s) for median_s in medians_s)
    log = T_975[min(count - 1, len(T_975)) - 1] * spread_log / math.sqrt(count)
    return math.exp(-log), math.exp(log)


def compute_process_spread(timing: Timing) -> float:
    """Return the half range between processes over their median [-]: (max - min) / (2 median)."""
    medians_s = timing.get("process_medians_s") or [1.0]
    return float((max(medians_s) - min(medians_s)) / 2.0 / statistics.median(medians_s))


def pool_timings(timings: Sequence[Timing], *, width: float) -> Timing:
    """Pool timings: all windows, with an interval covering both window and process variation.

    Args:
        timings: One or more timings from `Meter.to_json`, one per process; those without counted windows are
            ignored if others have some.
        width: Sufficient width of the interval, relative to the median [-].
    """
    counted = [timing for timing in timings if timing["windows_s"]]
    if not counted:
        return timings[0] | {"process_medians_s": []}
    medians_s = [float(timing["median_s"] or 0.0) for timing in counted]
    if len(counted) == 1:
        return counted[0] | {"process_medians_s": medians_s}
    windows_s = [step_s for timing in counted for step_s in timing["windows_s"]]
    counts = [count for timing in counted for count in timing["steps_per_window"]]
    found = summarize(windows_s, counts)
    ends = compute_processes_interval(medians_s) or (1.0, 1.0)
    low_s, high_s = (found.median_s * end for end in ends)
    low_s = low_s if found.low_s is None else min(low_s, found.low_s)
    high_s = high_s if found.high_s is None else max(high_s, found.high_s)
    pooled_width = (high_s - low_s) / found.median_s
    warm_s = [step_s for timing in counted for step_s in timing["warm_up"]["windows_s"]]
    settled = [timing["warm_up"]["settled"] for timing in counted]
    summary = found.to_json() | {"low_s": low_s, "high_s": high_s, "width": pooled_width}
    return {
        **summary,
        "windows_s": windows_s,
        "steps_per_window": counts,
        "process_medians_s": medians_s,
        "windows_per_process": [len(timing["windows_s"]) for timing in counted],
        "warm_up": {"windows_s": warm_s, "settled": None if None in settled else all(settled)},
        "stopped": "converged" if pooled_width <= width else "time",
    }


def is_enough(
    timing: Timing, *, several: ProcessLimits, processes: int, took_s: float, most_s: float
) -> bool:
    """Return whether no further process is needed or allowed.

    Args:
        timing: Pooled timing of all processes so far.
        several: Limits of the number of processes.
        processes: Number so far [-].
        took_s: Their total time [s].
        most_s: Time limit of all windows together [s].
    """
    if processes < several.fewest:
        return False
    windows_s = sum(s * n for s, n in zip(timing["windows_s"], timing["steps_per_window"], strict=True))
    late = took_s >= several.whole_s or windows_s >= most_s
    return bool(processes >= several.most or late or timing["stopped"] == "converged")
