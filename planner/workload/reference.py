"""Grammar of the MODEL argument for the command line and the Python API.

    train.py                                  a training script, unchanged
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

import json
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from ..errors import UsageError
from ..records import Frozen

Kind = Literal["script", "function", "application", "saved_model", "json"]
SUFFIXES: dict[str, Kind] = {
    ".py": "script",
    ".keras": "saved_model",
    ".h5": "saved_model",
    ".hdf5": "saved_model",
    ".json": "json",
}
KERAS_HUB = "keras_hub"
FORMS = (
    "a script `train.py`, a function `models.py:build`, a Keras application `ResNet50`, a preset "
    "`keras_hub:gemma_2b_en`, or `model.keras`"
)


class Reference(Frozen):
    """A parsed MODEL argument.

    Args:
        text: The argument as given by the user.
        kind: Form of the argument.
        path: Absolute path of the file; None for applications and modules.
        module: Module of a function, or `keras_hub` for an application of Keras Hub; empty for other forms.
        name: Name of a function, application or preset; empty for other forms.
        arguments: Arguments after `?`.
    """

    text: str
    kind: Kind
    path: Path | None = None
    module: str = ""
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)

    def folder(self, base: Path) -> Path:
        """Return the folder of the user's own files; `base`: where references start from."""
        return base if self.path is None else self.path.parent


def parse_reference(text: str, *, base: Path) -> Reference:
    """Parse a MODEL argument; files must exist.

    Args:
        text: The argument.
        base: Absolute base folder of relative paths.

    Raises:
        UsageError: It has none of the forms, or names a missing file.

    Example:
        >>> parse_reference("keras.applications.VGG16?classes=10", base=Path("/")).arguments
        {'classes': 10}
    """
    body, _, query = text.partition("?")
    arguments = _parse_arguments(query, text=text)
    if not body.strip():
        raise UsageError("the MODEL argument is empty", hint=f"give {FORMS}")
    if body.startswith(f"{KERAS_HUB}:"):
        return _parse_preset(text, body.removeprefix(f"{KERAS_HUB}:"), arguments, base=base)
    target, colon, function = body.rpartition(":")
    if colon and target and "/" not in function and "\\" not in function:
        return _parse_function(text, target, function, arguments, base=base)
    suffix = Path(body).suffix.lower()
    if suffix in SUFFIXES:
        return _parse_file(text, body, SUFFIXES[suffix], arguments, base=base)
    if "/" in body or "\\" in body or (base / body).exists():
        _find_file(body, base=base)
        raise UsageError(f"cannot interpret `{body}`: unknown file type `{suffix}`", hint=f"give {FORMS}")
    return _parse_application(text, body, arguments)


def _parse_arguments(query: str, *, text: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(
                f"cannot read `{part}` in `{text}`", hint="arguments after `?` are `name=value`, joined by `&`"
            )
        arguments[key] = _parse_value(value)
    return arguments


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _parse_function(text: str, target: str, function: str, arguments: dict[str, Any], *, base: Path) -> Reference:
    if not function.isidentifier():
        raise UsageError(f"`{function}` in `{text}` is not a function name", hint="write `models.py:build`")
    if target.endswith(".py"):
        path = _find_file(target, base=base)
        return Reference(text=text, kind="function", path=path, name=function, arguments=arguments)
    if not all(part.isidentifier() for part in target.split(".")):
        raise UsageError(f"`{target}` in `{text}` is neither a `.py` file nor a module", hint=f"give {FORMS}")
    return Reference(text=text, kind="function", module=target, name=function, arguments=arguments)


def _parse_file(text: str, body: str, kind: Kind, arguments: dict[str, Any], *, base: Path) -> Reference:
    if arguments:
        raise UsageError(
            f"`{text}`: arguments after `?` belong to functions and applications, not to files",
            hint="pass a script's own arguments after `--`",
        )
    return Reference(text=text, kind=kind, path=_find_file(body, base=base))


def _find_file(name: str, *, base: Path) -> Path:
    path = (base / name).absolute()
    if path.is_file():
        return path
    if path.is_dir():
        raise UsageError(f"`{name}` is a folder", hint=f"give {FORMS}")
    raise UsageError(f"no such file: `{name}`", hint=f"looked in {path.parent}; give {FORMS}")


def _parse_application(text: str, body: str, arguments: dict[str, Any]) -> Reference:
    name = body.rpartition(".")[2]
    if not name.isidentifier() or body not in (name, f"keras.applications.{name}"):
        raise UsageError(f"cannot interpret the model `{body}`", hint=f"give {FORMS}")
    return Reference(text=text, kind="application", name=name, arguments=arguments)


def _parse_preset(text: str, name: str, arguments: dict[str, Any], *, base: Path) -> Reference:
    """Parse the name of a preset of Keras Hub, or a folder with its configuration."""
    if "/" in name or "\\" in name:
        path = _find_file(f"{name}/config.json", base=base)
        return Reference(text=text, kind="application", path=path, module=KERAS_HUB, arguments=arguments)
    if not name.replace(".", "_").isidentifier():
        raise UsageError(f"`{name}` is not the name of a preset", hint="as in `keras_hub:gemma_2b_en`")
    return Reference(text=text, kind="application", name=name, module=KERAS_HUB, arguments=arguments)
