"""Throughput of a data pipeline: without a device, and in a running `fit()` from the time spent on input."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod
from statistics import median
from typing import TYPE_CHECKING, Any

from ..profile_schema import PipelineRecord
from ..units import MIB
from ..workload.capture.feeding import Pull, count_samples
from ..workload.options import ArraySpec, SpecTree, iter_specs, map_specs
from .statistics import summarize
from .windows import MeasurementRules, Meter

if TYPE_CHECKING:
    from ..workload.capture.materialize import ExecutableModel

MOST_S = 4.0  # time limit [s]
START_S = 60.0  # most time until the first batch [s]
WARM_UP_SHARE = 0.25
LARGEST_BYTES = 128 * MIB  # far larger than CPU caches, so that batches are read from memory as in real runs
FEWEST_BATCHES = 8
MOST_BATCHES = 2000


def measure_pipeline(fed: Mapping[str, Any], *, batch_size: int, most_s: float) -> PipelineRecord:
    """Return the throughput of the input of a `fit()` with arguments `fed`, in a limited time [s]."""
    pull = Pull(fed, unused=1, most=None, clock=time.perf_counter)
    pull.run(most_s, start_s=START_S)
    pull.thread.join(most_s)  # which stops its workers
    # The warm-up ends by time: buffers that were filled at the start are steady too.
    meter = Meter(MeasurementRules(settle_windows=2, settle_within=0.0, warm_up_s=WARM_UP_SHARE * most_s))
    ends_s = list(pull.ends_s)
    for end_s in ends_s:
        meter.ended(end_s)
    steps_s = meter.steps_s
    if not steps_s and len(ends_s) > 1:  # too slow for windows after the warm-up
        steps_s = [(ends_s[-1] - ends_s[0]) / (len(ends_s) - 1)]
    workers = getattr(fed["x"], "workers", None)  # of a PyDataset
    return build_pipeline_record(steps_s, batch_size=batch_size, workers=workers, cores=pull.cores)


def build_pipeline_record(
    steps_s: list[float], *, batch_size: int, workers: int | None, cores: float
) -> PipelineRecord:
    """Return the throughput of a pipeline by the times of a batch in each window [s]; None without any."""
    found = summarize(steps_s, [1] * len(steps_s)) if steps_s else None
    rate = batch_size / found["median_s"] if found else None
    return {
        "workers": workers,
        "samples_per_s": rate,
        "cores": cores,
        "samples_per_s_per_core": rate / cores if rate is not None and cores > 0 else None,
        "windows": len(steps_s),
        "spread": found["spread"] if found else None,
    }


def draw_data(concrete: ExecutableModel, *, few: bool) -> tuple[Any, Any, Any]:
    """Draw random x, y and sample weights; `few`: only one batch, because the script provides the data."""
    trees, count = (concrete.x, concrete.y, concrete.sample_weight), concrete.batch_size
    if not few:
        sizes = [prod(spec.shape) * _get_numpy_type(spec).itemsize for tree in trees for spec in iter_specs(tree)]
        known, size = concrete.samples, max(1, sum(sizes))
        count = compute_samples_to_draw(batch_size=count, bytes_per_sample=size, known=known)
    x = draw_inputs(concrete.x, samples=count, model=concrete.model)
    y, weight = (draw_targets(tree, samples=count, output=concrete.output) for tree in trees[1:])
    return x, y, weight


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
    """Draw random inputs nested like the specs of a sample: numbers around 0, image bytes, valid tokens.

    The model's smallest embedding bounds integers. Zeros are avoided, since some processors are faster on zeros.
    """
    import numpy as np

    random = np.random.default_rng(0)
    vocabularies = [layer.input_dim for layer in model._flatten_layers() if type(layer).__name__ == "Embedding"]
    below = min(vocabularies, default=2)
    return map_specs(lambda spec: _draw(spec, samples, random, below=below), specs)


def draw_targets(specs: SpecTree, *, samples: int, output: Any) -> Any:
    """Draw random targets, nested like the symbolic output: numbers between 0 and 1, classes below its width."""
    import keras
    import numpy as np

    random = np.random.default_rng(1)
    widths = [int(out.shape[-1]) if out.shape else 2 for out in keras.tree.flatten(output)]
    leaves = list(iter_specs(specs))
    if len(widths) != len(leaves):
        widths = [min(widths, default=2)] * len(leaves)
    below = (max(2, width) for width in widths)
    return map_specs(lambda spec: _draw(spec, samples, random, below=next(below), positive=True), specs)


def _get_numpy_type(spec: ArraySpec) -> Any:
    import numpy as np

    try:
        return np.dtype(spec.dtype)
    except TypeError:
        return np.dtype("float32")  # bfloat16 is passed as float32 and cast on the device


def _draw(spec: ArraySpec, samples: int, random: Any, *, below: int, positive: bool = False) -> Any:
    import numpy as np

    kind, shape = _get_numpy_type(spec), (samples, *spec.shape)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(kind)
    if kind == np.uint8 and not positive:
        return random.integers(0, 256, shape, dtype=np.uint8)
    if kind.kind in "iu":
        return random.integers(0, below, shape, dtype=np.int64).astype(kind)
    if positive:
        return random.random(shape, dtype=np.float32).astype(kind)
    return random.standard_normal(shape, dtype=np.float32).astype(kind)


WARM_UP_BATCHES = 3  # first batches, with the start of workers and the filling of queues
KEPT_BATCHES = 2000
# Share of a step spent waiting for background workers above which they, and not the device, set the pace [-].
STARVED_SHARE = 0.5


class InputWaits:
    """Clock around the batches that `fit()` takes from its input, on JAX and PyTorch.

    Without background workers, the time in the input is the time to prepare a batch. With workers, it is only the
    wait for them: their throughput is known where the wait dominates the step, and unknown elsewhere. Arrays are
    not watched, nor is `tf.data`, which prepares batches in its own threads. TensorFlow takes batches inside its
    compiled loop, where they cannot be timed.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.waits_s: list[float] = []  # time in the input, one value per batch after the first ones [s]
        self.workers: int | None = None  # of the input; None if it has none of its own [-]
        self.batch_size: int | None = None  # of the first batch; None before it, or if it is not watched [-]
        self._background: bool | None = None  # None: not an input whose batches can be timed
        self._clock, self._seen = clock, 0

    def watch(self, epoch_iterator: Any, backend: str) -> None:
        """Time the batches of Keras's `EpochIterator` of a `fit()`, if there is one, from its next epoch on.

        Not arrays, which need no preparation, and inputs whose workers are unknown (`tf.data`, Grain).
        """
        adapter: Any = getattr(epoch_iterator, "data_adapter", None)
        kind = type(adapter).__name__ if backend in {"jax", "torch"} else ""
        if kind == "PyDatasetAdapter":
            self.workers, self._background = int(adapter.py_dataset.workers), adapter.enqueuer is not None
        elif kind == "TorchDataLoaderAdapter":
            self.workers = int(adapter._dataloader.num_workers)
            self._background = self.workers > 0
        elif kind == "GeneratorDataAdapter":
            self._background = False
        else:
            return
        original = epoch_iterator._get_iterator
        epoch_iterator._get_iterator = lambda: self._iterate(original())

    def _iterate(self, batches: Iterable[Any]) -> Iterator[Any]:
        began_s = self._clock()
        for batch in batches:
            self._seen += 1
            self.batch_size = self.batch_size or count_samples(batch)
            if self._seen > WARM_UP_BATCHES and len(self.waits_s) < KEPT_BATCHES:
                self.waits_s.append(self._clock() - began_s)
            yield batch
            began_s = self._clock()

    def build_record(self, *, batch_size: int | None, step_s: float | None) -> PipelineRecord | None:
        """Return the input's throughput; None if the waits do not reveal it.

        `batch_size` is that of a step over all devices [-], `step_s` the median step time, waits included [s].
        """
        if self._background is None or not batch_size or len(self.waits_s) < FEWEST_BATCHES:
            return None
        steps_s = self.waits_s
        if self._background:
            if step_s is None or median(self.waits_s) < STARVED_SHARE * step_s:
                return None
            steps_s = [step_s]
        cores = float(max(1, self.workers or 1))
        return build_pipeline_record(steps_s, batch_size=batch_size, workers=self.workers, cores=cores)
