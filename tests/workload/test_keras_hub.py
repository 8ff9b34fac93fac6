"""Presets of Keras Hub as MODEL: by name, without weights, without a network."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from gpuplan.errors import UsageError
from gpuplan.workload.build.from_reference import build_preset
from gpuplan.workload.capture.load import WorkloadOptions, load_workload
from gpuplan.workload.capture.materialize import abstract_variables
from gpuplan.workload.reference import parse_reference, read_presets

installed = pytest.mark.skipif(
    importlib.util.find_spec("keras_hub") is None, reason="Keras Hub is not installed: .ci/keras-hub"
)
KNOWN = read_presets()
CONFIGS = sorted({json.dumps(config, sort_keys=True): name for name, config in KNOWN.items()}.values())


def test_the_table_names_each_preset_once_with_a_source() -> None:
    """At least a hundred presets, each configuration with the document in which it was read."""
    import tomllib
    from importlib.resources import files

    rows = tomllib.loads(files("gpuplan.profiles").joinpath("keras_hub_presets.toml").read_text())["preset"]
    names = [name for row in rows for name in row["names"]]

    assert len(names) == len(set(names)) > 100
    assert all(len(row["source"]) > 10 for row in rows)


@installed
@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_of_the_registry(name: str) -> None:
    """`keras_hub.models.Backbone.presets`: the published number of every preset with this one."""
    import keras
    import keras_hub

    kind, config = KNOWN[name]
    with abstract_variables():
        built = getattr(keras_hub.models, kind)(**config).count_params()
    keras.backend.clear_session()
    alike = [other for other, known in KNOWN.items() if known == (kind, config)]

    assert {built} == {keras_hub.models.Backbone.presets[other]["metadata"]["params"] for other in alike}


@installed
@pytest.mark.slow
def test_a_model_of_two_billion_parameters_is_traced_without_them() -> None:
    """2,506,172,416 parameters (registry); a step is 6 FLOP a parameter and token, and attention."""
    workload = load_workload("keras_hub:gemma_2b_en?sequence_length=256", options=WorkloadOptions(batch_size=2))

    assert workload.parameters == 2_506_172_416
    assert workload.flops_per_step == pytest.approx(6 * 2_506_172_416 * 2 * 256, rel=0.03)
    assert workload.unmodelled == ()


@installed
def test_arguments_choose_the_task_its_own_arguments_and_lora() -> None:
    """A head of two classes on BERT adds its pooling and its output; LoRA trains a thousandth of GPT-2."""
    with abstract_variables():
        bert = build_preset(
            parse_reference(
                "keras_hub:bert_tiny_en_uncased?task=TextClassifier&num_classes=2&sequence_length=32",
                base=Path("/"),
            )
        )
        lora = build_preset(
            parse_reference("keras_hub:gpt2_base_en?sequence_length=32&lora_rank=2", base=Path("/"))
        )

    assert bert.count_params() == 4_385_920 + (128 + 1) * 2
    assert sum(one.shape[0] * one.shape[-1] for one in lora.trainable_weights) < lora.count_params() / 500


@installed
@pytest.mark.filterwarnings("ignore::UserWarning:keras")  # of layers that have nothing to quantize
@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize("targets", ["query,key", '["query", "key"]'])
def test_a_quantized_base_with_lora_is_that_of_keras_hub(mode: str, targets: str) -> None:
    """`backbone.quantize(mode)` and `backbone.enable_lora(4, target_layer_names=[...])` of BERT tiny with weights.

    Keras trains 128 x 2 x 4 + 4 x 64 numbers of each product, and its bias of 128: two products in two layers. The
    head of a task is not quantized, and is trained.
    """
    import keras
    import keras_hub

    name = "bert_tiny_en_uncased"
    kind, config = KNOWN[name]
    keras.backend.clear_session()
    backbone = getattr(keras_hub.models, kind)(**config)
    backbone.quantize(mode)
    backbone.enable_lora(4, target_layer_names=["query", "key"])
    expected = [(v.path, tuple(v.shape), v.dtype, v.trainable) for v in backbone.variables]
    text = f"keras_hub:{name}?sequence_length=8&quantize={mode}&lora_rank=4&lora_target_layer_names={targets}"
    keras.backend.clear_session()
    with abstract_variables():
        bare = build_preset(parse_reference(f"{text}&task=Backbone", base=Path("/")))
        classifier = build_preset(parse_reference(f"{text}&task=TextClassifier&num_classes=2", base=Path("/")))

    found = [(v.path, tuple(v.shape), v.dtype, v.trainable) for v in bare.variables]
    trained = sum(int(np.prod(v.shape)) for v in classifier.trainable_variables)
    assert found == expected
    assert trained == 2 * 2 * (1280 + 128) + (128 + 1) * 2
    assert all(variable._value is None for variable in classifier.variables if variable.shape)


@installed
@pytest.mark.parametrize(
    ("text", "message", "way_out"),
    [
        ("keras_hub:gpt2_base_en?sequence_length=8&quantize=int3", "unknown quantization", "int8 or int4"),
        ("keras_hub:gpt2_base_en?sequence_length=8&lora_target_layer_names=query", "needs", "lora_rank=8"),
        ("keras_hub:gpt2_base_en?lora_rank=2&lora_target_layer_names=kay", "no layer `kay`", "key, "),
        ("keras_hub:gemma_2b_eng", "unknown preset", "gemma_2b_en"),
        ("keras_hub:gemma_2b_en", "how long its sequences are", "?sequence_length=512`"),
        ("keras_hub:whisper_large_multi_v2", "is not here", "load_weights=False"),
        ("keras_hub:bert_tiny_en_uncased?task=CausalLM", "no task `CausalLM`", "TextClassifier"),
        ("keras_hub:gpt2_base_en?sequence_length=8&size=3", "has no argument `size`", "lora_rank"),
        ("keras_hub:gpt2_base_en?sequence_length=-8", "at least 1", "512"),
    ],
)
def test_what_cannot_be_built_has_a_way_out(text: str, message: str, way_out: str) -> None:
    """One line, and what would work."""
    with abstract_variables(), pytest.raises(UsageError, match=message) as caught:
        build_preset(parse_reference(text, base=Path("/")))

    assert way_out in (caught.value.hint or "")


@installed
def test_a_configuration_in_a_folder_or_in_kaggles_cache_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Keras Hub saves it; one that names code outside Keras is refused before anything is looked up."""
    import keras_hub

    kind, config = KNOWN["gpt2_base_en"]
    saved = {"module": "keras_hub.src.models.gpt2.gpt2_backbone", "class_name": kind, "config": config}
    saved["registered_name"] = f"keras_hub>{kind}"
    folder = tmp_path / "models" / "keras" / "gpt2" / "keras" / "gpt2_large_en" / "2"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(saved))
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path))
    handle = keras_hub.models.Backbone.presets["gpt2_large_en"]["kaggle_handle"]
    (folder.parent / handle.rpartition("/")[2]).mkdir(exist_ok=True)
    (folder.parent / handle.rpartition("/")[2] / "config.json").write_text(json.dumps(saved))
    texts = (f"keras_hub:{folder}?sequence_length=8", "keras_hub:gpt2_large_en?sequence_length=8")
    with abstract_variables():
        built = [build_preset(parse_reference(text, base=tmp_path)).count_params() for text in texts]
    (folder / "config.json").write_text(json.dumps({**saved, "module": "os", "class_name": "system"}))

    assert built == [124_439_808] * 2  # the planted one, not GPT-2 large
    with pytest.raises(UsageError, match="not part of Keras"):
        build_preset(parse_reference(f"keras_hub:{folder}?sequence_length=8", base=tmp_path))


def test_without_keras_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that installs it."""
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(UsageError, match="needs Keras Hub") as caught:
        build_preset(parse_reference("keras_hub:gemma_2b_en", base=Path("/")))

    assert caught.value.hint == "`pip install 'gpuplan[keras-hub]'`"
