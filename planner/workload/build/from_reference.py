"""Construction of a Keras model without its weights: from a function, an application, a file or a preset.

Of a saved file, configurations are read, and no code is run. Those of Keras Hub's presets lie beside the weights:
they are read from gpuplan's table (`profiles/keras_hub_presets.toml`), Kaggle's cache, or a folder of the user's.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
from keras.src.legacy.saving import saving_options, saving_utils
from keras.src.saving.serialization_lib import SafeModeScope

from ...errors import GpuplanError, UsageError, near_names_hint
from ...limits import MAX_BATCH_SIZE, require_count
from ...records import parse_json
from ...units import MIB
from ..errors import CaptureError, build_user_code_error, to_one_line
from ..keras_layers import import_with
from ..options import get_keras_policy
from ..reference import KERAS_HUB, Reference, read_presets


def build_model(reference: Reference, *, base: Path, precision: str | None) -> Any:
    """Build the model of a reference other than a script; `precision` takes the place of a saved model's own.

    Raises UsageError for an unknown name and for invalid arguments, CaptureError where the user's code failed.
    """
    if reference.kind == "saved_model" and reference.path is not None:
        return build_saved_model(reference.path, precision=precision)
    if reference.kind != "application":
        return _build_function(reference, folder=base)
    if reference.module == KERAS_HUB:
        return build_preset(reference)
    known = {name: one for name, one in vars(keras.applications).items() if name[:1].isupper() and callable(one)}
    if reference.name not in known:
        hint = near_names_hint(reference.name, sorted(known), see_all="python -c 'help(\"keras.applications\")'")
        raise UsageError(f"unknown Keras application `{reference.name}`", hint=hint)
    constructor = known[reference.name]
    arguments = {**reference.arguments, "weights": None}
    _check_arguments(constructor, arguments, name=reference.text)
    try:
        return constructor(**arguments)
    except (ValueError, TypeError) as error:
        raise build_user_code_error(error, name=reference.text, doing="cannot be built", folders=()) from error


def _build_function(reference: Reference, *, folder: Path) -> Any:
    """Import a file or module, sought first in a folder, and call its function, which returns a Keras model."""
    home = reference.path.parent if reference.path is not None else folder
    sys.path.insert(0, str(home))
    try:
        function = _find_function(reference)
        _check_arguments(function, reference.arguments, name=reference.text)
        model = function(**reference.arguments)
    except GpuplanError:
        raise
    except SystemExit as error:
        raise CaptureError(f"{reference.text} ended the program (exit {error.code})") from error
    except Exception as error:
        folders = (str(home),)
        raise build_user_code_error(error, name=reference.text, doing="failed", folders=folders) from error
    if isinstance(model, keras.Model):
        return model
    hint = "name a function that returns the model, compiled or not"
    raise UsageError(f"`{reference.text}` returned {type(model).__name__}, not a keras.Model", hint=hint)


def _find_function(reference: Reference) -> Callable[..., Any]:
    path, where = reference.path, reference.module
    if path is None:
        try:
            module = importlib.import_module(where)
        except ModuleNotFoundError as error:
            if error.name is None or not where.startswith(error.name):
                raise
            hint = "run gpuplan in the folder that contains it, or install it in the environment of gpuplan"
            raise UsageError(f"no module `{error.name}` for `{reference.text}`", hint=hint) from None
    else:
        where, spec = path.name, importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise UsageError(f"cannot import `{where}`", hint="give a Python file ending in `.py`")
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    function = getattr(module, reference.name, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    hint = near_names_hint(reference.name, known, see_all=f"grep -n 'def ' {where}")
    raise UsageError(f"no function `{reference.name}` in `{where}`", hint=hint)


def _check_arguments(function: Callable[..., Any], arguments: dict[str, Any], *, name: str) -> None:
    signature = inspect.signature(function)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        hint = f"its signature is {signature}; pass arguments as `?name=value&name=value`"
        raise UsageError(f"`{name}`: {error}", hint=hint) from None


# Importing TensorFlow takes 7 s of 9 s; Keras Hub treats one that is missing as not installed, and so do its
# models (`try_import_tensorflow` in keras_hub/src/utils/tensor_utils.py, Keras Hub 0.32).
LEFT_OUT = ("tensorflow", "tensorflow_text")


def import_keras_hub() -> Any:
    """Return Keras Hub, without TensorFlow, which only its tokenizers need, unless imported or Keras's backend."""
    hidden = () if keras.backend.backend() == "tensorflow" else LEFT_OUT
    return import_with(dict.fromkeys(hidden), "keras_hub")


