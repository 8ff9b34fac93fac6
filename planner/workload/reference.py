"""Grammar of the MODEL argument for the command line and the Python API.

    train.py, train.ipynb                     a training script or notebook, unchanged
    models.py:vgg13?image_size=128            a function in a file
    my.package:build                          a function in a module
    ResNet50, keras.applications.VGG16?classes=10   a Keras application
    keras_hub:gemma_2b_en?sequence_length=512     a preset of Keras Hub, or a folder with one: keras_hub:./mine
    model.keras, model.h5                     a saved model
    workload.json                             a saved workload

Optional arguments follow `?`, as `key=value&key=value`; values are parsed as JSON if valid, else used as
text.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from ..errors import UsageError
from ..records import Frozen
from .script_text import suggest_builders

KERAS_HUB = "keras_hub"
Kind = Literal["script", "function", "application", "saved_model", "json"]
SCRIPT_SUFFIXES = (".py", ".ipynb")
SUFFIXES: dict[str, Kind] = {
    **dict.fromkeys(SCRIPT_SUFFIXES, "script"),
    ".keras": "saved_model",
    ".h5": "saved_model",
    ".hdf5": "saved_model",
    ".json": "json",
}
FORMS = "a script `train.py`, a function `models.py:build`, an application `ResNet50` or `model.keras`"
CLOSE = 0.75  # least share of equal characters of a file's name


@cache
def read_keras_names() -> dict[str, Any]:
    """Return the names of Keras that gpuplan knows without importing it, and the files of other frameworks."""
    return tomllib.loads(Path(__file__).with_name("keras_names.toml").read_text(encoding="utf-8"))


class Reference(Frozen):
    """A parsed MODEL argument."""

    text: str  # the argument as given by the user, with the name of a known model as Keras spells it
    kind: Kind  # form of the argument
    path: Path | None = None  # absolute path of the file; None for applications and modules
    module: str = ""  # module of a function, or `keras_hub` for an application of Keras Hub; empty for other forms
    name: str = ""  # name of a function, application or preset; empty for other forms
    arguments: dict[str, Any] = field(default_factory=dict)  # arguments after `?`

    def folder(self, base: Path) -> Path:
        """Return the folder of the user's own files; `base`: where references start from."""
        return base if self.path is None else self.path.parent


def parse_reference(text: str, *, base: Path) -> Reference:
    """Parse a MODEL argument, with relative paths from an absolute `base`; UsageError for a missing file too.

    Example:
        >>> parse_reference("keras.applications.VGG16?classes=10", base=Path("/")).arguments
        {'classes': 10}
    """
    body, _, query = text.partition("?")
    arguments = _parse_arguments(query, text=text)
    if not body.strip():
        raise UsageError("the MODEL argument is empty", hint=f"give {FORMS}")
    if not (base / body).exists() and (model := find_model(body)) not in (None, body):
        return parse_reference(f"{model}?{query}" if query else f"{model}", base=base)
    if body.startswith(f"{KERAS_HUB}:"):
        return _parse_preset(text, body.removeprefix(f"{KERAS_HUB}:"), arguments, base=base)
    target, colon, function = body.rpartition(":")
    if colon and target and "/" not in function and "\\" not in function:
        return _parse_function(text, target, function, arguments, base=base)
    suffix = Path(body).suffix.lower()
    if suffix in SUFFIXES:
        if arguments:
            message = f"`{text}`: arguments after `?` belong to functions and applications, not to files"
            raise UsageError(message, hint="pass a script's own arguments after `--`")
        return Reference(text=text, kind=SUFFIXES[suffix], path=_find_file(body, base=base))
    if suffix in read_keras_names()["foreign"] or "/" in body or "\\" in body or (base / body).exists():
        raise _refuse_file(body, suffix, base=base)
    name = body.rpartition(".")[2]
    if body != f"keras.applications.{name}" and body not in read_keras_names()["applications"]:
        raise UsageError(f"unknown model `{body}`", hint=_suggest(list_similar_models(body)) or f"give {FORMS}")
    return Reference(text=text, kind="application", name=name, arguments=arguments)


