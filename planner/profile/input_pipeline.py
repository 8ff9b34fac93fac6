"""Throughput of a data pipeline without a device, and random data for models measured without theirs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from ..profile_schema import PipelineRecord
from ..units import MIB
from ..workload.array_spec import ArraySpec, SpecTree, iter_specs, map_specs
from .statistics import summarize

MOST_S = 4.0  # time limit per number of workers [s]
WORKERS = (1, 2)  # numbers of workers to try besides the script's [-]
WINDOW_S = 0.2
WARM_UP_SHARE = 0.25
LARGEST_BYTES = 128 * MIB  # far larger than CPU caches, so that batches are read from memory as in real runs
FEWEST_BATCHES = 8
MOST_BATCHES = 2000


def measure_pipeline(
    fed: Mapping[str, Any], *, batch_size: int, most_s: float = MOST_S
) -> list[PipelineRecord]:
    """Return the samples per second of a script's `fit()` input, unchanged and with other numbers of workers.

    A `keras.utils.PyDataset` is measured with each number of workers, other inputs only unchanged.

    Args:
        fed: Arguments of `fit()`.
        batch_size: Samples of a batch [-].
        most_s: Time limit for each number of workers [s].
    """
    import keras

    data = fed["x"]
    rows = [_measure_workers(fed, batch_size, None, most_s)]
    if isinstance(data, keras.utils.PyDataset):
        before = data.workers
        rows[0]["workers"] = before
        for count in (count for count in WORKERS if count != before):
            data.workers = count
            rows.append(_measure_workers(fed, batch_size, count, most_s))
        data.workers = before
    return rows


def _measure_workers(
    fed: Mapping[str, Any], batch_size: int, workers: int | None, most_s: float
) -> PipelineRecord:
    batches = _iter_batches(fed)
    begin_s, cpu_s = time.perf_counter(), _read_processor_s()
    end_s = begin_s
    steps_s: list[float] = []
    counts: list[int] = []
    warm_until = begin_s + WARM_UP_SHARE * most_s
    since_s, seen = begin_s, 0
    for _ in batches:
        end_s = time.perf_counter()
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
    cores = spent_s / max(end_s - begin_s, 1e-9)
    return build_pipeline_record(steps_s, counts, batch_size=batch_size, workers=workers, cores=cores)


def build_pipeline_record(
    steps_s: list[float], counts: list[int], *, batch_size: int, workers: int | None, cores: float
) -> PipelineRecord:
    """Return the throughput of a pipeline; its rates are None without a measurement.

    Args:
        steps_s: Time to prepare a batch, one value per window [s].
        counts: Batches of each window [-].
        batch_size: Samples of a batch [-].
        workers: Number of workers; None if the pipeline has none of its own [-].
        cores: Number of cores that it kept busy [-].
    """
    found = summarize(steps_s, counts) if steps_s else None
    rate = batch_size / found.median_s if found else None
    return {
        "workers": workers,
        "samples_per_s": rate,
        "cores": cores,
        "samples_per_s_per_core": rate / cores if rate is not None and cores > 0 else None,
        "windows": len(steps_s),
        "spread": found.spread if found else None,
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


def compute_sample_bytes(*trees: SpecTree) -> int:
    """Return the size of one sample [bytes].

    Example:
        >>> compute_sample_bytes(ArraySpec((28, 28), "float32"), ArraySpec((), "int32"))
        3140
    """
    import numpy as np

    sizes = [
        prod(spec.shape) * _get_numpy_type(spec, np).itemsize for tree in trees for spec in iter_specs(tree)
    ]
    return max(1, int(sum(sizes)))


def compute_samples_to_draw(*, batch_size: int, bytes_per_sample: int, known: int | None) -> int:
    """Return the number of samples to draw: whole batches up to the run's, within `LARGEST_BYTES`.

    Example:
        >>> compute_samples_to_draw(batch_size=128, bytes_per_sample=3140, known=54_000), compute_samples_to_draw(
        ...     batch_size=32, bytes_per_sample=602_116, known=1_281_167)
        (42624, 256)
    """
    wanted = known // batch_size if known is not None else MOST_BATCHES
    room = LARGEST_BYTES // (bytes_per_sample * batch_size)
    return batch_size * max(FEWEST_BATCHES, min(wanted, room, MOST_BATCHES))


def draw_inputs(specs: SpecTree, *, samples: int, model: Any) -> Any:
    """Draw random inputs nested like the specs: numbers around 0, image bytes, valid tokens.

    Zeros are avoided, since some processors are faster on zeros. Text has no padding.

    Args:
        specs: Specs of one sample.
        samples: Number of samples [-].
        model: The model, whose smallest embedding bounds integers.
    """
    import numpy as np

    random = np.random.default_rng(0)
    below = _find_smallest_vocabulary(model)
    return map_specs(lambda spec: _draw(spec, samples, random, below=below), specs)


def draw_targets(specs: SpecTree, *, samples: int, output: Any) -> Any:
    """Draw random targets: class numbers below the output's width, and numbers between 0 and 1.

    Args:
        specs: Specs of one sample, nested like the output.
        samples: How many [-].
        output: The model's symbolic output, whose last dimension bounds class numbers.
    """
    import keras
    import numpy as np

    random = np.random.default_rng(1)
    widths = [int(out.shape[-1]) if out.shape else 2 for out in keras.tree.flatten(output)]
    leaves = list(iter_specs(specs))
    if len(widths) != len(leaves):
        widths = [min(widths, default=2)] * len(leaves)
    ordered = iter(widths)

    def draw(spec: ArraySpec) -> Any:
        return _draw(spec, samples, random, below=max(2, next(ordered)), positive=True)

    return map_specs(draw, specs)


def _find_smallest_vocabulary(model: Any) -> int:
    sizes = [layer.input_dim for layer in model._flatten_layers() if type(layer).__name__ == "Embedding"]
    return min(sizes, default=2)


def _get_numpy_type(spec: ArraySpec, np: Any) -> Any:
    try:
        return np.dtype(spec.dtype)
    except TypeError:
        return np.dtype("float32")  # bfloat16 is passed as float32 and cast on the device


def _draw(spec: ArraySpec, samples: int, random: Any, *, below: int, positive: bool = False) -> Any:
    import numpy as np

    kind, shape = _get_numpy_type(spec, np), (samples, *spec.shape)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(kind)
    if kind == np.uint8 and not positive:
        return random.integers(0, 256, shape, dtype=np.uint8)
    if kind.kind in "iu":
        return random.integers(0, below, shape, dtype=np.int64).astype(kind)
    if positive:
        return random.random(shape, dtype=np.float32).astype(kind)
    return random.standard_normal(shape, dtype=np.float32).astype(kind)
