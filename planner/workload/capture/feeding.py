"""The data that feeds `fit()`: its throughput, from a few batches pulled without training, and its length."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...limits import count_usable_cores
from ..build.fit_inputs import FitInputs
from ..model import InputRate
from ..options import iter_specs

MOST_S, MOST_SCRIPT_S = 3.0, 5.0  # of one pipeline, and of all of a script; so for its length [s]
MOST_BATCHES = 20  # after the first, with which workers start and buffers fill [-]
PEEKED = 2  # batches of a generator that Keras has read before the loop gets the first [-]
_KINDS = {"tensorflow": "tf.data", "torch": "DataLoader", "grain": "Grain"}
INPUT_ARGUMENTS = ("x", "y", "sample_weight", "batch_size", "steps_per_epoch", "shuffle", "class_weight")
data_is_replaced = threading.Event()  # by stand-ins: no pipeline is measured any more


class _Finder:
    """Findings on the data objects of a script, each made once, in a limited time; `clock` is monotonic [s]."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._left_s = clock, MOST_SCRIPT_S
        self._known: dict[int, tuple[Any, Any]] = {}  # by id; the object is kept alive

    def _find_once(self, data: Any, find: Callable[[float], Any]) -> Any:
        """Return the finding of a function on a data object, which gets the time it may take [s], possibly 0."""
        if id(data) not in self._known:
            began_s = self._clock()
            self._known[id(data)] = data, find(min(MOST_S, self._left_s))
            self._left_s = max(0.0, self._left_s - (self._clock() - began_s))
        return self._known[id(data)][1]


