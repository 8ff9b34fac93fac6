"""The order of batches after an interruption, compared with a run without one, for all kinds of data."""

from __future__ import annotations

import functools
import gc
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpuplan.launch.agent.checkpoint import ControlFlags
from gpuplan.launch.agent.timing import StepClock
from launch.onboard import ordered_fits
from launch.onboard.ordered_fits import BATCH, EPOCHS, SAMPLES, SOURCES, STEPS, Trained, train, train_interrupted

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning"),  # of unknown length
]
RANDOM = {"pydataset-secret", "tfdata-secret", "generator-random"}  # no seed decides their order
KNOWN = sorted(SOURCES.keys() - RANDOM)
KERAS_DIFFERS = {"pydataset-workers", "pydataset-shuffled-workers"}  # Keras trains prefetched batches twice
EVERYWHERE = ["generator", "numpy-shuffled", "pydataset", "tfdata"]
SEEN_ONCE = sorted({"numpy-shuffled", "pydataset-shuffled", "pydataset-shuffled-workers", "pydataset-redrawn"})


@pytest.fixture(scope="module", autouse=True)
def _steps_compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what XLA compiles: almost every run here trains the same step."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    keep = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled")),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in keep}

    def configure(settings: dict[str, Any]) -> None:
        for name, value in settings.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()

    configure(keep)
    ordered_fits.keep_modules()
    yield
    gc.unfreeze()
    configure(before)


@functools.cache
def uninterrupted(source: str) -> Trained:
    """Return what Keras's own `fit` trains; where it trains batches twice, the wrapped one."""
    if source in KERAS_DIFFERS:
        return wrapped(source)
    return train(source)


def wrapped(source: str) -> Trained:
    """Return what the wrapped `fit` trains without an interruption."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return train(source, Path(folder), every_s=1e9)


def said(folder: Path) -> list[str]:
    """Return what was said about going on."""
    return list(json.loads((folder / "resumed.json").read_text()))


CASES = [(source, point) for source in KNOWN for point in ("middle", "second")]
CASES += [(source, point) for source in EVERYWHERE for point in ("first", "last", "validation")]


@pytest.mark.parametrize(("source", "point"), CASES)
def test_a_run_that_was_killed_trains_the_batches_of_one_that_was_not(
    source: str, point: str, tmp_path: Path
) -> None:
    """Same batches, same order, same weights to the bit, same history."""
    whole = uninterrupted(source)
    resumed = train_interrupted(source, point, tmp_path)

    assert resumed.seen == whole.seen
    assert resumed.iterations == whole.iterations
    assert resumed.history == whole.history
    for one, other in zip(whole.weights, resumed.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(said(tmp_path)) == 1
    assert "starts again" not in said(tmp_path)[0]


@pytest.mark.parametrize("source", SEEN_ONCE)
def test_an_order_that_no_script_seeds_is_found_again_too(source: str, tmp_path: Path) -> None:
    """The random states are in the checkpoint: every sample of every epoch is trained once."""
    resumed = train_interrupted(source, "second", tmp_path, seed=None)

    for epoch in range(EPOCHS):
        assert samples(resumed.seen[epoch * STEPS : (epoch + 1) * STEPS]) == list(range(SAMPLES))
    assert len(resumed.seen) == EPOCHS * STEPS
    assert "after batch 4; the batches before it are those that were trained" in said(tmp_path)[0]


@pytest.mark.parametrize("source", sorted(RANDOM))
def test_an_epoch_whose_order_is_lost_starts_again_from_its_beginning_and_says_so(
    source: str, tmp_path: Path
) -> None:
    """Nothing is trained twice and nothing is left out: the first part of the epoch is as if it had never been."""
    resumed = train_interrupted(source, "second", tmp_path)

    steps = len(resumed.seen) // EPOCHS
    done = 4 if steps == STEPS else 6  # killed after batch 14: of the second epoch, its fourth or its last
    assert said(tmp_path) == [
        "fit 1: epoch 2 starts again from its first batch: the data came in another order;"
        f" {done} trained batches are dropped"
    ]
    assert resumed.iterations == len(resumed.seen) == EPOCHS * steps
    if source != "generator-random":
        assert samples(resumed.seen[steps : 2 * steps]) == list(range(SAMPLES))


def samples(seen: list[float]) -> list[int]:
    """Return the samples of batches, sorted."""
    return sorted(int(number) // SAMPLES**place % SAMPLES for number in seen for place in range(BATCH))


def test_an_epoch_that_starts_again_has_the_weights_of_its_beginning(tmp_path: Path) -> None:
    """From the first epoch, of which nothing was kept: the same weights as a run from the script's own."""
    with pytest.MonkeyPatch.context() as patch:
        kinds = iter((SOURCES["pydataset-secret"], SOURCES["numpy"]))
        patch.setitem(SOURCES, "changing", lambda: next(kinds)())  # noqa: PLW0108 (a new kind at every call)
        resumed = train_interrupted("changing", "middle", tmp_path)
    whole = uninterrupted("numpy")

    assert "5 trained batches are dropped" in said(tmp_path)[0]
    assert resumed.seen == whole.seen
    assert resumed.history == whole.history


