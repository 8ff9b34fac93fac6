"""Ten scripts as people write them: phases, epochs and steps counted by hand equal those of the plan."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from gpuplan.workload.capture.load import WorkloadOptions, load_workload
from gpuplan.workload.model import ForwardPasses, Workload
from gpuplan.workload.options import ScriptOptions

HEAD = """
import keras, numpy as np
x, y = np.zeros((100, 8), "float32"), np.zeros((100, 1), "float32")
def build():
    inputs = keras.Input((8,))
    hidden = keras.layers.Dense(16, activation="relu")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dropout(0.2)(hidden)))
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    return model
"""
WHOLE, LAST = 8 * 16 + 16 + 17, 17  # parameters of the model, and of its last layer


def follow(folder: Path, body: str, **options: object) -> Workload:
    """Write a script and follow it."""
    (folder / "train.py").write_text(HEAD + textwrap.dedent(body), encoding="utf-8")
    given = WorkloadOptions(use_cache=False, **options)  # type: ignore[arg-type]
    return load_workload("train.py", options=given, base=folder)


def lengths(workload: Workload) -> list[tuple[int, int | None, int | None, int]]:
    """Return calls, epochs and steps of all calls, and trainable parameters of each phase."""
    return [(one.calls, one.epochs, one.steps, one.trainable_parameters) for one in workload.phases]


def test_fine_tuning_in_two_phases(tmp_path: Path) -> None:
    """80 of 100 samples in batches of 10: 8 steps x 5 epochs; then 10 steps x 10 epochs, epochs 5 to 15."""
    workload = follow(
        tmp_path,
        """
        model = build()
        model.layers[1].trainable = False
        model.compile(optimizer="adam", loss="mse", metrics=["mae"])
        first = model.fit(x, y, epochs=5, batch_size=10, validation_split=0.2)
        print(f"{first.history['val_loss'][-1]:.4f}", max(first.history["mae"]), np.mean(first.history["loss"]))
        model.layers[1].trainable = True
        model.compile(optimizer=keras.optimizers.Adam(1e-5), loss="mse")
        model.fit(x, y, initial_epoch=first.epoch[-1] + 1, epochs=15, batch_size=10)
        loss = model.evaluate(x, y)
        assert model.predict(x).shape == (100, 1)
        model.save("model.keras")
        """,
    )

    assert lengths(workload) == [(1, 5, 40, LAST), (1, 10, 100, WHOLE)]
    assert (workload.total_epochs, workload.total_steps) == (15, 140)
    assert workload.trainable_parameters == WHOLE  # the longest phase
    assert not (tmp_path / "model.keras").exists()
    assert Workload.from_json(workload.to_json()) == workload
    assert [one.passes for one in workload.phases] == [
        (),
        (  # 32 samples a batch by default: 4 steps of 100 samples
            ForwardPasses(kind="evaluate", samples=100, steps=4),
            ForwardPasses(kind="predict", samples=100, steps=4),
        ),
    ]
    assert not any("not counted" in note for note in workload.notes)


@pytest.mark.slow
def test_k_fold_cross_validation(tmp_path: Path) -> None:
    """Ten models, each 10 steps (90 samples in batches of 9) x 50 epochs; traced once."""
    workload = follow(
        tmp_path,
        """
        scores = []
        for fold in range(10):
            model, kept = build(), np.arange(100) % 10 != fold
            model.fit(x[kept], y[kept], epochs=50, batch_size=9, validation_data=(x[~kept], y[~kept]), verbose=0)
            loss, mae = model.evaluate(x[~kept], y[~kept])
            scores.append(mae)
        print(f"{np.mean(scores):.3f} +- {np.std(scores):.3f}, best {np.argmin(scores)}")
        """,
    )

    assert lengths(workload) == [(10, 500, 5000, WHOLE)]
    assert (workload.programs, workload.validation_samples) == (10, 10)


@pytest.mark.slow
def test_a_loop_of_single_epochs(tmp_path: Path) -> None:
    """4 steps (100 samples in batches of 30) x 200 calls; the comparison of losses is named."""
    workload = follow(
        tmp_path,
        """
        model, best = build(), float("inf")
        for epoch in range(200):
            history = model.fit(x, y, epochs=1, batch_size=30)
            if history.history["loss"][0] < best:
                best = history.history["loss"][0]
                model.save_weights("best.weights.h5")
        """,
    )

    assert lengths(workload) == [(200, 200, 800, WHOLE)]
    assert workload.programs == 1
    assert any("line 14 depends on a metric" in note and "as true" in note for note in workload.notes)


@pytest.mark.slow
def test_a_generator(tmp_path: Path) -> None:
    """`steps_per_epoch=7` of 6 samples, 3 epochs."""
    workload = follow(
        tmp_path,
        """
        def batches():
            while True:
                yield x[:6], y[:6]
        build().fit(batches(), steps_per_epoch=7, epochs=3)
        """,
    )

    assert lengths(workload) == [(1, 3, 21, WHOLE)]
    assert (workload.batch_size, workload.samples) == (6, 42)


@pytest.mark.slow
def test_a_tensorflow_data_set(tmp_path: Path) -> None:
    """Seven batches of at most 16 samples, 4 epochs."""
    pytest.importorskip("tensorflow")
    workload = follow(
        tmp_path,
        """
        import tensorflow as tf
        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(100).batch(16).prefetch(2)
        build().fit(data, epochs=4)
        """,
    )

    assert lengths(workload) == [(1, 4, 28, WHOLE)]


@pytest.mark.slow
def test_a_pytorch_data_loader(tmp_path: Path) -> None:
    """Five batches of 20 samples, 6 epochs."""
    pytest.importorskip("torch")
    workload = follow(
        tmp_path,
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        build().fit(DataLoader(data, batch_size=20, shuffle=True), epochs=6)
        """,
    )

    assert lengths(workload) == [(1, 6, 30, WHOLE)]


