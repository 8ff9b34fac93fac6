"""The front door: ten different things in, workloads out."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import pytest
from gpuplan.errors import GpuplanError, UsageError
from gpuplan.workload.capture.load import WorkloadOptions, load_workload, trace_keras_model
from gpuplan.workload.ops import OpKind

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = 3 * 3 * 1 * 32 + 32 + 3 * 3 * 32 * 64 + 64 + 1600 * 10 + 10
LSTM_64 = 4 * (64 * (128 + 64) + 64)  # one direction over 128 features; four gates
LSTM_128 = 4 * (64 * (128 + 64) + 64)  # over both directions' 64
REVIEWS = 20_000 * 128 + 2 * LSTM_64 + 2 * LSTM_128 + 128 + 1


@pytest.mark.parametrize(
    ("script", "batch_size", "samples", "epochs", "steps", "parameters"),
    [
        ("mnist_cnn.py", 128, 54_000, 15, 15 * 422, DIGITS),
        ("cifar_pipeline.py", 64, 157 * 64, 20, 20 * 157, None),
        ("generator_regression.py", 256, 200 * 256, 5, 1_000, None),
        ("imdb_lstm.py", 32, 25_000, 2, 2 * 782, REVIEWS),
        ("tiny_transformer.py", 32, 4_096, 3, 3 * 128, None),
        ("unet.py", 16, 400, 50, 50 * 25, None),
        ("custom_layer.py", 50, 2_000, 10, 400, None),
        ("tabular.py", 2_048, 182_276, 30, 30 * 90, 30 * 256 + 256 + 2 * (256 * 256 + 256) + 256 + 1),
    ],
)
def test_every_example_script_is_captured(  # noqa: PLR0917
    script: str, batch_size: int, samples: int, epochs: int, steps: int, parameters: int | None
) -> None:
    """Counts are those written in the script; parameters are counted by hand where that is short."""
    workload = load_workload(script, options=WorkloadOptions(), base=EXAMPLES)

    assert (workload.batch_size, workload.samples) == (batch_size, samples)
    assert (workload.epochs, workload.steps) == (epochs, steps)
    assert parameters in (None, workload.parameters)
    assert workload.flops_per_step > 0
    assert workload.memory.parameter_bytes >= 4 * workload.trainable_parameters
    assert workload.mode == "train"


@pytest.mark.parametrize("name", ["ResNet50", "MobileNetV2"])
def test_applications_have_the_parameters_that_keras_counts(name: str) -> None:
    """Exactly those of the model that Keras itself builds; the step is that of batch 2."""
    workload = load_workload(f"{name}?classes=10", options=WorkloadOptions(batch_size=2))
    with keras.StatelessScope(initialize_variables=False):  # shapes alone: to draw the values takes 12 s
        model = getattr(keras.applications, name)(weights=None, classes=10)

    assert workload.parameters == model.count_params()
    assert workload.trainable_parameters == sum(math.prod(v.shape) for v in model.trainable_weights)
    assert workload.samples is None
    assert workload.steps is None
    assert any("not compiled" in note for note in workload.notes)


def test_a_function_in_a_file_takes_arguments() -> None:
    """VGG13 for 32-pixel images and 7 classes: the dense layers see 512 features."""
    reference = "models.py:vgg13?image_size=32&classes=7"
    workload = load_workload(reference, options=WorkloadOptions(), base=EXAMPLES)
    widths = [(3, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 512)] + [(512, 512)] * 3
    convolutions = sum(9 * a * b + b for a, b in widths)
    dense = 512 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 7 + 7

    assert workload.parameters == convolutions + dense
    assert workload.batch_size == 32
    assert any("no batch size" in note for note in workload.notes)


def test_a_saved_model_and_a_saved_workload(tmp_path: Path) -> None:
    """A `.keras` file is traced; what is written as JSON is read back equal, for another length if asked."""
    model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(10, activation="softmax")])
    model.compile(optimizer="sgd", loss="categorical_crossentropy", metrics=["accuracy"])
    model.save(tmp_path / "model.keras")
    workload = load_workload("model.keras", options=WorkloadOptions(batch_size=8), base=tmp_path)
    (tmp_path / "w.json").write_text(json.dumps(workload.to_json()), encoding="utf-8")

    assert workload.parameters == 20 * 10 + 10
    assert load_workload("w.json", options=WorkloadOptions(), base=tmp_path) == workload
    run = load_workload("w.json", options=WorkloadOptions(samples=100, epochs=3), base=tmp_path)
    assert run == replace(workload, samples=100, epochs=3, steps=3 * 13)


def test_tokens_are_those_of_language_models() -> None:
    """A vector for each of 16 integers: 1,000 tokens are 63 samples. One vector for all is no language model."""
    ids = keras.Input((16,), dtype="int32")
    vectors = keras.layers.Embedding(50, 8)(ids)
    language = keras.Model(ids, keras.layers.Dense(50)(vectors))
    classifier = keras.Model(ids, keras.layers.Dense(16)(keras.layers.GlobalAveragePooling1D()(vectors)))
    for model in (language, classifier):
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    run = WorkloadOptions(batch_size=4, tokens=1000)
    workload = trace_keras_model(language, options=run)

    assert (workload.tokens_per_sample, workload.samples, workload.epochs, workload.steps) == (16, 63, 1, 16)
    assert trace_keras_model(classifier, options=replace(run, tokens=None)).tokens_per_sample is None
    with pytest.raises(UsageError, match="no language model"):
        trace_keras_model(classifier, options=run)
    with pytest.raises(UsageError, match="--epochs"):
        WorkloadOptions(tokens=1000, epochs=2)


def test_inference_needs_neither_loss_nor_optimizer() -> None:
    """A forward pass keeps no gradients and no optimizer state."""
    workload = load_workload(
        "models.py:lstm_text?length=16", options=WorkloadOptions(mode="infer", batch_size=4), base=EXAMPLES
    )

    assert workload.mode == "infer"
    assert workload.memory.gradient_bytes == workload.memory.optimizer_bytes == 0
    assert not any("not compiled" in note for note in workload.notes)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("ResNet5O", "unknown model"),
        ("ResNet50?clases=3", "clases"),
        ("ResNet50?include_top=false", "no fixed shape"),
        ("models.py:vgg", "no function `vgg`"),
        ("models.py:vgg13?pixels=3", "pixels"),
        ("models.py:layers", "no function `layers`"),
        ("nowhere.module:build", "no module `nowhere`"),
    ],
)
def test_references_that_lead_nowhere_are_usage_errors(reference: str, message: str) -> None:
    """One line, a hint, exit code 2."""
    with pytest.raises(UsageError, match=message) as caught:
        load_workload(reference, options=WorkloadOptions(batch_size=1), base=EXAMPLES)

    assert caught.value.hint


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def build(): return 3", "returned int"),
        ("def build(): raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("def build(: pass", "syntax error"),
        ("import keras\nclass build(keras.Model): pass", "the input shape of"),
    ],
)
def test_functions_that_return_no_model_say_why(tmp_path: Path, body: str, message: str) -> None:
    """The user's own failure is named with its line."""
    (tmp_path / "mine.py").write_text(body, encoding="utf-8")

    with pytest.raises(GpuplanError, match=message) as caught:
        load_workload("mine.py:build", options=WorkloadOptions(), base=tmp_path)

    assert caught.value.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "not a saved workload"),
        ("not json", "not a saved workload"),
        ('{"schema": "gpuplan.else/1"}', r"unknown schema `gpuplan\.else/1`"),
        ('{"schema": "gpuplan.workload/2", "model": "x"}', "is corrupt"),
    ],
)
def test_json_that_is_no_workload_is_named(tmp_path: Path, content: str, message: str) -> None:
    """Unknown schemas and missing keys are told apart."""
    (tmp_path / "w.json").write_text(content, encoding="utf-8")

    with pytest.raises(UsageError, match=message):
        load_workload("w.json", options=WorkloadOptions(), base=tmp_path)


