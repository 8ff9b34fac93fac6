"""The wrapped `fit`, with real training: whatever ends it, no step is lost and none is done twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpuplan.launch.agent.checkpoint import LEAVE, Checkpoints, ControlFlags, Progress
from gpuplan.launch.agent.resume import _ResumableFit
from gpuplan.launch.agent.timing import StepClock

SAMPLES, BATCH, EPOCHS = 40, 4, 3
STEPS_PER_EPOCH = SAMPLES // BATCH


def network() -> Any:
    """Return a small compiled network whose dropout has a seed of its own."""
    import keras

    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    return model


def data() -> tuple[Any, Any]:
    """Return samples and targets."""
    x = np.random.default_rng(0).random((SAMPLES, 3), dtype=np.float32)
    return x, x.sum(1, keepdims=True)


def write(path: str) -> None:
    """Stand in for a model's weights."""
    Path(path).write_text("weights")


class KilledError(BaseException):
    """What a SIGKILL leaves: nothing of this process."""


def interrupting(at: int, control: ControlFlags | None) -> Any:
    """Return a callback of the user's that kills the process, or lets SIGTERM come, at the n-th batch."""
    import keras

    class Interrupt(keras.callbacks.Callback):
        seen = 0

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.seen += 1
            if self.seen == at and control is not None:
                control.leave = True
            elif self.seen == at:
                raise KilledError

    return Interrupt()


def fits(folder: Path, *, every_s: float = 0.0) -> tuple[_ResumableFit, ControlFlags]:
    """Return a process's wrapped `fit`."""
    import keras

    control = ControlFlags(every_s=every_s)
    return _ResumableFit(keras.Model.fit, folder, control, StepClock()), control


@pytest.mark.parametrize(("at", "gently"), [(4, True), (10, True), (30, True), (17, False)])
def test_every_step_is_done_once(tmp_path: Path, at: int, gently: bool) -> None:
    """Interrupted at the n-th of 30 batches by SIGTERM or SIGKILL: the optimizer has done 30 steps in the end."""
    x, y = data()
    fit, control = fits(tmp_path)
    with pytest.raises((SystemExit, KilledError)) as caught:
        fit(
            network(),
            x,
            y,
            batch_size=BATCH,
            epochs=EPOCHS,
            verbose=0,
            callbacks=[interrupting(at, control if gently else None)],
        )
    assert not gently or caught.value.code == LEAVE

    model = network()
    history = fits(tmp_path)[0](model, x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0)

    assert int(model.optimizer.iterations) == EPOCHS * STEPS_PER_EPOCH
    assert history.epoch == [0, 1, 2]
    assert len(history.history["loss"]) == EPOCHS


def test_going_on_computes_what_an_uninterrupted_run_computes(tmp_path: Path) -> None:
    """Without shuffling, at an epoch's end: the same weights, to the bit, seeds and optimizer included."""
    x, y = data()
    whole = network()
    whole.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)

    fit, control = fits(tmp_path)
    with pytest.raises(SystemExit):
        fit(
            network(),
            x,
            y,
            batch_size=BATCH,
            epochs=EPOCHS,
            shuffle=False,
            verbose=0,
            callbacks=[interrupting(2 * STEPS_PER_EPOCH, control)],
        )
    resumed = network()
    fits(tmp_path)[0](resumed, x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)

    for one, other in zip(whole.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_fit_that_is_done_is_not_trained_again(tmp_path: Path) -> None:
    """Two calls of `fit`, killed in the second: the first one's weights and history are loaded, not trained."""
    x, y = data()
    fit, _ = fits(tmp_path)
    model = network()
    first = fit(model, x, y, batch_size=BATCH, epochs=2, verbose=0)
    with pytest.raises(KilledError):
        fit(model, x, y, batch_size=BATCH, epochs=1, verbose=0, callbacks=[interrupting(5, None)])

    again, _ = fits(tmp_path)
    restarted = network()
    loaded = again(restarted, x, y, batch_size=BATCH, epochs=2, verbose=0)
    assert int(restarted.optimizer.iterations) == 2 * STEPS_PER_EPOCH
    assert loaded.history == first.history

    again(restarted, x, y, batch_size=BATCH, epochs=1, verbose=0)
    assert int(restarted.optimizer.iterations) == 3 * STEPS_PER_EPOCH


def test_validation_is_left_and_resumed_too(tmp_path: Path) -> None:
    """SIGTERM while the validation of the first epoch runs: the epoch's steps are not trained again."""
    import keras

    x, y = data()
    fit, control = fits(tmp_path)

    class InValidation(keras.callbacks.Callback):
        def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
            control.leave = True

    arguments: dict[str, Any] = {"batch_size": BATCH, "epochs": 2, "verbose": 0, "validation_data": (x, y)}
    with pytest.raises(SystemExit):
        fit(network(), x, y, **arguments, callbacks=[InValidation()])
    model = network()
    fits(tmp_path)[0](model, x, y, **arguments)

    assert int(model.optimizer.iterations) == 2 * STEPS_PER_EPOCH


def test_a_checkpoint_that_a_disk_spoiled_is_not_loaded(tmp_path: Path) -> None:
    """The newest does not match its fingerprint: the one before it counts; what a crash cut short has no name."""
    checkpoints = Checkpoints(tmp_path)
    for steps in (5, 9):
        checkpoints.save(
            Progress(epoch=0, batch=steps, steps=steps), lambda path: Path(path).write_text("weights")
        )
    newest = sorted(tmp_path.glob("step-*"))[-1]
    (newest / "model.weights.h5").write_text("weight")
    (tmp_path / ".step-000000000012.1").mkdir()

    loaded = checkpoints.load()

    assert loaded is not None
    assert loaded[0].steps == 5


def test_only_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    """Disks are not free."""
    checkpoints = Checkpoints(tmp_path)
    for steps in range(6):
        checkpoints.save(Progress(epoch=1, batch=steps % 4, steps=steps), write)

    kept = ["step-000000000004-begin", "step-000000000005"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == kept


def test_the_beginning_of_the_epoch_is_kept_too(tmp_path: Path) -> None:
    """However many checkpoints there are within the epoch; going back to it removes those."""
    checkpoints = Checkpoints(tmp_path)
    for steps in range(6):
        checkpoints.save(Progress(epoch=1, batch=steps, steps=10 + steps), write)
    kept = ["step-000000000010-begin", "step-000000000014", "step-000000000015"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == kept

    checkpoints.back_to_begin()
    loaded = checkpoints.load()
    assert loaded is not None
    assert loaded[0].steps == 10
