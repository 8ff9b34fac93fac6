"""The grammar of the MODEL argument."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpuplan.errors import UsageError
from gpuplan.workload.reference import parse_reference, read_keras_names
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one file of each kind."""
    for name in ("train.py", "models.py", "model.keras", "model.h5", "workload.json", "notes.txt"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "kind", "name", "arguments"),
    [
        ("train.py", "script", "", {}),
        ("models.py:vgg13", "function", "vgg13", {}),
        ("models.py:vgg13?image_size=128&classes=100", "function", "vgg13", {"image_size": 128, "classes": 100}),
        ("my.package:build?name=small", "function", "build", {"name": "small"}),
        ("ResNet50", "application", "ResNet50", {}),
        ("keras.applications.EfficientNetV2S?classes=10", "application", "EfficientNetV2S", {"classes": 10}),
        ("ResNet50?input_shape=[64,64,3]", "application", "ResNet50", {"input_shape": [64, 64, 3]}),
        (
            "ResNet50?include_top=false&pooling=avg",
            "application",
            "ResNet50",
            {"include_top": False, "pooling": "avg"},
        ),
        ("keras_hub:llama3.2_1b?sequence_length=512", "application", "llama3.2_1b", {"sequence_length": 512}),
        ("model.keras", "saved_model", "", {}),
        ("./model.h5", "saved_model", "", {}),
        ("workload.json", "json", "", {}),
    ],
)
def test_every_form_is_recognized(folder: Path, text: str, kind: str, name: str, arguments: object) -> None:
    """Each form of the grammar yields its kind, name and arguments; JSON values are read."""
    reference = parse_reference(text, base=folder)

    assert (reference.kind, reference.name, reference.arguments) == (kind, name, arguments)


def test_relative_paths_start_from_the_base(folder: Path) -> None:
    """A path in a table is relative to the table, not to the current folder."""
    assert parse_reference("models.py:vgg", base=folder).path == folder / "models.py"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing.py", "no such file"),
        ("nothing.keras", "no such file"),
        ("nothing.py:build", "no such file"),
        ("notes.txt", "no file that gpuplan reads"),
        ("train.py?epochs=3", "belong to functions"),
        ("models.py:vgg?size", "cannot read `size`"),
        ("models.py:two words", "names no function"),
        ("a-b:build", "neither a `.py` file nor a module"),
        ("", "empty"),
        ("keras_hub:two words", "not the name of a preset"),
        ("keras_hub:./nowhere", "no such file"),
        ("torchvision.models.resnet50", "unknown model"),
    ],
)
def test_what_fits_no_form_is_a_usage_error_with_a_hint(folder: Path, text: str, message: str) -> None:
    """One line says what is wrong, a hint says what would be right, and the exit code is 2."""
    with pytest.raises(UsageError, match=message) as caught:
        parse_reference(text, base=folder)

    assert caught.value.hint
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("resnet-50?classes=10", "ResNet50?classes=10"),
        ("efficientnet_b0", "EfficientNetB0"),
        ("gemma_2b", "keras_hub:gemma_2b_en"),
        ("bert-base-uncased", "keras_hub:bert_base_en_uncased"),
        ("keras_hub:gemma-2b", "keras_hub:gemma_2b_en"),
    ],
)
def test_a_known_name_in_another_spelling_is_taken(text: str, meant: str) -> None:
    """The names of `keras.applications`, and of Keras Hub's presets with or without the language."""
    assert parse_reference(text, base=Path("/")).text == meant


def test_applications_are_those_of_keras() -> None:
    """The list saves the import of Keras, and is that of the version that is installed."""
    import keras

    here = {name for name in dir(keras.applications) if callable(getattr(keras.applications, name))}

    assert set(read_keras_names()["applications"]) == here


@given(st.recursive(st.booleans() | st.integers() | st.none(), lambda inner: st.lists(inner, max_size=3)))
def test_arguments_are_read_as_json(value: object) -> None:
    """Whatever JSON says without `&` comes back as it was."""
    reference = parse_reference(f"ResNet50?value={json.dumps(value)}", base=Path("/"))

    assert reference.arguments == {"value": value}
