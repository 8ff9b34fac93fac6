"""Throughput of a data pipeline without a device."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..profile_schema import PipelineRecord
from .statistics import summarize

__all__ = ["MOST_S", "measure_pipeline"]

MOST_S = 4.0  # time limit per number of workers [s]
WINDOW_S = 0.2
WARM_UP_SHARE = 0.25


def measure_pipeline(
    fed: Mapping[str, Any],
    *,
    batch_size: int,
    workers: tuple[int, ...] = (1, 2),
    most_s: float = MOST_S,
    clock: Callable[[], float] = time.perf_counter,
) -> list[PipelineRecord]:
    """Return the samples per second of a script's `fit()` input, unchanged and with other numbers of workers.

    A `keras.utils.PyDataset` is measured with each number of workers, other inputs only unchanged.

    Args:
        fed: Arguments of `fit()`.
        batch_size: Samples of a batch [-].
        workers: Numbers of workers to try [-].
        most_s: Time limit for each [s].
        clock: Monotonic clock [s].
    """
    import keras

    data = fed["x"]
    rows = [_measure_workers(fed, batch_size, None, most_s, clock)]
    if isinstance(data, keras.utils.PyDataset):
        before = data.workers
        rows[0]["workers"] = before
        for count in (count for count in workers if count != before):
            data.workers = count
            rows.append(_measure_workers(fed, batch_size, count, most_s, clock))
        data.workers = before
    return rows


def _measure_workers(
    fed: Mapping[str, Any], batch_size: int, workers: int | None, most_s: float, clock: Callable[[], float]
) -> PipelineRecord:
    batches = _iter_batches(fed)
    begin_s, cpu_s = clock(), _read_processor_s()
    end_s = begin_s
    steps_s: list[float] = []
    counts: list[int] = []
    warm_until = begin_s + WARM_UP_SHARE * most_s
    since_s, seen = begin_s, 0
    for _ in batches:
        end_s = clock()
        seen += 1
        if end_s - since_s < WINDOW_S:
            continue
        if end_s >= warm_until:
            steps_s.append((end_s - since_s) / seen)
            counts.append(seen)
        since_s, seen = end_s, 0
        if end_s - begin_s >= most_s:
            break
    spent_s = _read_processor_s() - cpu_s
    return _build_row(steps_s, counts, batch_size, workers, cores=spent_s / max(end_s - begin_s, 1e-9))


def _build_row(
    steps_s: list[float], counts: list[int], batch_size: int, workers: int | None, *, cores: float
) -> PipelineRecord:
    if not steps_s:
        return {
            "workers": workers,
            "samples_per_s": None,
            "cores": cores,
            "samples_per_s_per_core": None,
            "windows": 0,
            "spread": None,
        }
    found = summarize(steps_s, counts)
    rate = batch_size / found.median_s
    return {
        "workers": workers,
        "samples_per_s": rate,
        "cores": cores,
        "samples_per_s_per_core": rate / cores if cores > 0 else None,
        "windows": found.windows,
        "spread": found.spread,
    }


def _read_processor_s() -> float:
    """Return the processor time of this process and its children, including running ones [s]."""
    import psutil

    used = os.times()
    total_s = used.user + used.system + used.children_user + used.children_system
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        total_s += times.user + times.system
    return total_s


def _iter_batches(fed: Mapping[str, Any]) -> Iterator[Any]:
    """Yield batches as in `fit()`, repeating epochs; nothing if the data can be read only once."""
    from keras.src.trainers.epoch_iterator import EpochIterator  # the public face of it is fit() alone

    names = ("x", "y", "sample_weight", "batch_size", "steps_per_epoch", "shuffle", "class_weight")
    given = {name: fed[name] for name in names if fed.get(name) is not None}
    iterator = EpochIterator(**given)
    while True:
        count = 0
        for _, _, batch in iterator:
            count += 1
            yield batch
        if count == 0:
            return
        iterator.reset()