CONFIG, DEFAULT_TASK, BARE = "config.json", "CausalLM", "Backbone"
MODES = ("int8", "int4")
OWN = ("lora_rank", "lora_target_layer_names", "quantize", "sequence_length", "task")


def build_preset(reference: Reference) -> Any:
    """Build the model of a preset or a folder: its language model if the family has one, else its backbone.

    Arguments of the reference: `task`, one of Keras Hub's, or `Backbone`; `sequence_length` [tokens]; `quantize`,
    `lora_rank` and `lora_target_layer_names` of its backbone; all others are the task's own.
    Raises UsageError if Keras Hub is not installed, the configuration is not here, or an argument does not fit.
    """
    arguments, text = dict(reference.arguments), reference.text
    try:
        keras_hub = import_keras_hub()
    except ImportError as error:
        hint = "`pip install 'gpuplan[keras-hub]'`"
        raise UsageError(f"`{text}` needs Keras Hub: {error}", hint=hint) from None
    rank, targets, mode, length, task = (arguments.pop(name, None) for name in OWN)
    for name, count in (("sequence_length", length), ("lora_rank", rank)):
        if count is not None:
            require_count(count, what=name, most=MAX_BATCH_SIZE, example="512")
    try:
        backbone = _build_backbone(keras_hub, reference)
        if mode not in (None, *MODES):
            raise UsageError(f"`{text}`: unknown quantization `{mode}`", hint=f"give {' or '.join(MODES)}")
        if mode is not None:
            backbone.quantize(mode)
        _enable_lora(backbone, rank, targets, text=text)
        model = _build_task(keras_hub, backbone, task, arguments, text=text)
        return _fix_length(model, length, text=text)
    except (TypeError, ValueError, AttributeError) as error:
        raise build_user_code_error(error, name=text, doing="cannot be built", folders=()) from error


def _enable_lora(backbone: Any, rank: int | None, targets: Any, *, text: str) -> None:
    """Freeze a backbone except for adaptations of its layers with given names, by default as Keras Hub does it."""
    if targets is not None and rank is None:
        raise UsageError(f"`{text}`: `lora_target_layer_names` needs `lora_rank`", hint="e.g. `lora_rank=8`")
    if rank is None:
        return
    names = str(targets).split(",") if targets is not None and not isinstance(targets, list) else targets
    layers = backbone._flatten_layers(include_self=False)
    known = {layer.name for layer in layers if layer.weights and hasattr(layer, "enable_lora")}
    for name in names or ():
        if name not in known:
            own = ", ".join(sorted(known))
            raise UsageError(f"`{text}`: no layer `{name}` takes LoRA", hint=f"its layers that do are {own}")
    backbone.enable_lora(rank, names)


def _build_backbone(keras_hub: Any, reference: Reference) -> Any:
    known, registered = read_presets(), keras_hub.models.Backbone.presets
    path = reference.path
    handle = registered.get(reference.name, {}).get("kaggle_handle", "")
    if path is None and handle.startswith("kaggle://"):
        from kagglehub.config import get_cache_folder

        kept = Path(get_cache_folder()) / "models" / handle.removeprefix("kaggle://") / CONFIG
        path = kept if kept.is_file() else None
    if path is not None:  # in the precision of this process
        saved = parse_json(path.read_bytes())
        require_no_code(saved, name=str(path))
        saved = replace_dtype_policy(saved, keras.config.dtype_policy().name)
        return keras.saving.deserialize_keras_object(saved, safe_mode=True)
    if reference.name in known:
        kind, config = known[reference.name]
        return getattr(keras_hub.models, kind)(**config)
    if reference.name in registered:
        loaded = f'keras_hub.models.Backbone.from_preset("{reference.name}", load_weights=False)'
        hint = f"run `{loaded}` once, which keeps it, or name a folder with its {CONFIG}: `keras_hub:./FOLDER`"
        message = f"the configuration of `{reference.text}` is not here: Keras Hub loads it from Kaggle"
        raise UsageError(message, hint=hint)
    see_all = "python -c 'import keras_hub; print(*keras_hub.models.Backbone.presets)'"
    hint = near_names_hint(reference.name, sorted({*known, *registered}), see_all=see_all)
    raise UsageError(f"unknown preset of Keras Hub `{reference.name}`", hint=hint)