def _parse_arguments(query: str, *, text: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier():
            hint = "arguments after `?` are `name=value`, joined by `&`"
            raise UsageError(f"cannot read `{part}` in `{text}`", hint=hint)
        try:
            arguments[key] = json.loads(value)
        except ValueError:
            arguments[key] = value
    return arguments


def _parse_function(text: str, target: str, function: str, arguments: dict[str, Any], *, base: Path) -> Reference:
    if target.endswith(".py"):
        path = _find_file(target, base=base)
        if not function.isidentifier():
            builders = suggest_builders(target, path) or "`models.py:build`"
            raise UsageError(f"`{text}` names no function", hint=f"type {builders}")
        return Reference(text=text, kind="function", path=path, name=function, arguments=arguments)
    if not function.isidentifier():
        raise UsageError(f"`{function}` in `{text}` is not a function name", hint="write `models.py:build`")
    if not all(part.isidentifier() for part in target.split(".")):
        raise UsageError(f"`{target}` in `{text}` is neither a `.py` file nor a module", hint=f"give {FORMS}")
    return Reference(text=text, kind="function", module=target, name=function, arguments=arguments)


def _find_file(name: str, *, base: Path) -> Path:
    path = (base / name).absolute()
    if path.is_file():
        return path
    if path.is_dir():
        if (path / "saved_model.pb").exists():
            hint = "load it and save it for Keras: `model.save('model.keras')`"
            raise UsageError(f"`{name}` is a SavedModel of TensorFlow", hint=hint)
        inside = sorted(f"{name.rstrip('/')}/{file.name}" for file in path.iterdir() if file.suffix in SUFFIXES)
        raise UsageError(f"`{name}` is a folder", hint=_suggest(inside[:3]) or f"give {FORMS}")
    near = [str(file.relative_to(base)) for file in sorted(base.glob(f"*/{path.name}"))][:3]
    if not near and path.parent.is_dir():
        names = [file.name for file in path.parent.iterdir() if file.suffix == path.suffix]
        folder = path.parent.relative_to(base) if path.is_relative_to(base) else path.parent
        near = [str(folder / one) for one in difflib.get_close_matches(path.name, names, n=3, cutoff=CLOSE)]
    raise UsageError(f"no such file: `{name}`", hint=_suggest(near) or f"looked in {path.parent}")


def _refuse_file(body: str, suffix: str, *, base: Path) -> UsageError:
    """Return the error for an argument that looks like a file, and is none that gpuplan reads."""
    similar = list_similar_models(body) if "/" in body and not (base / body).parent.is_dir() else []
    if similar:
        return UsageError(f"unknown model `{body}`", hint=_suggest(similar))
    _find_file(body, base=base)
    if content := read_keras_names()["foreign"].get(suffix):
        hint = "name the function that builds it, as in `models.py:build`"
        return UsageError(f"`{body}` holds {content}; gpuplan needs the Keras code", hint=hint)
    return UsageError(f"`{body}` is no file that gpuplan reads", hint=f"give {FORMS}")


def _suggest(names: Sequence[str]) -> str:
    """Return a hint with names to type; empty for none."""
    return f"did you mean {' or '.join(f'`{name}`' for name in names)}?" if names else ""


def _parse_preset(text: str, name: str, arguments: dict[str, Any], *, base: Path) -> Reference:
    if "/" in name or "\\" in name:
        path = _find_file(f"{name}/config.json", base=base)
        return Reference(text=text, kind="application", path=path, module=KERAS_HUB, arguments=arguments)
    if not name.replace(".", "_").isidentifier():
        raise UsageError(f"`{name}` is not the name of a preset", hint="as in `keras_hub:gemma_2b_en`")
    return Reference(text=text, kind="application", name=name, module=KERAS_HUB, arguments=arguments)


# --- names of models, as people spell them -------------------------------------------------------------------

_TAKES_TEXT = re.compile(rf"{KERAS_HUB}:(?!vit_|resnet_)")
_SIZES = {"b": "base", "l": "large", "h": "huge", "ti": "tiny", "s": "small"}
_VIT = re.compile(r"vit[-_/]?(b|l|h|ti|s)[-_/]?(\d\d)")
_CLOSE = 0.6  # least share of equal characters


@cache
def read_presets() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return class of the backbone and its arguments by preset of Keras Hub, of gpuplan's own table."""
    text = files("gpuplan.profiles").joinpath("keras_hub_presets.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)["preset"]
    return {name: (row["backbone"], row["config"]) for row in rows for name in row["names"]}


@cache
def _known() -> dict[str, str]:
    """Return MODEL by the plain spelling of its name."""
    found = {_simplify(name): f"{KERAS_HUB}:{name}" for name in read_presets()}
    return found | {_simplify(name): name for name in read_keras_names()["applications"]}


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
    models = [known[one] for one in close]
    found = [f"{one}?sequence_length=512" if _TAKES_TEXT.match(one) else one for one in models]
    return found[:2] if found and ":" in found[0] else found
