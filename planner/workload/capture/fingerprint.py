"""Key of a train step: equal for two `fit()` calls whose steps do the same work."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from ..build.fit_inputs import FitInputs
from ..keras_layers import replacing

# Facts that differ between equal models, or do not change the time of a step.
_IRRELEVANT = re.compile(
    r' at 0x[0-9a-f]+|"(shared_object_id|seed|learning_rate|name)": (-?[\d.e+-]+|"[^"]*"|null)'
)
SIMPLE = (bool, int, float, str, type(None))


def compute_step_key(model: Any, feed: FitInputs) -> str:
    """Return a digest of a model's structure, trainable variables, compile settings, and batch.

    Args:
        model: Keras model, built or not.
        feed: Input of the call.
    """
    layers = list(model._flatten_layers())
    facts = {
        "model": model,
        "attributes": {name: value for name, value in vars(model).items() if _is_plain(name, value)},
        "layers": layers[1:],
        "variables": [(v.shape, str(v.dtype), bool(v.trainable)) for v in model.variables],
        "compiled": _describe_compilation(model),
        "feed": (feed.x, feed.y, feed.sample_weight, feed.batch_size),
    }
    with _without_tensorflow():
        text = json.dumps(facts, default=_describe, sort_keys=True)
    for number, name in enumerate(dict.fromkeys(layer.name for layer in layers)):
        text = text.replace(f'"{name}"', f'"#{number}"')
    return hashlib.sha256(_IRRELEVANT.sub("", text).encode()).hexdigest()


def _without_tensorflow() -> AbstractContextManager[None]:
    """Keep Keras from importing TensorFlow, which takes seconds, to tell whether an object is one of its own."""
    from keras.src.utils import module_utils

    lazy = getattr(module_utils, "tensorflow", None)
    if lazy is None or "tensorflow" in sys.modules or getattr(lazy, "_available", True) is not None:
        return nullcontext()
    return replacing((lazy, "_available", False))


def _is_plain(name: str, value: Any) -> bool:
    return not name.startswith("_") and name not in ("name", "built") and isinstance(value, SIMPLE)


def _describe(thing: Any) -> Any:
    """Return the type and configuration of an object, or its name or text."""
    if hasattr(thing, "__qualname__"):
        return [getattr(thing, "__module__", ""), thing.__qualname__]
    kind = type(thing)
    with suppress(Exception):  # user code: a layer without configuration is known by its variables
        return [kind.__module__, kind.__qualname__, thing.get_config()]
    return [kind.__module__, kind.__qualname__, "" if hasattr(thing, "call") else str(thing)]


def _describe_compilation(model: Any) -> Any:
    if not model.compiled:
        return None
    metrics = getattr(model, "_compile_metrics", None)
    settings = [getattr(model, name, None) for name in ("jit_compile", "run_eagerly", "steps_per_execution")]
    return [model.optimizer, model.loss, getattr(metrics, "_user_metrics", None), settings]