def _build_task(keras_hub: Any, backbone: Any, name: str | None, arguments: dict[str, Any], *, text: str) -> Any:
    wanted = name or DEFAULT_TASK
    kinds = (kind for kind in vars(keras_hub.models).values() if isinstance(kind, type))
    tasks: dict[str, Any] = {kind.__name__: kind for kind in kinds if issubclass(kind, keras_hub.models.Task)}
    base = tasks.get(wanted)
    fitting = [
        task for task in tasks.values() if base and issubclass(task, base) and task.backbone_cls is type(backbone)
    ]
    if fitting:
        own = set(inspect.signature(fitting[0]).parameters) - {"backbone", "preprocessor", "kwargs"}
        for unknown in (one for one in arguments if one not in own):  # which Keras Hub ignores
            message = f"`{text}`: {fitting[0].__name__} has no argument `{unknown}`"
            raise UsageError(message, hint=f"it takes {', '.join(sorted(own.union(OWN)))}")
        return fitting[0](backbone=backbone, preprocessor=None, **arguments)
    if name in (None, BARE) and not arguments:
        return backbone
    known = sorted(task.__base__.__name__ for task in tasks.values() if task.backbone_cls is type(backbone))
    hint = f"give `?task=` with one of {', '.join([*known, BARE])}"
    raise UsageError(f"`{text}`: {type(backbone).__name__} has no task `{wanted}`", hint=hint)


def _fix_length(model: Any, length: int | None, *, text: str) -> Any:
    """Return the model with inputs of a fixed length; text has no length of its own."""
    if not any(None in tensor.shape[1:] for tensor in model.inputs):
        return model
    if length is None:
        hint = f"give their length, e.g. `{text}{'&' if '?' in text else '?'}sequence_length=512`"
        raise UsageError(f"`{text}` does not say how long its sequences are", hint=hint)

    def fix(tensor: Any) -> Any:
        shape = (length if size is None else size for size in tensor.shape[1:])
        return keras.Input(tuple(shape), dtype=tensor.dtype, name=tensor.name)

    inputs = keras.tree.map_structure(fix, model.input)
    fixed = keras.Model(inputs, model(inputs))
    if model.compiled:
        fixed.compile(optimizer=model.optimizer, loss=model.loss, jit_compile=model.jit_compile)
    return fixed


TRUSTED_PACKAGES = ("keras", "keras_hub", "keras_cv", "keras_nlp", "builtins")
NOT_MODELING = ("keras.config", "keras.utils", "keras.saving", "keras.export", "keras.datasets")
CODE_CLASSES = ("__lambda__", "Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")
FLOAT_POLICIES = ("float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16")
MOST_BYTES = 16 * MIB  # of a configuration, ten times that of the largest applications
SAVE_AGAIN = "write it again with `model.save('{name}')`, or name the function that builds it: `models.py:build`"
BY_FUNCTION = "load it in a function and give that to gpuplan: `models.py:load_model`"


