"""Order of a `fit`'s batches: skip those that were trained before a restart.

Keras draws batches from an `EpochIterator`. Its steps are wrapped: batches that an earlier process trained are
drawn again, compared with the fingerprint in the checkpoint, and not trained. Before that, everything that
determines the order (random states, `on_epoch_end`, iterators made so far) is restored. When the batches
differ, `OrderChangedError` makes `fit` restart at the epoch's beginning.
"""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Iterator, Mapping
from types import GeneratorType
from typing import Any

from .checkpoint import Progress
from .state import BatchStream, capture_random_states, fingerprint_dataset, restore_random_states

END = object()


class OrderChangedError(Exception):
    """The batches differ from those that were trained, or cannot be compared."""


class BatchOrder:
    """Position of a `fit`, from epoch `first`, in its data.

    Args:
        states: Random states by moment (`fit`, `end`, `begin`) in the checkpoint; None: no resume.
    """

    def __init__(
        self, start: Progress, *, first: int, states: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self.stream = BatchStream()
        self.streams = 0
        self.position = 0
        self.dry = False
        self.states: dict[str, Mapping[str, Any]] = {"fit": capture_random_states(), **(states or {})}
        self._start, self._passed, self._pending = start, start.epoch - first, states is not None
        self.drawn = 0  # from a generator
        self.on_found: Callable[[], None] = lambda: None
        self._iterator: Any = None
        self._adapter: Any = None
        self._taken: Any = None

    def attach(self, iterator: Any, model: Any) -> None:
        """Wrap a Keras `EpochIterator` before its first batch; OrderChangedError if it cannot skip batches."""
        dataset = getattr(iterator, "_distributed_dataset", None)
        known = hasattr(iterator, "_enumerate_iterator") and (dataset is None or hasattr(dataset, "map"))
        if not known:
            self._pending = False
            if self._start.batch:
                raise OrderChangedError
            return
        self._iterator, self._model, self._adapter = iterator, model, iterator.data_adapter
        self._steps, iterator._enumerate_iterator = iterator._enumerate_iterator, self._epoch
        self._on_epoch_end, self._adapter.on_epoch_end = self._adapter.on_epoch_end, self._end_epoch
        for name in ("get_jax_iterator", "get_torch_dataloader"):
            setattr(self._adapter, name, self._noted(getattr(self._adapter, name)))
        if dataset is not None:
            iterator._get_iterator = lambda: fingerprint_dataset(dataset, self._begin_stream())
        self._drop_prefetched()

    def trained(self, batches: int) -> None:
        """Count batches that were trained."""
        self.position = min(self.position + batches, self.stream.given)

    def to_json(self) -> dict[str, Any] | None:
        """Return the position for a later process; None if it could not be restored."""
        if self._iterator is None:
            return None
        chain = self.stream.chain_at(self.position)
        marks = {number: mark for number, mark in self.stream.marks.items() if int(number) <= self.position}
        return {"streams": self.streams, "position": self.position, "chain": chain, "marks": marks}

    def states_now(self, *, within_epoch: bool) -> dict[str, Mapping[str, Any]]:
        """Return the random states by moment; between epochs, `begin` is the current state."""
        now = {} if within_epoch else {"begin": capture_random_states(self._loader)}
        return {**self.states, **now}

    def counted(self, x: Any) -> Any:
        """Return a generator with its draws counted; other data unchanged."""

        def batches() -> Iterator[Any]:
            for batch in x:
                self.drawn += 1
                yield batch

        return batches() if isinstance(x, GeneratorType) else x

    def rewound(self, x: Any) -> Any:
        """Return a generator rewound to its first batch, if Keras drew no more than that; other data unchanged."""
        first = getattr(self._adapter, "_first_batches", ())
        if not isinstance(x, GeneratorType) or self.drawn > len(first):
            return x
        return (batch for batches in (first, x) for batch in batches)

    def close(self) -> None:
        """Stop prefetching."""
        enqueuer = getattr(self._adapter, "enqueuer", None)
        if enqueuer is not None:
            enqueuer.stop()

    @property
    def _loader(self) -> Any:
        """PyTorch `DataLoader` of the batches, or None."""
        return getattr(self._adapter, "_dataloader", None)

    def _drop_prefetched(self) -> None:
        """Drop batches prefetched while Keras inferred shapes: it would train them twice."""
        enqueuer = getattr(self._adapter, "enqueuer", None)
        while enqueuer is not None and self._adapter.num_batches is not None:
            try:
                enqueuer.ready_queue.get(block=False)
            except queue.Empty:
                return

    def _begin_stream(self) -> BatchStream:
        self.streams += 1
        self.position, self.stream = 0, BatchStream()
        return self.stream

    def _noted(self, get: Callable[[], Any]) -> Callable[[], Iterator[Any]]:
        """Wrap a function that returns batches so that each is fingerprinted."""
        return lambda: self._note_each(iter(get()))  # a `DataLoader` draws a seed now, as without the wrapper

    def _note_each(self, source: Iterator[Any]) -> Iterator[Any]:
        """Yield batches and fingerprint each in a new stream."""
        import keras

        stream = self._begin_stream()
        for batch in source:
            stream.note(keras.tree.flatten(batch))
            yield batch

    def _end_epoch(self) -> None:
        """Save the random states before `on_epoch_end`, which may shuffle."""
        self.states["end"] = capture_random_states(self._loader)
        self._on_epoch_end()

    def _epoch(self) -> Iterator[tuple[int, int, Any]]:
        """Yield the steps of an epoch that are to be trained."""
        if self._pending:
            self._pending = False
            self._pass_epochs()
            restore_random_states(self.states.get("begin", {}), self._loader)
            yield from self._rest()
        else:
            self.states["begin"] = capture_random_states(self._loader)
            yield from self._steps()

    def _pass_epochs(self) -> None:
        """Advance the data to the epoch's beginning."""
        saved = self._start.order
        if saved is None:
            return
        if self._iterator.steps_per_epoch is None and not hasattr(self._adapter, "_first_batches"):
            self._pass_by_events(saved["streams"] - bool(self._start.batch))
            return
        for _ in range(self._passed):
            for begin, end, iterator in self._steps():
                if not self._take(iterator, end + 1 - begin):  # as `fit` does when data run out
                    with self._iterator.catch_stop_iteration():
                        raise StopIteration
                    break
        if not self._start.batch:
            self._require_same(saved)

    def _pass_by_events(self, streams: int) -> None:
        """Pass epochs without drawing a batch, where each epoch has its own iterator."""
        data = getattr(self._adapter, "py_dataset", self._adapter)
        for left in reversed(range(self._passed)):
            data.on_epoch_begin()
            if left == 0:
                restore_random_states(self.states.get("end", {}), self._loader)
            data.on_epoch_end()
        for _ in range(streams - self.streams):
            iter(getattr(self._adapter, "_dataset", ()))  # tf.data: reshuffles for each iterator
        self.streams = streams

    def _rest(self) -> Iterator[tuple[int, int, Any]]:
        """Yield the steps after those that were trained."""
        done, saved, ahead = self._start.batch, self._start.order, None
        if done and saved is None:
            raise OrderChangedError
        if not done:
            self.on_found()
        for begin, end, iterator in self._steps():
            if begin >= done:
                yield begin, end, ahead or iterator
                continue
            self._take(iterator, end + 1 - begin)
            if end + 1 >= done:
                self._require_same(saved)
                self.on_found()
                last, ahead = self._look_ahead(end, iterator)
                if last:
                    yield from self._dry_step(begin, end)

    def _look_ahead(self, end: int, iterator: Any) -> tuple[bool, Iterator[Any] | None]:
        """Look one batch ahead: whether the epoch ends with this step, and its iterator if a batch was drawn."""
        steps = self._iterator.num_batches or self._start.steps_per_epoch
        if steps or hasattr(self._iterator, "_distributed_dataset"):
            return end + 1 >= (steps or float("inf")), None
        batch = next(iterator, END)
        return batch is END, itertools.chain([] if batch is END else [batch], iterator)

    def _dry_step(self, begin: int, end: int) -> Iterator[tuple[int, int, Any]]:
        """Yield an epoch's last step without training it: Keras needs a step before validation."""
        import keras

        model, logs = self._model, dict(self._start.logs)
        train = model.train_function

        def stand_in(*arguments: Any) -> Any:
            model.train_function = train
            return (logs, arguments[0]) if keras.backend.backend() == "jax" else logs

        model.train_function, self.dry = stand_in, True
        yield begin, end, itertools.repeat(self._taken)
        self.dry = False

    def _take(self, iterator: Any, batches: int) -> bool:
        """Draw batches that were trained before; return whether there were enough."""
        taken = 0
        while taken < batches and (batch := next(iterator, END)) is not END:
            self._taken, taken = batch, taken + 1
        self.trained(taken)
        saved = self._start.order or {}
        mark = self.stream.marks.get(str(self.position))
        if self.streams == saved.get("streams") and mark != saved["marks"].get(str(self.position), mark):
            raise OrderChangedError
        return taken == batches

    def _require_same(self, saved: Any) -> None:
        """Raise OrderChangedError unless the batches so far equal those that were trained."""
        if self.to_json() != saved:
            raise OrderChangedError
