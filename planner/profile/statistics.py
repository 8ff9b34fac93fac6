"""Statistics of window times: median, its confidence interval, and drift, in one process or several."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ..profile_schema import Timing, WindowStatistics
from ..records import Frozen

CONFIDENCE = 0.95
MIN_WINDOWS = 6  # with five values, even their range covers the median with less than 95 %
# 97.5 % quantiles of Student's t distribution from 1 degree of freedom on (NIST/SEMATECH, "e-Handbook of
# Statistical Methods", section 1.3.6.7.2); the last one is used beyond, where it is at most 7 % too large.
T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
)  # fmt: skip


def compute_median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return a distribution-free interval that covers the median with a probability of at least `CONFIDENCE`.

    The bounds are order statistics, chosen by the binomial distribution of the number of values below the
    median (Conover, 1999, "Practical Nonparametric Statistics", 3rd ed., ISBN 0471160687, section 3.2).
    Values are assumed independent: the interval is too narrow if slow and fast periods alternate, which
    `compute_drift` detects. None if there are too few values.

    Example:
        >>> compute_median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        (1.0, 6.0)
        >>> compute_median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
        True
    """
    ordered, count = sorted(values), len(values)
    outside, below = 0.0, -1
    while below + 1 < count / 2:
        # C(count, below + 1) / 2^count, by log-gamma for speed
        ways_log = math.lgamma(count + 1) - math.lgamma(below + 2) - math.lgamma(count - below)
        outside += 2.0 * math.exp(ways_log - count * math.log(2.0))
        if outside > 1.0 - CONFIDENCE:
            break
        below += 1
    if below < 0:
        return None
    return ordered[below], ordered[count - 1 - below]


def compute_drift(values: Sequence[float]) -> float:
    """Return the median of the second half over that of the first, minus 1 [-]; 0 for fewer than four values.

    Example:
        >>> round(compute_drift([1.0, 1.0, 1.0, 1.1, 1.1, 1.1]), 6)
        0.1
    """
    half = len(values) // 2
    if half < 2:
        return 0.0
    return statistics.median(values[-half:]) / statistics.median(values[:half]) - 1.0


def is_settled(values: Sequence[float], *, last: int, within: float) -> bool:
    """Return whether the last values are steady: their halves' medians agree, the last two are no outliers.

    An even number of values is considered; `within` is the largest relative difference of the halves' medians,
    half of that of single values [-].

    Example:
        >>> is_settled([9.0, 1.0, 1.01, 1.0, 1.02], last=4, within=0.03)
        True
        >>> is_settled([9.0, 3.0, 1.0, 1.0], last=4, within=0.03)
        False
    """
    tail = values[-last:]
    if len(tail) < last:
        return False
    middle = statistics.median(tail)
    return abs(compute_drift(tail)) <= within and all(abs(v - middle) <= 2 * within * middle for v in tail[-2:])


def summarize(steps_s: Sequence[float], counts: Sequence[int]) -> WindowStatistics:
    """Summarize one or more windows, by the mean time of a step [s] and the number of steps of each."""
    low_s, high_s = compute_median_interval(steps_s) or (None, None)
    middle_s = statistics.median(steps_s)
    quartiles_s = statistics.quantiles(steps_s, n=4) if len(steps_s) > 1 else None
    return {
        "median_s": middle_s,
        "low_s": low_s,
        "high_s": high_s,
        "mean_s": sum(s * n for s, n in zip(steps_s, counts, strict=True)) / sum(counts),
        "spread": (quartiles_s[2] - quartiles_s[0]) / middle_s if quartiles_s else None,
        "drift": compute_drift(steps_s),
        "windows": len(steps_s),
        "width": (high_s - low_s) / middle_s if low_s is not None and high_s is not None else None,
    }


class ProcessLimits(Frozen):
    """Number of processes that measure a configuration.

    Step times differ between processes by a few percent for their whole lifetime, due to memory placement and
    machine state. The windows of a single process do not show this, however many there are.
    """

    fewest: int = 3  # minimum [-]
    most: int = 6  # maximum; in between, processes are added until the 95 % interval is narrow enough [-]
    whole_s: float = 45.0  # total time, including compilation, after which none is added beyond the minimum [s]


def compute_processes_interval(medians_s: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean over all processes, relative to that of the sample [-].

    exp(±t s / √n) with Student's t quantile t and the standard deviation s of the n log medians: repetition
    counts at the level that varies (Kalibera and Jones, 2013, "Rigorous Benchmarking in Reasonable Time",
    ISMM, doi:10.1145/2464157.2464160). Valid for two processes and more; with two the interval is 13 times as
    wide as their difference.

    Example:
        >>> [round(end, 3) for end in compute_processes_interval([0.99, 1.0, 1.01])]
        [0.975, 1.025]
    """
    count = len(medians_s)
    spread_log = statistics.stdev(math.log(median_s) for median_s in medians_s)
    log = T_975[min(count - 1, len(T_975)) - 1] * spread_log / math.sqrt(count)
    return math.exp(-log), math.exp(log)


def compute_process_spread(timing: Timing) -> float:
    """Return the half range between processes over their median [-]: (max - min) / (2 median)."""
    medians_s = timing.get("process_medians_s") or [1.0]
    return float((max(medians_s) - min(medians_s)) / 2.0 / statistics.median(medians_s))


def pool_timings(timings: Sequence[Timing], *, width: float) -> Timing:
    """Pool timings of one or more processes: all windows, with an interval covering window and process variation.

    Those without counted windows are ignored if others have some. `width` is the sufficient width of the interval,
    relative to the median [-].
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
    low_s, high_s = (found["median_s"] * end for end in compute_processes_interval(medians_s))
    if found["low_s"] is not None and found["high_s"] is not None:
        low_s, high_s = min(low_s, found["low_s"]), max(high_s, found["high_s"])
    pooled_width = (high_s - low_s) / found["median_s"]
    warm_s = [step_s for timing in counted for step_s in timing["warm_up"]["windows_s"]]
    settled = [timing["warm_up"]["settled"] for timing in counted]
    return {
        **found,
        "low_s": low_s,
        "high_s": high_s,
        "width": pooled_width,
        "windows_s": windows_s,
        "steps_per_window": counts,
        "process_medians_s": medians_s,
        "windows_per_process": [len(timing["windows_s"]) for timing in counted],
        "warm_up": {"windows_s": warm_s, "settled": None if None in settled else all(settled)},
        "stopped": "converged" if pooled_width <= width else "time",
    }


def is_enough(timing: Timing, *, several: ProcessLimits, processes: int, took_s: float, most_s: float) -> bool:
    """Return whether no further process is needed or allowed, after some that took `took_s` in all [s].

    `most_s` is the time limit of all windows of the pooled timing together [s].
    """
    windows_s = sum(s * n for s, n in zip(timing["windows_s"], timing["steps_per_window"], strict=True))
    is_late = took_s >= several.whole_s or windows_s >= most_s
    is_well_known = processes >= several.most or is_late or timing["stopped"] == "converged"
    return processes >= several.fewest and is_well_known