def build_saved_model(path: Path, *, precision: str | None) -> Any:
    """Build the model described by a `.keras` or `.h5` file, compiled as there; `precision` replaces its policy.

    Raises UsageError if the file is not a Keras model, contains code, or needs custom classes.
    """
    again, training = SAVE_AGAIN.format(name=path.name), None
    if path.suffix == ".keras":
        faults: tuple[type[Exception], ...] = (zipfile.BadZipFile, KeyError, ValueError, OSError)
        refusing = _refusing(f"`{path.name}` is not a .keras file", *faults, hint=again)
        with refusing, zipfile.ZipFile(path) as archive, archive.open("config.json") as file:
            config = _parse(file.read(MOST_BYTES + 1))  # which may unpack to far more than the archive has
    else:
        config, training = _read_hdf5(path, again)
    if not isinstance(config, dict):
        raise UsageError(f"`{path.name}` describes no model", hint=BY_FUNCTION)
    for part in (config, training):
        require_no_code(part, name=path.name)
    if precision is not None:
        config = replace_dtype_policy(config, get_keras_policy(precision))
    faults = (ValueError, TypeError, KeyError, AttributeError, ImportError)
    with _refusing(f"`{path.name}` cannot be built", *faults):
        if path.suffix == ".keras":
            model = keras.saving.deserialize_keras_object(config, safe_mode=True)
        else:
            options = saving_options.keras_option_scope(use_legacy_config=True)
            with options, SafeModeScope(True):  # Keras has only a private function for it
                model = saving_utils.model_from_config(config, custom_objects={})
            if training is not None and isinstance(model, keras.Model):
                model.compile(**saving_utils.compile_args_from_training_config(training, {}))
        if not isinstance(model, keras.Model):
            raise TypeError(f"it describes a {type(model).__name__}, not a model")
        return model


@contextmanager
def _refusing(what: str, *faults: type[Exception], hint: str = BY_FUNCTION) -> Iterator[None]:
    """Convert exceptions to a UsageError that says what is wrong."""
    try:
        yield
    except faults as error:
        raise UsageError(f"{what}: {to_one_line(error)}", hint=hint) from error


def _parse(text: str | bytes) -> Any:
    if len(text) > MOST_BYTES:
        raise ValueError(f"its configuration has more than {MOST_BYTES // MIB} MiB")
    return parse_json(text)


def _read_hdf5(path: Path, again: str) -> tuple[Any, Any]:
    """Return the configurations of the model and of its training; None for one that is not compiled."""
    import h5py  # type: ignore[import-untyped]

    with _refusing(f"`{path.name}` is not an HDF5 file", OSError, hint=again), h5py.File(path, "r") as file:
        config, training = file.attrs.get("model_config"), file.attrs.get("training_config")
    if config is None:
        raise UsageError(f"`{path.name}` contains only weights, no model", hint=BY_FUNCTION)
    with _refusing(f"the model in `{path.name}` cannot be read", ValueError):
        return _parse(config), None if training is None else _parse(training)


def require_no_code(config: Any, *, name: str) -> None:
    """Raise UsageError if a configuration has code or classes outside Keras: stricter than its safe mode."""
    for node in _iter_objects(config):
        kind, module = node.get("class_name"), node.get("module")
        if kind in CODE_CLASSES:
            raise UsageError(f"`{name}` contains a `{kind}`, whose code gpuplan does not run", hint=BY_FUNCTION)
        if not isinstance(module, str):
            continue
        if module.split(".")[0] not in TRUSTED_PACKAGES or module.startswith(NOT_MODELING):
            raise UsageError(f"`{name}` needs `{module}.{kind}`, which is not part of Keras", hint=BY_FUNCTION)


def _iter_objects(config: Any) -> Iterator[dict[str, Any]]:
    pending = [config]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def replace_dtype_policy(config: dict[str, Any], policy: str) -> dict[str, Any]:
    """Return the configuration with the dtype policy of every layer replaced, but not its quantization."""
    copy: dict[str, Any] = json.loads(json.dumps(config))
    for node in _iter_objects(copy):
        inner = node.get("config")
        if not isinstance(inner, dict) or not {"trainable", "dtype"} <= inner.keys():
            continue
        dtype = inner["dtype"]
        if not isinstance(dtype, dict):
            inner["dtype"] = policy if dtype in FLOAT_POLICIES else dtype
        elif dtype.get("class_name") == "DTypePolicy":
            inner["dtype"] = policy
        elif "source_name" in (dtype.get("config") or {}):
            dtype["config"]["source_name"] = policy
    return copy
