"""Import of Keras Hub without TensorFlow, of which it needs text preprocessing alone."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

# Importing TensorFlow takes 7 s of 9 s; Keras Hub treats one that is missing as not installed, and so do its
# models (`try_import_tensorflow` in keras_hub/src/utils/tensor_utils.py, Keras Hub 0.32).
LEFT_OUT = ("tensorflow", "tensorflow_text")


def import_keras_hub() -> ModuleType:
    """Return Keras Hub, imported without TensorFlow if it is not imported yet and Keras runs on another backend.

    Its models are the same; tokenizers and preprocessors, which a preset is built without, fail for lack of it.

    Raises:
        ImportError: Keras Hub is not installed.
    """
    import keras

    known = sys.modules.get("keras_hub")
    if known is not None:
        return known
    if keras.backend.backend() == "tensorflow":
        return importlib.import_module("keras_hub")
    before = set(sys.modules)
    with _hidden(*LEFT_OUT):
        try:
            return importlib.import_module("keras_hub")
        except Exception:  # a version that needs TensorFlow; it says so in various ways
            for name in set(sys.modules) - before:
                if name.partition(".")[0] == "keras_hub":
                    del sys.modules[name]
    return importlib.import_module("keras_hub")


@contextmanager
def _hidden(*names: str) -> Iterator[None]:
    """Context in which packages that are not imported yet seem not to be installed."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None makes an import fail
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
