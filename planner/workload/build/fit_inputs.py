"""Input of `fit()` from at most one batch, and its first step as Keras builds it: loss, metrics, optimizer."""

from __future__ import annotations

import inspect
import math
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
from keras.src import backend

from ...errors import UsageError, near_names_hint
from ..backend import OTHER_BACKENDS, find_own_backend
from ..errors import BackendError, CaptureError, to_one_line
from ..ops import Mode
from ..options import DEFAULT_BATCH_SIZE, ArraySpec, SpecTree, WorkloadOptions, iter_specs, map_specs

EVERY_KIND = "arrays, a keras.utils.PyDataset, a tf.data.Dataset, a torch DataLoader, a generator of batches"
NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FitInputs:
    """Input of a training run, without the data; specs are nested like it, all of them None without `fit()`."""

    x: SpecTree = None
    y: SpecTree = None
    sample_weight: SpecTree = None
    parts: int | None = None  # as for `pack_batch`
    batch_size: int | None = None  # samples per step; None if unknown, like the others [-]
    samples: int | None = None  # training samples per epoch [-]
    steps_per_epoch: int | None = None
    validation_samples: int | None = None  # evaluated after an epoch, in the mean; None also if there are none [-]


def read_fit_inputs(arguments: dict[str, Any]) -> FitInputs:
    """Describe the data among the arguments of a `fit()` call, by name and with defaults.

    Raises CaptureError if the data is of a type unsupported by Keras, or has no first batch.
    """
    data, steps = arguments["x"], arguments.get("steps_per_epoch")
    if data is None:
        raise CaptureError("fit() was called without data", hint=f"pass {EVERY_KIND}")
    are_arrays, held_out = _is_arrays(data), arguments.get("validation_data")
    feed = _describe_arrays(data, arguments) if are_arrays else _describe_batches(data, steps_per_epoch=steps)
    samples, often = None, arguments.get("validation_freq") or 1  # samples: evaluated each time
    if isinstance(held_out, (tuple, list)) and held_out and _is_arrays(held_out[0]):
        samples = _count_samples(held_out[0])
    elif held_out is None and arguments.get("validation_split") and are_arrays:
        samples = _count_samples(data) - _count_training_samples(_count_samples(data), arguments)
    else:
        with suppress(Exception):  # the data is the user's code, if there is any
            samples = _describe_batches(held_out, steps_per_epoch=arguments.get("validation_steps")).samples
    if samples is not None and isinstance(often, int):
        feed = replace(feed, validation_samples=max(1, samples // often))
    if arguments.get("class_weight") and feed.sample_weight is None:
        return replace(feed, sample_weight=ArraySpec((), "float32"), parts=None)
    return feed


def pack_batch(x: SpecTree, y: SpecTree, sample_weight: SpecTree, *, parts: int | None = None) -> SpecTree:
    """Return a batch as Keras hands it to `train_step` (`pack_x_y_sample_weight`, Keras 3.15).

    `parts` is the length of the tuple that a pipeline yields, 0 for x alone; None for arrays [-].
    """
    if parts is None:
        given = 1 if isinstance(x, (list, tuple)) else 0
        parts = given if y is None else 2 if sample_weight is None else 3
    return (x, y, sample_weight)[:parts] if parts else x


def _is_arrays(data: Any) -> bool:
    leaves = list(iter_specs(data))
    return bool(leaves) and all(hasattr(leaf, "shape") and hasattr(leaf, "__getitem__") for leaf in leaves)


def _describe_arrays(data: Any, arguments: dict[str, Any]) -> FitInputs:
    batch_size = arguments.get("batch_size") or DEFAULT_BATCH_SIZE
    samples = _count_training_samples(_count_samples(data), arguments)
    steps = arguments.get("steps_per_epoch")
    if steps:
        samples = steps * batch_size
    batch_size = min(batch_size, max(1, samples))  # all of them are one batch then
    return FitInputs(
        x=map_specs(_build_spec, data),
        y=map_specs(_build_spec, arguments.get("y")),
        sample_weight=map_specs(_build_spec, arguments.get("sample_weight")),
        batch_size=batch_size,
        samples=samples,
        steps_per_epoch=steps or math.ceil(samples / batch_size),
    )


def _count_samples(data: Any) -> int:
    lengths = {int(leaf.shape[0]) for leaf in iter_specs(data)}
    if len(lengths) != 1 or lengths == {0}:
        raise CaptureError(f"fit() was given arrays of {sorted(lengths)} samples", hint="give equal lengths")
    return lengths.pop()


def _count_training_samples(samples: int, arguments: dict[str, Any]) -> int:
    """Return the number of training samples after `validation_split`, rounded as in Keras [-]."""
    split = arguments.get("validation_split") or 0.0
    if not split or arguments.get("validation_data") is not None:
        return samples
    return max(1, math.floor(samples * (1.0 - split)))


def _describe_batches(data: Any, *, steps_per_epoch: int | None) -> FitInputs:
    batch, batches = _read_first_batch(data)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    if not _is_arrays(x):
        raise CaptureError(f"fit() was given batches of {type(x).__name__}", hint=f"pass {EVERY_KIND}")
    batch_size = _count_samples(x)
    steps = steps_per_epoch or batches
    samples = steps * batch_size if steps else None
    if samples and not steps_per_epoch and getattr(data, "drop_last", True) is False and data.batch_size:
        with suppress(TypeError):  # a PyTorch loader whose data has a length: the last batch may be smaller
            samples = len(data.sampler)
    alone = 1 if isinstance(data, keras.utils.PyDataset) and not isinstance(batch, dict) else 0
    return FitInputs(
        x=map_specs(_build_spec, x),
        y=map_specs(_build_spec, y),
        sample_weight=map_specs(_build_spec, sample_weight),
        parts=len(batch) if isinstance(batch, (list, tuple)) else alone,
        batch_size=batch_size,
        samples=samples,
        steps_per_epoch=steps,
    )


def _read_first_batch(data: Any) -> tuple[Any, int | None]:
    """Return the first batch and the number of batches per epoch (None if unknown)."""
    try:
        if isinstance(data, keras.utils.PyDataset):
            return data[0], data.num_batches
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is not None and isinstance(data, tensorflow.data.Dataset):
            count = int(data.cardinality())  # negative: infinite or unknown
            return next(iter(data.take(1))), count if count >= 0 else None
        first, length = next(iter(data)), None
        with suppress(TypeError):
            length = len(data)
        return first, length
    except StopIteration:
        raise CaptureError("the data given to fit() has no batch", hint=f"pass {EVERY_KIND}") from None
    except TypeError as error:
        message = f"cannot read the data given to fit() ({type(data).__name__}): {to_one_line(error)}"
        raise CaptureError(message, hint=f"pass {EVERY_KIND}") from error


def _build_spec(array: Any) -> ArraySpec:
    if hasattr(array, "to_numpy"):  # a pandas frame or series
        array = array.to_numpy()
    try:
        is_text = getattr(array.dtype, "kind", "") in ("S", "U", "O")
        dtype = "string" if is_text else keras.backend.standardize_dtype(array.dtype)
    except (ValueError, AttributeError):
        kind = getattr(array, "dtype", "?")
        raise CaptureError(f"fit() was given an array of type `{kind}`", hint=f"pass {EVERY_KIND}") from None
    if dtype == "string" and keras.backend.backend() != "tensorflow":
        message = "fit() was given text, which needs the tensorflow backend"
        hint = "encode the text as integers before fit(), or call TextVectorization in the data pipeline"
        raise BackendError(message, hint=hint, backend="tensorflow")
    return ArraySpec(tuple(int(n) for n in array.shape[1:]), NARROW.get(dtype, dtype))


LOSS_BY_ACTIVATION = {"softmax": "sparse_categorical_crossentropy", "sigmoid": "binary_crossentropy"}


def choose_loss(model: Any, output: Any, target: SpecTree = None) -> Any:
    """Return losses nested like the output: cross-entropy after softmax or sigmoid, else squared error."""
    outputs, targets = keras.tree.flatten(output), list(iter_specs(target))

    def choose(output: Any, target: ArraySpec | None) -> str:
        loss = LOSS_BY_ACTIVATION.get(find_activation(model, output), "mean_squared_error")
        dense = target is not None and target.shape[-1:] == tuple(output.shape[-1:])  # one-hot
        return loss.removeprefix("sparse_") if dense else loss

    known = targets if len(targets) == len(outputs) else [None] * len(outputs)
    return keras.tree.pack_sequence_as(output, list(map(choose, outputs, known)))


def find_activation(model: Any, output: Any) -> str:
    """Return the name of the last activation before an output; empty if there is none."""
    history = getattr(output, "_keras_history", None)
    layer = history.operation if history is not None else None
    layers = getattr(model, "layers", None) or []
    if layer is None or layer is model:
        layer = layers[-1] if layers else None
    inner = getattr(layer, "layers", None) and getattr(layer, "outputs", None)
    if inner:
        return find_activation(layer, inner[0])
    if type(layer).__name__ in ("Softmax", "Sigmoid"):
        return type(layer).__name__.lower()
    return getattr(getattr(layer, "activation", None), "__name__", "")


def build_target_specs(model: Any, output: Any) -> SpecTree:
    """Return the targets of the compiled loss, nested like the output; None without a loss."""
    if model.loss is None:
        return None
    flat = keras.tree.flatten(output)
    losses = [model.loss] * len(flat)
    if isinstance(model.loss, dict):
        names = list(getattr(model, "output_names", None) or model.loss)
        if set(names) != set(model.loss) and len(model.loss) == len(flat):
            names = list(model.loss)
        losses = [model.loss.get(name) for name in names]
    elif isinstance(model.loss, (list, tuple)):
        losses = list(model.loss)
    specs = []
    for loss, out in zip(losses, flat, strict=True):
        known = (loss, getattr(loss, "name", ""), getattr(loss, "__name__", ""), type(loss).__name__)
        shape = tuple(out.shape[1:])
        if None in shape:
            raise UsageError(f"an output has no fixed shape: {tuple(out.shape)}", hint="fix the input's shape")
        is_sparse = any("sparse" in str(name).lower() for name in known)
        specs.append(ArraySpec(shape[:-1], "int32") if is_sparse else ArraySpec(shape, "float32"))
    return keras.tree.pack_sequence_as(output, specs)


def validate_names(*, loss: str | None, optimizer: str | None) -> None:
    """Raise UsageError with similar names if Keras has no such loss or optimizer."""
    for flag, name, room in (("--loss", loss, keras.losses), ("--optimizer", optimizer, keras.optimizers)):
        try:
            if name is not None:
                room.get(name)
        except (ValueError, TypeError):
            known = [known for known in dir(room) if not known.startswith("_")]
            hint = near_names_hint(str(name), known, see_all=f"python -c 'help({room.__name__})'")
            raise UsageError(f"Keras has no `{name}` for {flag}", hint=hint) from None


def is_own(model: Any, name: str) -> bool:
    """Return whether a method of a model (`train_step`) is the user's, not Keras's."""
    return getattr(getattr(type(model), name), "__module__", "").partition(".")[0] != "keras"


def require_backend_of_step(model: Any, text: str) -> None:
    """Raise BackendError if the model's own `train_step` is for another backend; JAX alone passes the state."""
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
        message = f"{text}: `train_step` of {type(model).__name__} needs the {needed} backend"
        raise BackendError(message, hint=f"`pip install 'gpuplan[{needed}]'`", backend=needed)


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


def build_training_state(
    model: Any, x: SpecTree, y: SpecTree, output: Any, *, feed: FitInputs, batch_size: int
) -> SpecTree:
    """Create the variables of metrics, loss and optimizer, and return the data for `train_step`.

    Keras would trace the whole model again (5 s for ResNet-50). On TensorFlow, a `train_step` of the user's builds
    what it uses.
    """
    data = pack_batch(x, y, feed.sample_weight, parts=feed.parts)
    if is_own(model, "train_step") and _defers_building(model):
        return data
    if output is not None:
        batch = map_specs(lambda spec: keras.KerasTensor((batch_size, *spec.shape), spec.dtype), data)

        def fix_batch(tensor: Any) -> Any:
            first = () if not tensor.shape else (tensor.shape[0] or batch_size,)
            return keras.KerasTensor((*first, *tensor.shape[1:]), tensor.dtype)

        _build_parts(model, batch, keras.tree.map_structure(fix_batch, output))
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    return data


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
