"""Default losses, and targets that fit a loss and an output."""

from __future__ import annotations

from typing import Any

from ...errors import UsageError, near_names_hint
from ..array_spec import ArraySpec, SpecTree

LOSS_BY_ACTIVATION = {"softmax": "sparse_categorical_crossentropy", "sigmoid": "binary_crossentropy"}


def choose_loss(model: Any, output: Any, target: SpecTree = None) -> Any:
    """Return loss names nested like the output: cross-entropy after softmax or sigmoid, else squared error.

    Args:
        model: The Keras model.
        output: Its symbolic output: KerasTensors, nested.
        target: Specs of the targets if known; one-hot targets use the dense cross-entropy.
    """
    import keras

    flat_targets = keras.tree.flatten(target) if target is not None else []
    flat_outputs = keras.tree.flatten(output)
    if len(flat_targets) != len(flat_outputs):
        flat_targets = [None] * len(flat_outputs)
    losses = [
        _choose_output_loss(model, out, spec) for out, spec in zip(flat_outputs, flat_targets, strict=True)
    ]
    return keras.tree.pack_sequence_as(output, losses)


def _choose_output_loss(model: Any, output: Any, target: ArraySpec | None) -> str:
    loss = LOSS_BY_ACTIVATION.get(_find_activation(model, output), "mean_squared_error")
    if loss.startswith("sparse") and target is not None and target.shape[-1:] == tuple(output.shape[-1:]):
        return "categorical_crossentropy"
    return loss


def _find_activation(model: Any, output: Any) -> str:
    """Return the name of the last activation before an output; empty if there is none."""
    history = getattr(output, "_keras_history", None)
    layer = history.operation if history is not None else None
    layers = getattr(model, "layers", None) or []
    if layer is None or layer is model:
        layer = layers[-1] if layers else None
    inner = getattr(layer, "layers", None) and getattr(layer, "outputs", None)
    if inner:
        return _find_activation(layer, inner[0])
    if type(layer).__name__ == "Softmax":
        return "softmax"
    return getattr(getattr(layer, "activation", None), "__name__", "")


def build_target_specs(model: Any, output: Any) -> SpecTree:
    """Return the targets of the compiled loss, nested like the output; None without a loss.

    Sparse losses take one integer per row of probabilities; all others an array of the output's shape.
    """
    import keras

    if model.loss is None:
        return None
    flat = keras.tree.flatten(output)
    losses = _get_loss_by_output(model, len(flat))
    specs = [_build_target(loss, out) for loss, out in zip(losses, flat, strict=True)]
    return keras.tree.pack_sequence_as(output, specs)


def _get_loss_by_output(model: Any, outputs: int) -> list[Any]:
    if isinstance(model.loss, dict):
        names = list(getattr(model, "output_names", None) or model.loss)
        if set(names) != set(model.loss) and len(model.loss) == outputs:
            names = list(model.loss)
        return [model.loss.get(name) for name in names]
    if isinstance(model.loss, (list, tuple)):
        return list(model.loss)
    return [model.loss] * outputs


def _build_target(loss: Any, output: Any) -> ArraySpec:
    names = (loss, getattr(loss, "name", ""), getattr(loss, "__name__", ""), type(loss).__name__)
    sparse = any("sparse" in str(name).lower() for name in names)
    shape = tuple(output.shape[1:])
    if None in shape:
        raise UsageError(f"an output has no fixed shape: {tuple(output.shape)}", hint="fix the input's shape")
    return ArraySpec(shape[:-1], "int32") if sparse else ArraySpec(shape, "float32")


def validate_names(*, loss: str | None, optimizer: str | None) -> None:
    """Raise UsageError with similar names if Keras has no such loss or optimizer."""
    import keras

    for flag, name, room in (("--loss", loss, keras.losses), ("--optimizer", optimizer, keras.optimizers)):
        try:
            if name is not None:
                room.get(name)
        except (ValueError, TypeError):
            known = [known for known in dir(room) if not known.startswith("_")]
            hint = near_names_hint(str(name), known, see_all=f"python -c 'help({room.__name__})'")
            raise UsageError(f"Keras has no `{name}` for {flag}", hint=hint) from None
