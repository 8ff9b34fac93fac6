"""The first step of `fit()` as Keras builds and calls it: model, loss, metrics, optimizer, `train_step`."""

from __future__ import annotations

import inspect
from typing import Any

import keras
import numpy as np
from keras.src import backend

from ..backend import OTHER_BACKENDS, find_own_backend
from ..errors import BackendError
from ..ops import Mode
from ..options import SpecTree, WorkloadOptions, map_specs
from .fit_inputs import FitInputs, build_target_specs, choose_loss, find_activation


def is_own(model: Any, name: str) -> bool:
    """Return whether a method of a model (`train_step`) is the user's, not Keras's."""
    return getattr(getattr(type(model), name), "__module__", "").partition(".")[0] != "keras"


def require_backend_of_step(model: Any, text: str) -> None:
    """Raise BackendError if the model's own `train_step` is written for another backend.

    Keras passes the state and the data to it on JAX, the data alone on other backends.
    """
    if not is_own(model, "train_step"):
        return
    step, current = type(model).train_step, keras.backend.backend()
    code, names = getattr(step, "__code__", None), getattr(step, "__globals__", {})
    used = {getattr(names.get(name), "__name__", "").partition(".")[0] for name in getattr(code, "co_names", ())}
    needed = next((name for name in OTHER_BACKENDS if name in used), None)
    if needed is None and current == "jax":
        try:
            inspect.signature(step).bind(model, (), ())
        except TypeError:
            needed = find_own_backend() or OTHER_BACKENDS[0]
    if needed not in (None, current):
        raise BackendError(
            f"{text}: `train_step` of {type(model).__name__} needs the {needed} backend",
            hint=f"`pip install 'gpuplan[{needed}]'`",
            backend=needed,
        )


def build_output(model: Any, x: SpecTree, batch_size: int, *, mode: Mode = "infer") -> Any | None:
    """Return the symbolic output of a model, built as Keras builds it; None where Keras does not call it.

    Keras's own `train_step` calls the model. Before another one, `fit()` calls it on JAX and PyTorch if a layer,
    the loss or a metric is not built (`_symbolic_build`, Keras 3.15), and on TensorFlow only under a strategy.
    """
    if all(layer.built for layer in model._flatten_layers()):
        outputs: Any = get_attribute(model, "outputs") or ()
        known = outputs[0] if len(outputs) == 1 else get_attribute(model, "output")
        of_another_phase = any(one.shape[0] not in (None, batch_size) for one in outputs)
        if outputs and known is not None and not of_another_phase:
            return known
    if mode == "train" and is_own(model, "train_step"):
        parts = (getattr(model, "_compile_loss", None), getattr(model, "_compile_metrics", None))
        built = all(part.built for part in (*model._flatten_layers(), *parts) if part is not None)
        if built or _defers_building(model):
            return None
    return model(map_specs(lambda spec: keras.KerasTensor((batch_size, *spec.shape), spec.dtype), x))


def _defers_building(model: Any) -> bool:
    return keras.backend.backend() == "tensorflow" and model._distribute_strategy is None


def get_attribute(model: Any, name: str) -> Any:
    """Return a property for which Keras raises until the model was called."""
    try:
        return getattr(model, name, None)
    except (AttributeError, ValueError):
        return None


def compile_model(
    model: Any, output: Any, feed: FitInputs, *, options: WorkloadOptions, notes: list[str]
) -> SpecTree:
    """Compile a model that is not compiled or needs another loss; return its targets."""
    if not model.compiled or options.loss or options.optimizer:
        loss = options.loss or (model.loss if model.compiled else None)
        optimizer = options.optimizer or (model.optimizer if model.compiled else None)
        if not model.compiled:
            assumed = ["a loss matching its output"] * (loss is None) + ["Adam"] * (optimizer is None)
            what = " and ".join(assumed) or "the given loss and optimizer"
            notes.append(f"the model is not compiled: {what} assumed")
        if loss is None and output is not None:
            loss = choose_loss(model, output, feed.y)
        model.compile(optimizer=optimizer or "adam", loss=loss)
    return build_target_specs(model, output) if feed.x is None else feed.y


def build_training_state(model: Any, data: SpecTree, output: Any, *, batch_size: int) -> None:
    """Create the variables of metrics, loss and optimizer, as in the first step of `fit()`, which gets `data`.

    Keras itself would trace the whole model again (5 s for ResNet-50). On TensorFlow, a `train_step` of the user's
    builds what it uses.
    """
    if is_own(model, "train_step") and _defers_building(model):
        return
    if output is not None:
        batch = map_specs(lambda spec: keras.KerasTensor((batch_size, *spec.shape), spec.dtype), data)

        def fix_batch(tensor: Any) -> Any:
            first = () if not tensor.shape else (tensor.shape[0] or batch_size,)
            return keras.KerasTensor((*first, *tensor.shape[1:]), tensor.dtype)

        _build_parts(model, batch, keras.tree.map_structure(fix_batch, output))
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def _build_parts(model: Any, batch: Any, y_pred: Any) -> None:
    """Build metrics and loss, by the user's methods if there are any, else without the losses of layers."""
    x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
    metrics, loss = getattr(model, "_compile_metrics", None), getattr(model, "_compile_loss", None)
    if metrics is not None and not metrics.built:
        if is_own(model, "compute_metrics"):
            backend.compute_output_spec(model.compute_metrics, x, y, y_pred, sample_weight=weight)
        elif y is not None:
            metrics.build(y, y_pred)
    if loss is not None and not loss.built:
        if is_own(model, "compute_loss"):
            backend.compute_output_spec(model._compute_loss, x, y, y_pred, sample_weight=weight, training=False)
        elif y is not None:
            backend.compute_output_spec(loss, y, y_pred, weight)  # arranges targets by the names of outputs


def build_predictions(model: Any, output: Any, *, samples: int) -> Any:
    """Return arrays in the shapes and types of an output, for some samples, from which a script can sample."""

    def predict(tensor: Any) -> Any:
        shape = (samples, *tensor.shape[1:])
        by_activation = {"softmax": 1.0 / max(1, shape[-1] or 1), "sigmoid": 0.5}
        return np.full(shape, by_activation.get(find_activation(model, tensor), 0.0), str(tensor.dtype))

    return keras.tree.map_structure(predict, output)
