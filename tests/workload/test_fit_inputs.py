"""What `fit()` was given, read from at most one batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import keras
import numpy as np
import pytest
from gpuplan.workload.build.fit_inputs import FitInputs, read_fit_inputs
from gpuplan.workload.errors import CaptureError
from gpuplan.workload.options import ArraySpec


def feed_of(x: Any, y: Any = None, **arguments: Any) -> FitInputs:
    """Read the feed of a call of fit() with defaults for what is not given."""
    return read_fit_inputs({"x": x, "y": y, "batch_size": None, "sample_weight": None, **arguments})


def test_arrays_take_the_default_batch_size_of_fit() -> None:
    """Keras's own 32; 100 samples are four steps; floats are float32 and integers int32, as in JAX."""
    feed = feed_of(np.zeros((100, 8)), np.zeros(100, dtype="int64"))

    assert (feed.batch_size, feed.samples, feed.steps_per_epoch) == (32, 100, 4)
    assert feed.x == ArraySpec((8,), "float32")
    assert feed.y == ArraySpec((), "int32")
    assert feed.sample_weight is None


@pytest.mark.parametrize(("samples", "split", "left"), [(100, 0.1, 90), (60_000, 0.1, 54_000), (101, 0.3, 70)])
def test_a_validation_split_is_taken_off_as_keras_takes_it(samples: int, split: float, left: int) -> None:
    """Keras keeps floor(samples x (1 - split)) for training."""
    feed = feed_of(np.zeros((samples, 1)), batch_size=10, validation_split=split)

    assert feed.samples == left


def test_validation_data_leaves_the_training_data_whole() -> None:
    """Keras ignores the split when validation data is given."""
    feed = feed_of(np.zeros((100, 1)), validation_split=0.5, validation_data=(0, 0))

    assert feed.samples == 100


def test_nested_inputs_keep_their_structure() -> None:
    """Dicts and lists of arrays come back as dicts and lists of specs."""
    x = {"image": np.zeros((6, 4, 4, 1), dtype="uint8"), "extra": [np.zeros((6, 2)), np.zeros(6)]}

    assert feed_of(x).x == {
        "image": ArraySpec((4, 4, 1), "uint8"),
        "extra": [ArraySpec((2,), "float32"), ArraySpec((), "float32")],
    }


def test_class_weights_become_one_weight_a_sample() -> None:
    """fit() turns them into sample weights, which the step multiplies with."""
    feed = feed_of(np.zeros((4, 1)), np.zeros(4), class_weight={0: 1.0})

    assert feed.sample_weight == ArraySpec((), "float32")


def test_steps_per_epoch_over_arrays_set_the_length_of_an_epoch() -> None:
    """Ten steps of 16 are 160 samples, however many there are."""
    feed = feed_of(np.zeros((10_000, 1)), batch_size=16, steps_per_epoch=10)

    assert (feed.samples, feed.steps_per_epoch) == (160, 10)


def test_a_dataset_is_asked_for_one_batch_only() -> None:
    """A PyDataset's length is used, its first batch is looked at, and no other is made."""
    import keras

    class Counted(keras.utils.PyDataset):
        made: ClassVar[list[int]] = []

        def __len__(self) -> int:
            return 7

        def __getitem__(self, index: int) -> Any:
            self.made.append(index)
            return np.zeros((24, 5), dtype="float32"), np.zeros((24, 1)), np.ones(24)

    feed = feed_of(Counted())

    assert Counted.made == [0]
    assert (feed.batch_size, feed.samples, feed.steps_per_epoch) == (24, 168, 7)
    assert feed.sample_weight == ArraySpec((), "float32")


def test_a_generator_needs_steps_per_epoch_to_have_a_length() -> None:
    """With it, samples are known; without, they stay unknown."""

    def batches() -> Iterator[Any]:
        while True:
            yield np.zeros((8, 3)), np.zeros(8)

    assert feed_of(batches(), steps_per_epoch=5).samples == 40
    assert feed_of(batches()).samples is None
    assert feed_of(batches()).batch_size == 8


def test_lists_of_batches_have_a_length() -> None:
    """Anything with `__iter__` and `__len__` (a torch DataLoader among them) is a finite pipeline."""

    class Loader:
        def __iter__(self) -> Iterator[Any]:
            return iter([(np.zeros((4, 2)), np.zeros(4))] * 3)

        def __len__(self) -> int:
            return 3

    feed = feed_of(Loader())

    assert (feed.batch_size, feed.samples) == (4, 12)


@pytest.mark.parametrize(("drop_last", "samples", "steps"), [(False, 20, 4), (True, 18, 3)])
def test_the_last_batch_of_a_loader_of_pytorch_may_be_smaller(
    *, drop_last: bool, samples: int, steps: int
) -> None:
    """Of 20 samples in batches of 6, the fourth batch has 2, unless it is dropped; and 2 steps have 12."""
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.zeros(20, 3), torch.zeros(20, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=6, drop_last=drop_last)

    feed, given = feed_of(loader), feed_of(loader, steps_per_epoch=2)

    assert (feed.samples, feed.steps_per_epoch, feed.batch_size) == (samples, steps, 6)
    assert (given.samples, given.steps_per_epoch) == (12, 2)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (None, "without data"),
        (np.zeros((0, 3)), r"\[0\] samples"),
        ([np.zeros((3, 1)), np.zeros((4, 1))], r"\[3, 4\] samples"),
        (np.array(["good", "bad"]), "fit\\(\\) was given"),
        (iter([]), "no batch"),
        (42, "cannot read the data"),
    ],
)
def test_data_that_cannot_be_trained_on_is_named(x: Any, message: str) -> None:
    """One line says what was given, and a hint what can be."""
    with pytest.raises(CaptureError, match=message) as caught:
        feed_of(x)

    assert caught.value.hint


class _Batches(keras.utils.PyDataset):
    """Seven batches of five samples."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros((5, 8), "float32"), np.zeros((5, 1), "float32")


class _Broken(_Batches):
    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        raise OSError("no such file")


@pytest.mark.parametrize(
    ("held_out", "more", "samples"),
    [
        (_Batches(), {}, 35),
        (_Batches(), {"validation_steps": 2}, 10),
        (_Batches(), {"validation_freq": 5}, 7),
        (_Broken(), {}, None),
    ],
)
def test_batches_of_validation_are_counted(held_out: object, more: dict[str, int], samples: int | None) -> None:
    """7 batches of 5 samples; the first 2 alone; every fifth epoch; unknown where they cannot be read."""
    x, y = np.zeros((20, 8), "float32"), np.zeros((20, 1), "float32")
    given = {"x": x, "y": y, "batch_size": 4, "validation_data": held_out, **more}

    assert read_fit_inputs(given).validation_samples == samples