@pytest.mark.slow
def test_a_model_with_a_train_step_of_its_own(tmp_path: Path) -> None:
    """4 steps (batches of 32) x 2 epochs, on the backend of the step."""
    pytest.importorskip("tensorflow")
    workload = follow(
        tmp_path,
        """
        import tensorflow as tf
        class Own(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(1)
            def call(self, inputs):
                return self.dense(inputs)
            def train_step(self, data):
                inputs, targets = data
                with tf.GradientTape() as tape:
                    loss = self.compute_loss(x=inputs, y=targets, y_pred=self(inputs, training=True))
                variables = self.trainable_variables
                self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
                return {"own_loss": loss}
        model = Own()
        model.compile(optimizer="sgd", loss="mse")
        history = model.fit(x, y, epochs=2)
        print(history.history["own_loss"][-1])
        """,
    )

    assert lengths(workload) == [(1, 2, 8, 9)]


@pytest.mark.slow
def test_a_search_of_keras_tuner_is_a_budget(tmp_path: Path) -> None:
    """12 trials x 5 epochs of 4 steps, then the best for 9 epochs."""
    pytest.importorskip("keras_tuner")
    workload = follow(
        tmp_path,
        """
        import keras_tuner
        def tuned(hp):
            model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(hp.Int("units", 16, 64, step=16))])
            model.compile(optimizer="adam", loss="mse")
            return model
        tuner = keras_tuner.RandomSearch(tuned, objective="val_loss", max_trials=12, directory=f"{__file__}.d")
        tuner.search(x, y, epochs=5, validation_split=0.2, batch_size=20)
        best = tuner.get_best_hyperparameters()[0]
        tuner.hypermodel.build(best).fit(x, y, epochs=9, batch_size=20)
        """,
    )

    assert lengths(workload) == [(12, 60, 240, 144), (1, 9, 45, 144)]
    assert any("12 trials x 5 epochs" in note for note in workload.notes)


@pytest.mark.slow
def test_early_stopping_is_an_upper_bound(tmp_path: Path) -> None:
    """4 steps x 1000 epochs, said to be the most; the "best epoch" of what follows is the last."""
    workload = follow(
        tmp_path,
        """
        stop = keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True)
        history = build().fit(x, y, epochs=1000, validation_data=(x, y), callbacks=[stop])
        best = int(np.argmin(history.history["val_loss"])) + 1
        build().fit(x, y, epochs=best)
        """,
    )

    assert lengths(workload) == [(1, 1000, 4000, WHOLE), (1, 1000, 4000, WHOLE)]
    assert any("EarlyStopping may end" in note and "upper bound" in note for note in workload.notes)
    assert any("chooses by a metric" in note for note in workload.notes)