def test_arguments_after_the_dashes_are_for_scripts_only() -> None:
    """An application cannot take them, and says so instead of dropping them."""
    with pytest.raises(UsageError, match="takes no arguments"):
        load_workload("ResNet50", options=WorkloadOptions(), argv=["--epochs", "3"])


def test_a_batch_size_that_the_model_fixes_cannot_be_changed(tmp_path: Path) -> None:
    """`keras.Input(batch_size=4)` fixes it: 4 is taken, 8 refused."""
    (tmp_path / "mine.py").write_text(
        "import keras\n"
        "def build():\n"
        "    inputs = keras.Input((3,), batch_size=4)\n"
        "    return keras.Model(inputs, keras.layers.Dense(2)(inputs))\n",
        encoding="utf-8",
    )

    def load(**options: Any) -> Any:
        return load_workload("mine.py:build", options=WorkloadOptions(**options), base=tmp_path)

    assert load().batch_size == 4
    with pytest.raises(UsageError, match="fix it to 4"):
        load(batch_size=8)


def test_a_quantized_model_multiplies_int8(tmp_path: Path) -> None:
    """`model.quantize("int8")`: the one product of the step has int8 operands, as Keras writes it."""
    model = "keras.Sequential([keras.Input((32,)), keras.layers.Dense(16)])"
    text = f"import keras\ndef build():\n    model = {model}\n    model.quantize('int8')\n    return model\n"
    (tmp_path / "models.py").write_text(text, encoding="utf-8")
    workload = load_workload("models.py:build", options=WorkloadOptions(batch_size=8, mode="infer"), base=tmp_path)

    assert [op.dtype for op in workload.ops if op.kind is OpKind.DOT] == ["int8"]
