"""Time that a running `fit()` spends on its input, and the input's throughput where that time reveals it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import Any

from ..profile_schema import PipelineRecord
from .input_pipeline import build_pipeline_record

WARM_UP_BATCHES = 3  # first batches, with the start of workers and the filling of queues
KEPT_BATCHES = 2000
FEWEST_BATCHES = 8
# Share of a step spent waiting for background workers above which they, and not the device, set the pace [-].
STARVED_SHARE = 0.5


class InputWaits:
    """Clock around the batches that `fit()` takes from its input, on JAX and PyTorch.

    Without background workers, the time in the input is the time to prepare a batch. With workers, it is only the
    wait for them: their throughput is known where the wait dominates the step, and unknown elsewhere. Arrays are
    not watched, nor is `tf.data`, which prepares batches in its own threads. TensorFlow takes batches inside its
    compiled loop, where they cannot be timed.

    Args:
        clock: Monotonic clock [s].

    Attributes:
        waits_s: Time in the input, one value per batch after the first ones [s].
        workers: Number of the input's workers; None if it has none of its own [-].
        batch_size: Samples of the first batch; None before it, and for an input that is not watched [-].
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.waits_s: list[float] = []
        self.workers: int | None = None
        self.batch_size: int | None = None
        self._background: bool | None = None  # None: not an input whose batches can be timed
        self._clock, self._seen = clock, 0

    def watch(self, epoch_iterator: Any, backend: str) -> None:
        """Time the batches of an `EpochIterator` of Keras from its next epoch on; no other effect.

        Args:
            epoch_iterator: Iterator of the calling `fit()`; None or an array's: not watched.
            backend: Keras backend.
        """
        found = find_workers(getattr(epoch_iterator, "data_adapter", None))
        if found is None or backend not in {"jax", "torch"}:
            return
        self.workers, self._background = found
        original = epoch_iterator._get_iterator
        epoch_iterator._get_iterator = lambda: self._iterate(original())

    def _iterate(self, batches: Iterable[Any]) -> Iterator[Any]:
        source = iter(batches)
        while True:
            began_s = self._clock()
            try:
                batch = next(source)
            except StopIteration:
                return
            self._seen += 1
            self.batch_size = self.batch_size or _count_samples(batch)
            if self._seen > WARM_UP_BATCHES and len(self.waits_s) < KEPT_BATCHES:
                self.waits_s.append(self._clock() - began_s)
            yield batch

    def build_record(self, *, batch_size: int | None, step_s: float | None) -> PipelineRecord | None:
        """Return the input's throughput; None if the waits do not reveal it.

        Args:
            batch_size: Samples of a step over all devices; None if unknown [-].
            step_s: Median step time of the run, waits included [s].
        """
        if self._background is None or not batch_size or len(self.waits_s) < FEWEST_BATCHES:
            return None
        steps_s = self.waits_s
        if self._background:
            if step_s is None or median(self.waits_s) < STARVED_SHARE * step_s:
                return None
            steps_s = [step_s]
        return build_pipeline_record(
            steps_s,
            [1] * len(steps_s),
            batch_size=batch_size,
            workers=self.workers,
            cores=float(max(1, self.workers or 1)),
        )


def _count_samples(batch: Any) -> int | None:
    import keras

    shapes = [tuple(getattr(leaf, "shape", ())) for leaf in keras.tree.flatten(batch)]
    return next((int(shape[0]) for shape in shapes if shape), None)


def find_workers(adapter: Any) -> tuple[int | None, bool] | None:
    """Return an input's number of workers and whether it is prepared in the background.

    None for arrays, which need no preparation, and for inputs whose workers are unknown (`tf.data`, Grain).
    """
    kind = type(adapter).__name__
    if kind == "PyDatasetAdapter":
        return int(adapter.py_dataset.workers), adapter.enqueuer is not None
    if kind == "TorchDataLoaderAdapter":
        workers = int(adapter._dataloader.num_workers)
        return workers, workers > 0
    if kind == "GeneratorDataAdapter":
        return None, False
    return None