def test_metrics_of_a_part_are_not_called_those_of_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics that cannot be set back leave a gap in the history, and that is said; validation is whole."""
    monkeypatch.setattr("gpuplan.launch.agent.resume.restore_metrics", lambda model, state: False)
    resumed = train_interrupted("numpy", "second", tmp_path)
    whole = uninterrupted("numpy")

    assert [math.isnan(value) for value in resumed.history["loss"]] == [False, True, False]
    assert resumed.history["val_loss"] == whole.history["val_loss"]
    assert "metrics of this epoch are those of its later batches, and not in the history" in said(tmp_path)[0]


@pytest.mark.parametrize("second", [2, 9])
def test_a_generator_that_two_fits_share_goes_on_where_the_first_left_it(second: int, tmp_path: Path) -> None:
    """The first `fit` is done and not trained again; its batches are drawn all the same."""

    def both(folder: Path | None, kill_after: int = -1) -> list[float]:
        import keras

        ordered_fits.reseed(7)
        model, data, seen = ordered_fits.network(), ordered_fits._endless(), list[float]()
        fit: Any = (
            ordered_fits._ResumableFit(keras.Model.fit, folder, ControlFlags(every_s=0.0), StepClock())
            if folder
            else keras.Model.fit
        )
        for _ in range(2):
            record = ordered_fits.recorder(seen, kill_after=kill_after)
            try:
                fit(model, data, epochs=2, steps_per_epoch=7, shuffle=False, verbose=0, callbacks=[record])
            except ordered_fits.KilledError:
                return seen
        return seen

    before = both(tmp_path, 14 + second)
    assert before + both(tmp_path) == both(None)


ON_TENSORFLOW = [
    "pydataset",
    "numpy",
    "numpy-shuffled",
    "tfdata",
    "tfdata-repeated",
    "tfdata-reshuffled",
    "loader",
    "generator",
]
ON_TORCH = ["pydataset", "pydataset-workers", "numpy-shuffled", "tfdata", "loader-shuffled", "generator"]


@pytest.mark.parametrize(
    ("backend", "sources"), [("tensorflow", ON_TENSORFLOW), ("torch", ON_TORCH)], ids=["tensorflow", "torch"]
)
def test_other_backends_train_the_same_batches(backend: str, sources: list[str], tmp_path: Path) -> None:
    """In processes of their own."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, ordered_fits.__file__, ",".join(sources), str(tmp_path)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for source, runs in json.loads(done.stdout.splitlines()[-1]).items():
        whole = runs.pop("")
        for point, resumed in runs.items():
            if source not in KERAS_DIFFERS:
                assert resumed["seen"] == whole["seen"], (source, point)
            assert resumed["iterations"] == len(resumed["seen"]) == len(whole["seen"])
            assert "starts again" not in resumed["said"], (source, point)
            assert resumed["history"]["seen"] == whole["history"]["seen"] or source in KERAS_DIFFERS
