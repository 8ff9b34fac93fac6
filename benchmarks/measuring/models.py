"""From a MODEL reference to a compiled Keras model and a batch for it, with Keras and numpy alone.

The grammar is gpuplan's (`file.py:function?name=value`, `ResNet50?classes=10`), and so are the defaults for a
model that comes uncompiled (Adam, a loss that fits its last activation), so that a prediction means the same work.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["ROOT", "architecture", "batch_for", "build", "policy_of"]

ROOT = Path(__file__).resolve().parents[2]  # references to files start from the top of the checkout
LOSS_BY_ACTIVATION = {"softmax": "sparse_categorical_crossentropy", "sigmoid": "binary_crossentropy"}


def architecture(reference: str) -> str:
    """Return the name of what is built, without its arguments.

    Example:
        >>> architecture("benchmarks/workloads.py:unet?image_size=256"), architecture("ResNet50")
        ('unet', 'ResNet50')
    """
    return reference.partition("?")[0].rpartition(":")[2].rpartition(".")[2]


def policy_of(precision: str) -> str:
    """Return the Keras dtype policy: TF32 is a way to multiply float32.

    Example:
        >>> policy_of("tf32"), policy_of("mixed_bfloat16")
        ('float32', 'mixed_bfloat16')
    """
    return "float32" if precision == "tf32" else precision


def build(reference: str, *, precision: str) -> Any:
    """Return the compiled model, its layers under the precision's policy, its weights random."""
    import keras

    keras.config.set_dtype_policy(policy_of(precision))
    with quick_weights():
        return _compiled(reference)


def _compiled(reference: str) -> Any:
    import keras

    body, _, query = reference.partition("?")
    arguments = _arguments(query)
    path, colon, name = body.rpartition(":")
    if colon:
        model = getattr(_import_file(ROOT / path), name)(**arguments)
    else:
        model = getattr(keras.applications, architecture(body))(**{**arguments, "weights": None})
    if not model.compiled:
        model.compile(optimizer="adam", loss=_fitting_loss(model))
    return model


@contextmanager
def quick_weights() -> Iterator[None]:
    """Let random initializers draw from numpy, with variance one over the inputs of a unit.

    JAX compiles one program for each shape of each initializer, which takes minutes for large models; how long a
    step takes does not depend on the weights' distribution.
    """
    import keras
    import numpy as np

    random = np.random.default_rng(0)

    def draw(self: Any, shape: Any, dtype: Any = None, **_: Any) -> Any:
        scale = 1 / math.sqrt(max(1, math.prod(shape[:-1])))
        return keras.ops.convert_to_tensor(scale * random.standard_normal(shape, dtype=np.float32), dtype)

    names = ("VarianceScaling", "RandomNormal", "RandomUniform", "TruncatedNormal", "Orthogonal")
    kinds = [getattr(keras.initializers, name) for name in names]
    before = [kind.__call__ for kind in kinds]
    try:
        for kind in kinds:
            kind.__call__ = draw
        yield
    finally:
        for kind, call in zip(kinds, before, strict=True):
            kind.__call__ = call


def _arguments(query: str) -> dict[str, Any]:
    """Return the arguments after `?`: JSON where it parses, else text."""
    arguments = {}
    for part in filter(None, query.split("&")):
        name, _, text = part.partition("=")
        try:
            arguments[name] = json.loads(text)
        except ValueError:
            arguments[name] = text
    return arguments


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _fitting_loss(model: Any) -> str:
    activation = getattr(model.layers[-1], "activation", None)
    return LOSS_BY_ACTIVATION.get(getattr(activation, "__name__", ""), "mean_squared_error")


def batch_for(model: Any, batch_size: int, *, seed: int = 0) -> tuple[Any, Any]:
    """Return random inputs and targets as numpy arrays, nested as the model wants them.

    Whole numbers stay below the smallest vocabulary of the model; classes below the width of its output. Values
    are random, never zeros: some chips run faster on zeros.
    """
    import keras
    import numpy as np

    random = np.random.default_rng(seed)
    vocabulary = _smallest_vocabulary(model)

    def draw(tensor: Any) -> Any:
        shape = (batch_size, *tensor.shape[1:])
        if "int" in tensor.dtype:
            return random.integers(0, vocabulary, shape, dtype=np.int32)
        return random.standard_normal(shape, dtype=np.float32)

    x = keras.tree.map_structure(draw, _functional(model).input)
    return x, _targets(model, batch_size, random)


def _functional(model: Any) -> Any:
    """Return the model that has inputs and outputs: a `Sequential` that was never called holds it."""
    return getattr(model, "_functional", None) or model


def _smallest_vocabulary(model: Any) -> int:
    """Return the least `input_dim` of any embedding, 2 without one [-]."""
    sizes = [layer.input_dim for layer in model._flatten_layers() if type(layer).__name__ == "Embedding"]
    return min(sizes, default=2)


def _targets(model: Any, batch_size: int, random: Any) -> Any:
    import numpy as np

    shape = (batch_size, *_functional(model).output.shape[1:])
    loss = model.loss if isinstance(model.loss, str) else getattr(model.loss, "name", "")
    if loss.startswith("sparse"):
        return random.integers(0, shape[-1], shape[:-1], dtype=np.int32)
    if loss.startswith("binary"):
        return random.integers(0, 2, shape).astype(np.float32)
    return random.standard_normal(shape, dtype=np.float32)
