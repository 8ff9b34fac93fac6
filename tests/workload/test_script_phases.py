"""Ten scripts as people write them: phases, epochs and steps counted by hand equal those of the plan."""

from __future__ import annotations

import json
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
    ("rest", "why"),
    [
        ("1 / 0\nbuild().fit(x, y)", "failed at train.py, line 11 (ZeroDivisionError"),
        ("import os; os._exit(3)", "ended by itself (exit code 3)"),
        ("import time; time.sleep(300)", "took longer than 12s"),
        ("build().fit(42)", "fit() at train.py, line 11 is not: cannot read the data"),
        ("build().fit(iter(x) if 1 / 0 else 1)", "failed at train.py, line 11 (ZeroDivisionError"),
    ],
)
def test_a_plan_of_some_phases_says_so(tmp_path: Path, rest: str, why: str) -> None:
    """What was found is planned, and the sentence counts one phase more, at least, with the reason."""
    terms = ScriptOptions(timeout_s=12.0 if "sleep" in rest else 300.0)
    workload = follow(tmp_path, f"build().fit(x, y, epochs=3)\n{rest}", script=terms)

    assert lengths(workload) == [(1, 3, 12, WHOLE)]
    assert len(workload.unplanned) == 1
    assert why in workload.unplanned[0]
    assert workload.why_partial == f"1 of at least 2 phases could be planned; {workload.unplanned[0]}."
    assert Workload.from_json(workload.to_json()) == workload


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rest", "note"),
    [
        ("1 / 0", "failed at train.py, line 11 (ZeroDivisionError"),
        ("open('weights.txt', 'w').write('new'); import os; os.system('rm weights.txt')", "os.system after fit()"),
    ],
)
def test_a_script_that_fails_after_its_last_phase_is_planned_whole(
    tmp_path: Path, rest: str, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left that trains; a note says where it ended, and the user's files stay as they are."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.txt").write_text("trained")
    workload = follow(tmp_path, f"build().fit(x, y, epochs=3)\n{rest}")

    assert lengths(workload) == [(1, 3, 12, WHOLE)]
    assert (workload.unplanned, workload.why_partial) == ((), "")
    assert any(note in one and "nothing after it trains" in one for one in workload.notes)
    assert (tmp_path / "weights.txt").read_text() == "trained"


@pytest.mark.slow
def test_a_text_generator_that_samples_from_its_predictions(tmp_path: Path) -> None:
    """40 epochs of 4 steps: probabilities are 1/16, from `predict`, `predict_on_batch` and the model itself."""
    workload = follow(
        tmp_path,
        """
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="softmax")])
        model.compile("rmsprop", "sparse_categorical_crossentropy")
        def sample(chances):
            chances = np.exp(np.log(np.asarray(chances).astype("float64")) / 0.5)
            return np.argmax(np.random.multinomial(1, chances / chances.sum(), 1))
        for epoch in range(40):
            model.fit(x, np.zeros(100))
            for predict in (model.predict, model.predict_on_batch, model):
                found = np.asarray(predict(x[:3]))
                assert found.shape == (3, 16) and found.dtype == "float32" and (found == 1 / 16).all()
                sample(found[0])
        regression = build()
        assert (regression.predict(x) == 0).all()
        """,
    )

    assert lengths(workload) == [(40, 40, 160, 8 * 16 + 16)]
    assert workload.unplanned == ()


@pytest.mark.slow
def test_data_that_does_not_know_its_length_is_counted(tmp_path: Path) -> None:
    """Seven batches of 10, the last of 5: 65 samples; 7 steps x 2 and 3 epochs; 10 samples to validate."""
    workload = follow(
        tmp_path,
        """
        class Rows:
            def __iter__(self):
                for first in range(0, 65, 10):
                    yield x[first : min(first + 10, 65)], y[first : min(first + 10, 65)]
        def one():
            yield x[:10], y[:10]
        rows = Rows()
        build().fit(rows.__iter__(), validation_data=one())
        def endless():
            while True:
                yield x[:10], y[:10]
        build().fit(endless(), steps_per_epoch=5, epochs=3)
        """,
    )

    assert lengths(workload) == [(1, 1, 7, WHOLE), (1, 3, 15, WHOLE)]
    assert [one.samples for one in workload.phases] == [65, 50]


@pytest.mark.slow
def test_samples_of_phases_of_unknown_length(tmp_path: Path) -> None:
    """`--samples 100` at a batch of 10: 10 steps x 2 epochs and 10 x 5."""
    body = """
        def endless():
            while True:
                yield x[:10], y[:10]
        build().fit(endless(), epochs=2)
        build().fit(endless(), epochs=5)
    """

    assert lengths(follow(tmp_path, body)) == [(1, 2, None, WHOLE), (1, 5, None, WHOLE)]
    assert lengths(follow(tmp_path, body, samples=100)) == [(1, 2, 20, WHOLE), (1, 5, 50, WHOLE)]


def test_functions_under_kinetic_run_here(tmp_path: Path) -> None:
    """Blocking, as a job, and one for each value, 4 steps an epoch; the accelerators of the functions that ran."""
    workload = follow(
        tmp_path,
        """
        import kinetic
        @kinetic.run(accelerator="cpu")
        def prepare():
            return x
        @kinetic.run("gpu-l4", spot=True)
        def train(epochs, scale=1):
            return build().fit(prepare(), y, epochs=epochs).epoch
        @kinetic.run()
        def never():
            raise OSError
        assert train(2) == [0, 1]
        assert train.run_async(3).result(cleanup=True) == [0, 1, 2]
        assert train.run_async_map([4, (4, 2), {"epochs": 4}], max_concurrent=2).results() == [[0, 1, 2, 3]] * 3
        assert train.__name__ == "train"
        """,
    )

    assert workload.named_machines == ("gpu-l4:spot", "cpu")
    assert sorted(lengths(workload)) == [(1, 2, 8, WHOLE), (1, 3, 12, WHOLE), (3, 12, 48, WHOLE)]


@pytest.mark.slow
def test_a_notebook_with_kinetic_and_pictures(tmp_path: Path) -> None:
    """4 steps x 3 epochs; magics are left out, `@kinetic.run` runs here, and `plot_model` needs no pydot."""
    cells = [
        f"%matplotlib inline\n!pip install keras{HEAD}",
        "import kinetic\n@kinetic.run(accelerator='v5e-1')\ndef train(epochs):\n    model = build()\n"
        "    keras.utils.plot_model(model, show_shapes=True)\n"
        "    return model.fit(x, y, epochs=epochs).history",
        "%%bash\nls",
        "assert len(train(3)['loss']) == 3\nx = 1\n1 / 0",
        "build().fit(x, y)",
    ]
    sources = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    (tmp_path / "train.ipynb").write_text(json.dumps({"cells": sources, "nbformat": 4}), encoding="utf-8")
    workload = load_workload("train.ipynb", options=WorkloadOptions(use_cache=False), base=tmp_path)

    assert lengths(workload) == [(1, 3, 12, WHOLE)]
    assert "failed at train.ipynb, cell 4, line 3 (ZeroDivisionError" in workload.unplanned[0]


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
