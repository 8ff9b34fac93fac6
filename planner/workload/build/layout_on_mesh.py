"""Layout of a built model on the mesh of its distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from ..device_layout import DeviceLayout, VariableBytes

__all__ = ["find_device_layout"]

Shape = tuple[int, ...]


def find_device_layout(
    model: Any, *, mode: Literal["train", "infer"], states_devices: bool = False
) -> DeviceLayout | None:
    """Return the layout of a model under the current distribution; None without a distribution.

    Args:
        model: A `keras.Model`, its optimizer and metrics built for training; its variables may be abstract.
        mode: Training, or inference, which has neither optimizer nor metrics.
        states_devices: Whether the user's code states the number of its devices.
    """
    import keras

    distribution = keras.distribution.distribution()
    if distribution is None:
        return None
    import jax

    mesh = distribution.device_mesh
    batch_axis = distribution.get_data_layout((1,)).axes[0]
    devices = int(mesh.devices.size)
    return DeviceLayout(
        devices=devices,
        replicas=_count_parts(mesh, batch_axis),
        takes_all=devices == jax.device_count() and not states_devices,
        whole=_compute_variable_bytes(model, mode, lambda variable: variable.shape),
        each=_compute_variable_bytes(model, mode, lambda variable: _find_shard(distribution, variable)),
    )


def _count_parts(mesh: Any, axes: str | Sequence[str] | None) -> int:
    """Return the number of parts of a dimension that is divided along axes of a mesh; 1 for none [-]."""
    sizes, parts = dict(zip(mesh.axis_names, mesh.shape, strict=True)), 1
    for name in (axes,) if isinstance(axes, str) else axes or ():
        parts *= int(sizes[name])
    return parts


def _find_shard(distribution: Any, variable: Any) -> Shape:
    """Return the shape of the part of a variable that one device holds."""
    layout = distribution.get_variable_layout(variable)
    sharding = getattr(layout, "backend_layout", layout)
    return tuple(sharding.shard_shape(tuple(variable.shape)))


def _compute_variable_bytes(
    model: Any, mode: Literal["train", "infer"], shape_of: Callable[[Any], Shape]
) -> VariableBytes:
    from ..trace.jax.step import compute_array_bytes

    def total(variables: Sequence[Any]) -> int:
        return sum(compute_array_bytes(shape_of(one), one.dtype) for one in variables)

    train = mode == "train"
    return VariableBytes(
        parameters=total(model.trainable_variables),
        optimizer=total(model.optimizer.variables) if train else 0,
        state=total(model.non_trainable_variables) + (total(model.metrics_variables) if train else 0),
    )