@pytest.mark.slow
def test_a_task_built_like_one_of_keras_hub(tmp_path: Path) -> None:
    """Keras alone, a backbone held as in Keras Hub: 10 steps x 1 epoch frozen, 10 steps x 2 epochs with it."""
    workload = follow(
        tmp_path,
        """
        class Backbone(keras.Model):
            def __init__(self):
                tokens = keras.Input((12,), dtype="int32", name="token_ids")
                hidden = keras.layers.Embedding(50, 8)(tokens)
                super().__init__(inputs={"token_ids": tokens}, outputs=keras.layers.Dense(8)(hidden))
        class Classifier(keras.Model):
            def __init__(self, backbone):
                pooled = keras.layers.GlobalAveragePooling1D()(backbone.output)
                super().__init__(inputs=backbone.input, outputs=keras.layers.Dense(2)(pooled))
                self.backbone = backbone
        tokens, labels = {"token_ids": np.zeros((40, 12), "int32")}, np.zeros((40,), "int32")
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        classifier = Classifier(Backbone())
        classifier.backbone.trainable = False
        classifier.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
        classifier.fit(tokens, labels, batch_size=4, epochs=1)
        classifier.backbone.trainable = True
        classifier.compile(optimizer=keras.optimizers.AdamW(5e-5), loss=loss, metrics=["accuracy"])
        classifier.fit(tokens, labels, batch_size=4, epochs=2)
        """,
    )

    assert lengths(workload) == [(1, 1, 10, 18), (1, 2, 20, 50 * 8 + 8 * 8 + 8 + 18)]


# --- what ends a script early -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rest", "note"),
    [
        ("1 / 0", "failed at train.py, line 11 (ZeroDivisionError"),
        ("import os; os._exit(3)", "ended by itself (exit code 3)"),
        ("import time; time.sleep(300)", "took longer than 12s"),
        ("build().fit(42)", "fit() at train.py, line 11 is not counted: cannot read the data"),
        ("open('weights.txt', 'w').write('new'); import os; os.system('rm weights.txt')", "os.system after fit()"),
    ],
)
def test_phases_until_an_early_end_are_kept(
    tmp_path: Path, rest: str, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found so far is planned, and a note says where it ended; the user's files stay as they are."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.txt").write_text("trained")
    workload = follow(tmp_path, f"build().fit(x, y, epochs=3)\n{rest}", script=ScriptOptions(timeout_s=12.0))

    assert lengths(workload) == [(1, 3, 12, WHOLE)]
    assert any(note in one for one in workload.notes)
    assert (tmp_path / "weights.txt").read_text() == "trained"


@pytest.mark.slow
def test_a_length_given_by_hand_replaces_the_phases(tmp_path: Path) -> None:
    """`--epochs` plans the longest phase alone and says so; a batch size holds for all phases."""
    body = """
        build().fit(x, y, epochs=2, batch_size=10)
        build().fit(x[:50], y[:50], epochs=8, batch_size=10)
    """
    given = follow(tmp_path, body, epochs=7)
    smaller = follow(tmp_path, body, batch_size=5)

    assert lengths(given) == [(1, 7, 35, WHOLE)]
    assert any("of 2 phases, the longest alone" in note for note in given.notes)
    assert lengths(smaller) == [(1, 2, 40, WHOLE), (1, 8, 80, WHOLE)]


@pytest.mark.slow
def test_a_script_of_pytorch_alone_is_told_what_works(tmp_path: Path) -> None:
    """It trains nothing and names Keras as the way."""
    pytest.importorskip("torch")
    body = """
        import torch
        net = torch.nn.Linear(8, 1)
        net(torch.from_numpy(x)).sum().backward()
    """
    with pytest.raises(Exception, match="trains a PyTorch module, not a Keras model") as caught:
        follow(tmp_path, body)

    assert "keras.layers" in str(getattr(caught.value, "hint", ""))


@pytest.mark.slow
def test_an_evaluation_of_a_model_that_was_not_trained_is_named(tmp_path: Path) -> None:
    """It has no step to take a share of; the one after `fit()` is counted, in a loop as often as it runs."""
    workload = follow(
        tmp_path,
        """
        model, other = build(), build()
        model.fit(x, y, batch_size=10)
        other.evaluate(x, y)
        for _ in range(3):
            model.evaluate(x, y, batch_size=30)
        """,
    )

    assert workload.passes == (ForwardPasses(kind="evaluate", samples=100, steps=4, calls=3),)
    assert any("line 13 is not counted: no fit()" in note for note in workload.notes)
