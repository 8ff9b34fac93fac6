"""Agreement between publishers: one publisher's step time as the prediction of another's for the same workload."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from .cross_validation import CrossValidation, LabelledSample

BASELINE = "other_publisher"
# Variants of a network that differ less than this are the same work: labels, padding, a bias or two.
SAME_FLOPS = 0.05
SAME_BYTES = 0.10


def add_other_publishers(validation: CrossValidation) -> CrossValidation:
    """Return the samples whose workload another publisher measured, too, with its time as a baseline.

    The workload is the same if network, batch size, mode, precision, compilation and chip are, and FLOPs and
    traffic of the kernels agree within `SAME_FLOPS` and `SAME_BYTES`. Several publishers: the geometric mean over
    them, each counting once.

    Args:
        validation: Samples predicted without their publisher.
    """
    times = _find_other_times(validation.samples)
    judged = {id(validation.samples[i].measurement) for i in times}
    ours = validation.where(lambda m: id(m) in judged)
    return replace(ours, baseline_s={**ours.baseline_s, BASELINE: tuple(times[i] for i in sorted(times))})


def _find_other_times(samples: Sequence[LabelledSample]) -> dict[int, float]:
    """Return the time that other publishers measured for the workload of a sample, by its index [s]."""
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, sample in enumerate(samples):
        m = sample.measurement
        alike[m.family, m.batch_size, m.mode, m.precision, m.compiled, m.chip].append(i)
    found = {}
    for group in alike.values():
        for i in group:
            logs: dict[str, list[float]] = defaultdict(list)
            for j in group:
                if samples[j].measurement.origin != samples[i].measurement.origin and _is_same_work(
                    samples[i], samples[j]
                ):
                    logs[samples[j].measurement.origin].append(math.log(samples[j].fit_sample.step_s))
            if logs:
                found[i] = math.exp(_mean([_mean(one) for one in logs.values()]))
    return found


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _is_same_work(one: LabelledSample, other: LabelledSample) -> bool:
    (flops, traffic), (other_flops, other_traffic) = _sum_work(one), _sum_work(other)
    return abs(math.log(flops / other_flops)) < SAME_FLOPS and abs(math.log(traffic / other_traffic)) < SAME_BYTES


def _sum_work(sample: LabelledSample) -> tuple[float, float]:
    """Return FLOPs and traffic of a step [FLOP, bytes]."""
    table = sample.fit_sample.table
    return float(table.count @ table.flops), float(table.count @ table.bytes_moved)
