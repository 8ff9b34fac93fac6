"""Fits with batches that can be told apart, killed and resumed: in this process or, as a program, in its own.

`python ordered_fits.py SOURCES FOLDER` trains without an interruption, then interrupted in the second epoch and
gone on with, and the first two sources also interrupted in a validation; it prints all of it as JSON.
`KERAS_BACKEND` chooses the backend.
"""

from __future__ import annotations

import gc
import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from gpuplan.launch.agent.checkpoint import ControlFlags
from gpuplan.launch.agent.resume import _ResumableFit
from gpuplan.launch.agent.timing import StepClock

SAMPLES, BATCH, EPOCHS = 40, 4, 3
STEPS = SAMPLES // BATCH
POINTS = {"first": 1, "middle": 5, "last": STEPS, "second": STEPS + 4}  # batches trained before the kill


class KilledError(BaseException):
    """The end of a process by SIGKILL: no handler of the script or of Keras acts on it."""


def arrays() -> tuple[Any, Any]:
    """Return samples, and their numbers as targets."""
    x = np.random.default_rng(0).random((SAMPLES, 3), dtype=np.float32)
    return x, np.arange(SAMPLES, dtype=np.float32)[:, None]


def batches() -> list[tuple[Any, Any]]:
    """Return the data in batches."""
    x, y = arrays()
    return [(x[at : at + BATCH], y[at : at + BATCH]) for at in range(0, SAMPLES, BATCH)]


def network() -> Any:
    """Return a small compiled network; a metric names the samples of the last batch and their order."""
    import keras

    class Seen(keras.metrics.Metric):
        """Numbers of the samples of the last batch as the digits of one number, exact in float32."""

        def __init__(self) -> None:
            super().__init__(name="seen")
            self.last = self.add_variable((), "zeros", name="last")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            digits = keras.ops.convert_to_tensor([float(SAMPLES**place) for place in range(BATCH)])
            self.last.assign(keras.ops.sum(keras.ops.cast(y_true[:, 0], "float32") * digits))

        def result(self) -> Any:
            return self.last + 0.0

    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dropout(0.2, seed=2),
            keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(3)),
        ]
    )
    on_jax = keras.backend.backend() == "jax"  # TensorFlow would compile each of many models by XLA
    model.compile("adam", "mse", metrics=["mae", Seen()], jit_compile="auto" if on_jax else False)
    return model


def dataset(**options: Any) -> Any:
    """Return a `PyDataset` in its own order, or in one that it draws itself (`draw`)."""
    import keras

    draw = options.pop("draw", None)

    class Ordered(keras.utils.PyDataset):
        def __init__(self) -> None:
            super().__init__(**options)
            self.data = batches()
            self.on_epoch_end()

        def __len__(self) -> int:
            return len(self.data)

        def __getitem__(self, index: int) -> Any:
            return self.data[self.order[index]]

        def on_epoch_end(self) -> None:
            self.order = draw(self) if draw is not None else np.arange(STEPS)

    return Ordered()


def _redrawn(data: Any) -> Any:
    """Shuffle all batches with NumPy's global generator, as many published scripts do."""
    return np.random.permutation(STEPS)


def _own(data: Any) -> Any:
    """Shuffle the last order further, with a generator of the data's own."""
    data.generator = getattr(data, "generator", None) or np.random.default_rng(5)
    return data.generator.permutation(getattr(data, "order", np.arange(STEPS)))


def _secret(data: Any) -> Any:
    """Draw an order that no seed decides."""
    return np.random.default_rng().permutation(STEPS)


def _drawn() -> int:
    """Return a seed from the operating system."""
    return random.SystemRandom().randrange(1 << 30)


def _tensors() -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(arrays())


def _loader(**options: Any) -> Any:
    import torch

    data = torch.utils.data.TensorDataset(*(torch.from_numpy(array) for array in arrays()))
    return torch.utils.data.DataLoader(data, batch_size=BATCH, **options)


def _own_generator() -> Any:
    import torch

    return torch.Generator().manual_seed(11)


def _endless(*, start: int = 0) -> Iterator[Any]:
    data = batches()
    while True:
        yield data[start % STEPS]
        start += 3  # 7 steps an epoch, 10 batches, every third: no epoch begins as another one


def _random_batches() -> Iterator[Any]:
    data, generator = batches(), np.random.default_rng()
    while True:
        yield data[generator.integers(STEPS)]


def _numpy(**options: Any) -> dict[str, Any]:
    x, y = arrays()
    return {"x": x, "y": y, "batch_size": BATCH, **options}


