"""Names of models that need no code of the user's: Keras applications and presets, as people spell them."""

from __future__ import annotations

import difflib
import re
import tomllib
from functools import cache
from importlib.resources import files

KERAS_HUB = "keras_hub"
APPLICATIONS = (
    "ConvNeXtBase", "ConvNeXtLarge", "ConvNeXtSmall", "ConvNeXtTiny", "ConvNeXtXLarge", "DenseNet121",
    "DenseNet169", "DenseNet201", "EfficientNetB0", "EfficientNetB1", "EfficientNetB2", "EfficientNetB3",
    "EfficientNetB4", "EfficientNetB5", "EfficientNetB6", "EfficientNetB7", "EfficientNetV2B0",
    "EfficientNetV2B1", "EfficientNetV2B2", "EfficientNetV2B3", "EfficientNetV2L", "EfficientNetV2M",
    "EfficientNetV2S", "InceptionResNetV2", "InceptionV3", "MobileNet", "MobileNetV2", "MobileNetV3Large",
    "MobileNetV3Small", "NASNetLarge", "NASNetMobile", "ResNet101", "ResNet101V2", "ResNet152", "ResNet152V2",
    "ResNet50", "ResNet50V2", "VGG16", "VGG19", "Xception",
)  # fmt: skip
_OF_IMAGES = ("vit_", "resnet_")
_SIZES = {"b": "base", "l": "large", "h": "huge", "ti": "tiny", "s": "small"}
_VIT = re.compile(r"vit[-_/]?(b|l|h|ti|s)[-_/]?(\d\d)")
_CLOSE = 0.6  # least share of equal characters


@cache
def _known() -> dict[str, str]:
    """Return MODEL by the plain spelling of its name."""
    text = files("gpuplan.profiles").joinpath("keras_hub_presets.toml").read_text(encoding="utf-8")
    presets = [name for row in tomllib.loads(text)["preset"] for name in row["names"]]
    found = {_simplify(name): f"{KERAS_HUB}:{name}" for name in presets}
    return found | {_simplify(name): name for name in APPLICATIONS}


def _simplify(name: str) -> str:
    """Return a name in lower case without punctuation and language, with a vision transformer's size spelt out.

    Example:
        >>> _simplify("bert-base-uncased") == _simplify("bert_base_en_uncased"), _simplify("ViT-B/16")
        (True, 'vitbasepatch16')
    """
    alone = re.sub(r"^[\w-]+/(?=\w{4})|-hf$", "", name.lower())  # without its publisher
    spelt = _VIT.sub(lambda found: f"vit_{_SIZES[found[1]]}_patch{found[2]}", alone)
    return "".join(part for part in re.split(r"[^a-z0-9]+", spelt) if part != "en")


def find_model(name: str) -> str | None:
    """Return the MODEL of an application or preset in any spelling; None for an unknown name.

    Example:
        >>> find_model("resnet-50"), find_model("gemma2-2b"), find_model("7B")
        ('ResNet50', 'keras_hub:gemma2_2b_en', None)
    """
    return _known().get(_simplify(name.removeprefix(f"{KERAS_HUB}:")))


def list_similar_models(name: str) -> list[str]:
    """Return up to three MODEL arguments whose names are close, as they can be typed.

    Example:
        >>> list_similar_models("llama-7b")[0]
        'keras_hub:llama2_7b_en?sequence_length=512'
    """
    known, key = _known(), _simplify(name)
    close = difflib.get_close_matches(key, known, n=3, cutoff=_CLOSE)
    if not close and re.fullmatch(r"\d+[bm]", key):
        close = sorted((one for one in known if re.search(rf"(?<!\d){key}$", one)), key=len)[:3]
    found = [_complete(known[one]) for one in close]
    return found[:2] if found and ":" in found[0] else found


def _complete(model: str) -> str:
    """Return a MODEL with the length of its sequences, where a preset takes text."""
    preset = model.removeprefix(f"{KERAS_HUB}:")
    return model if preset == model or preset.startswith(_OF_IMAGES) else f"{model}?sequence_length=512"