class InputMeter(_Finder):
    """Meter of the pipelines of a script."""

    def measure(self, arguments: Mapping[str, Any], *, steps: int | None = None) -> InputRate | None:
        """Return the throughput of the input of a `fit()` of some steps [-], measured once; None for stand-ins."""
        data = arguments["x"]
        kind = find_kind(data)
        if kind == "arrays":
            return InputRate(kind=kind)
        if data_is_replaced.is_set():
            return None
        found: InputRate = self._find_once(data, lambda limit_s: self._pull(arguments, kind, steps, limit_s))
        return found

    def _pull(self, arguments: Mapping[str, Any], kind: str, steps: int | None, limit_s: float) -> InputRate:
        data = arguments["x"]
        workers = getattr(data, "workers", getattr(data, "num_workers", None))
        stated = workers if isinstance(workers, int) else None
        rate = InputRate(kind=kind, workers=stated, host_cores=count_usable_cores())
        if limit_s <= 0:
            return rate
        most, together = MOST_BATCHES if steps is None else min(MOST_BATCHES, steps - PEEKED), stated or 1
        most = max(1, most // together * together or most)  # whole rounds of the workers
        pull = Pull(arguments, unused=PEEKED if kind == "generator" else 1, most=most, clock=self._clock)
        pull.run(limit_s)
        if len(pull.ends_s) < 2 or pull.ends_s[-1] <= pull.ends_s[0]:
            return rate
        samples_per_s = pull.samples / (pull.ends_s[-1] - pull.ends_s[0])
        return replace(rate, samples_per_s=samples_per_s, cores=pull.cores, batches=len(pull.ends_s) - 1)


def find_kind(data: Any) -> str:
    """Return the kind of an input of `fit()`, see `InputRate`; `generator` for all that is not known."""
    import keras

    if isinstance(data, keras.utils.PyDataset):
        return "PyDataset"
    if isinstance(data, (list, tuple, dict)) or (hasattr(data, "shape") and hasattr(data, "__getitem__")):
        return "arrays"
    modules = (cls.__module__.partition(".")[0] for cls in type(data).__mro__)
    return next((_KINDS[module] for module in modules if module in _KINDS), "generator")


class Pull:
    """Pulling of batches in a thread of its own, which is left behind where the pipeline blocks."""

    def __init__(
        self, arguments: Mapping[str, Any], *, unused: int, most: int | None, clock: Callable[[], float]
    ) -> None:
        self._arguments, self._unused, self._most, self._clock = arguments, unused, most, clock
        self.thread = threading.Thread(target=self._pull, daemon=True)
        self._begun, self._over = threading.Event(), threading.Event()
        self._first_processor_s = 0.0
        self.cores = 0.0  # that the pipeline kept busy; 0 before the first batch [-]
        self.ends_s: list[float] = []  # of the first batches, which are not timed, and of each one after them [s]
        self.samples = 0  # of the batches that are timed [-]

    def run(self, most_s: float, *, start_s: float = 0.0) -> None:
        """Pull until there are enough batches, or a time is over, besides that until the first batch [s]."""
        self.thread.start()
        self._begun.wait(start_s)
        self._over.wait(most_s)
        self._over.set()
        if self.ends_s:
            gone_s = max(self._clock() - self.ends_s[0], 1e-9)
            self.cores = (read_processor_s() - self._first_processor_s) / gone_s

    def _pull(self) -> None:
        try:
            batches = iter_batches(self._arguments)
            for _ in itertools.islice(batches, self._unused):
                self._first_processor_s = read_processor_s()
                self.ends_s[:] = [self._clock()]
                self._begun.set()
            for batch in itertools.islice(batches, self._most):
                if self._over.is_set():
                    return
                self.samples += count_samples(batch) or 0
                self.ends_s.append(self._clock())
        except Exception:  # the pipeline is the user's code: what came so far counts
            return
        finally:
            self._begun.set()
            self._over.set()


def iter_batches(arguments: Mapping[str, Any]) -> Iterator[Any]:
    """Yield batches as in `fit()`, repeating epochs; nothing if the data can be read only once."""
    from keras.src.trainers.epoch_iterator import EpochIterator  # the public face of it is fit() alone

    given = {name: arguments[name] for name in INPUT_ARGUMENTS if arguments.get(name) is not None}
    iterator = EpochIterator(**given)
    try:
        while True:
            count = 0
            for _, _, batch in iterator:
                count += 1
                yield batch
            if count == 0:
                return
            iterator.reset()
    finally:
        enqueuer = getattr(iterator.data_adapter, "enqueuer", None)
        if enqueuer is not None:
            enqueuer.stop()


def count_samples(batch: Any) -> int | None:
    """Return the samples of a batch [-]; None if no array has a first dimension."""
    import keras

    shapes = [tuple(getattr(leaf, "shape", ())) for leaf in keras.tree.flatten(batch)]
    return next((int(shape[0]) for shape in shapes if shape), None)


def read_processor_s() -> float:
    """Return the processor time of this process and its children, including running ones [s]."""
    import psutil

    used = os.times()
    total_s = used.user + used.system + used.children_user + used.children_system
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = child.cpu_times()
            total_s += times.user + times.system
    return total_s


class DataCounter(_Finder):
    """Counter of batches and samples."""

    def complete(self, feed: FitInputs, arguments: dict[str, Any]) -> FitInputs:
        """Return an input with the counts that `fit()` would find by reaching the end of its data."""
        held_out = arguments.get("validation_data")
        if feed.samples is None and (found := self._count(arguments["x"], taken=feed.batch_size or 0)):
            feed = replace(feed, steps_per_epoch=found[0], samples=found[1])
        is_open = feed.validation_samples is None and not arguments.get("validation_steps")
        if held_out is not None and is_open and (found := self._count(held_out, taken=0)):
            often = arguments.get("validation_freq") or 1
            feed = replace(feed, validation_samples=max(1, found[1] // often) if isinstance(often, int) else None)
        return feed

    def _count(self, data: Any, *, taken: int) -> tuple[int, int] | None:
        """Return batches and samples, of which `taken` are gone; None where they are too many or unknown."""

        def count(limit_s: float) -> tuple[int, int] | None:
            endless = hasattr(data, "cardinality") and int(data.cardinality()) == -1
            if endless or hasattr(data, "__getitem__") or limit_s <= 0:
                return None
            is_iterator, until_s = isinstance(data, Iterator), time.monotonic() + limit_s
            batches, samples = int(is_iterator and taken > 0), is_iterator * taken
            try:
                for batch in data:
                    batches, samples = batches + 1, samples + int(next(iter_specs(batch)).shape[0])
                    if time.monotonic() > until_s:
                        return None
            except Exception:  # the data is the user's code, which fails in its own time
                return None
            return (batches, samples) if batches else None

        found: tuple[int, int] | None = self._find_once(data, count)
        return found