WEIGHTS = np.linspace(0.5, 2, SAMPLES, dtype=np.float32)
SOURCES: dict[str, Callable[[], dict[str, Any]]] = {
    "pydataset": lambda: {"x": dataset(), "shuffle": False},
    "pydataset-workers": lambda: {"x": dataset(workers=3, max_queue_size=4), "shuffle": False},
    "pydataset-shuffled": lambda: {"x": dataset()},
    "pydataset-shuffled-workers": lambda: {"x": dataset(workers=3, max_queue_size=4)},
    "pydataset-redrawn": lambda: {"x": dataset(draw=_redrawn), "shuffle": False},
    "pydataset-own": lambda: {"x": dataset(draw=_own), "shuffle": False},
    "pydataset-secret": lambda: {"x": dataset(draw=_secret), "shuffle": False},
    "numpy": lambda: _numpy(shuffle=False),
    "numpy-shuffled": _numpy,
    "numpy-weights": lambda: _numpy(sample_weight=WEIGHTS, shuffle=False),
    "numpy-classes": lambda: _numpy(class_weight=dict(enumerate(WEIGHTS.tolist()))),
    "numpy-steps": lambda: _numpy(steps_per_epoch=5),
    "tfdata": lambda: {"x": _tensors().batch(BATCH), "shuffle": False},
    "tfdata-repeated": lambda: {"x": _tensors().batch(BATCH).repeat(), "steps_per_epoch": 7, "shuffle": False},
    "tfdata-reshuffled": lambda: {"x": _tensors().shuffle(SAMPLES, seed=3).batch(BATCH), "shuffle": False},
    "tfdata-unknown": lambda: {"x": _tensors().filter(lambda x, y: True).batch(BATCH), "shuffle": False},
    "tfdata-secret": lambda: {"x": _tensors().shuffle(SAMPLES, seed=_drawn()).batch(BATCH), "shuffle": False},
    "loader": lambda: {"x": _loader(), "shuffle": False},
    "loader-shuffled": lambda: {"x": _loader(shuffle=True), "shuffle": False},
    "loader-own": lambda: {"x": _loader(shuffle=True, generator=_own_generator()), "shuffle": False},
    "generator": lambda: {"x": _endless(), "steps_per_epoch": 7, "shuffle": False},
    "generator-random": lambda: {"x": _random_batches(), "steps_per_epoch": 7, "shuffle": False},
}


@dataclass
class Trained:
    """What one or several processes trained."""

    seen: list[float] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    history: dict[str, list[float]] = field(default_factory=dict)
    iterations: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain numbers."""
        weights = [array.tolist() for array in self.weights]
        return {"seen": self.seen, "weights": weights, "history": self.history, "iterations": self.iterations}


def recorder(seen: list[float], *, kill_after: int = -1, in_validation: bool = False) -> Any:
    """Return a callback of the script's: notes each batch, and kills the process after one, or in a validation."""
    import keras

    class Record(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append(float(logs["seen"]))
            if len(seen) == kill_after and not in_validation:
                raise KilledError

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            if in_validation and batch == 1:
                raise KilledError

    return Record()


def reseed(seed: int | None) -> None:
    """Seed everything as a script does, or leave it to chance as a script does that seeds nothing."""
    import keras
    import torch

    if seed is not None:
        keras.utils.set_random_seed(seed)
        torch.manual_seed(seed)  # Keras seeds it only where it is the backend
    else:
        random.seed()
        np.random.seed()
        torch.seed()


def keep_modules() -> None:
    """Import the backends, and leave modules out of the search for garbage that precedes every run: 0.3 s each."""
    for name in ("keras", "tensorflow", "torch"):
        import_module(name)
    gc.freeze()


def train(
    source: str,
    folder: Path | None = None,
    *,
    seed: int | None = 7,
    every_s: float = 0.0,
    validated: bool = True,
    **kill: Any,
) -> Trained:
    """Train as a new process does, with Keras's own `fit` (no folder) or the wrapped one.

    Raises:
        KilledError: As `kill` asks; its argument is what was trained until then.
    """
    import keras

    keras.backend.clear_session()
    reseed(seed)
    model, given, done = network(), SOURCES[source](), Trained()
    given |= {"epochs": EPOCHS, "verbose": 0, "callbacks": [recorder(done.seen, **kill)]}
    if validated:
        given["validation_data"] = tuple(array[: 2 * BATCH] for array in arrays())
        given["validation_batch_size"] = BATCH
    fit: Any = keras.Model.fit
    if folder is not None:
        fit = _ResumableFit(keras.Model.fit, folder, ControlFlags(every_s=every_s), StepClock())
    try:
        history = fit(model, **given)
    except KilledError as killed:
        raise KilledError(done) from killed
    done.weights, done.history = model.get_weights(), history.history
    done.iterations = int(model.optimizer.iterations)
    return done


def train_interrupted(
    source: str, point: str, folder: Path, *, seed: int | None = 7, validated: bool = True
) -> Trained:
    """Train until a kill at a point, with a checkpoint after every batch, then go on as a new process, with none.

    Returns:
        All batches that count, in order.
    """
    kill: dict[str, Any] = {"in_validation": True} if point == "validation" else {"kill_after": POINTS[point]}
    try:
        train(source, folder, seed=seed, validated=validated, **kill)
    except KilledError as killed:
        before: Trained = killed.args[0]
    else:
        raise AssertionError("it was not killed")
    whole = train(source, folder, seed=seed, every_s=1e9, validated=validated)
    count = whole.iterations - len(whole.seen)
    whole.seen[:0] = before.seen[:count]
    return whole


def main() -> None:
    """Print uninterrupted runs and ones that were interrupted."""
    keep_modules()
    sources, folder = sys.argv[1].split(","), Path(sys.argv[2])
    runs: dict[str, dict[str, Any]] = {}
    for source in sources:
        found = runs[source] = {"": train(source, validated=False).to_json()}
        for point in ("second", "validation") if source in sources[:2] else ("second",):
            place = folder / source / point
            found[point] = train_interrupted(source, point, place, validated=point == "validation").to_json()
            found[point]["said"] = (place / "resumed.json").read_text(encoding="utf-8")
    print(json.dumps(runs))


if __name__ == "__main__":
    main()
