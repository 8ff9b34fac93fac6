"""Layout of a built model on the devices of a mesh: that of its distribution, or one chosen for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from ..device_layout import DeviceLayout, VariableBytes
from ..trace.division.mesh_axes import MeshAxes
from ..trace.division.placement import Placement
from ..trace.division.spec import Axes, Axis, Shape
from .tensor_parallel import place_in_parts

__all__ = ["build_device_layout", "find_placement", "find_script_layout"]


def find_placement(
    model: Any, *, mode: Literal["train", "infer"], ways: int | None = None
) -> Placement | None:
    """Return the placement of a model's variables on several devices; None on one.

    Args:
        model: A `keras.Model` on JAX, its optimizer and metrics built for training; variables may be abstract.
        mode: Training, or inference, which has neither optimizer nor metrics.
        ways: Devices that share each product by tensor parallelism; None for the current distribution [-].
    """
    return find_distribution(model, mode=mode) if ways is None else place_in_parts(model, ways, mode=mode)


def find_distribution(model: Any, *, mode: Literal["train", "infer"]) -> Placement | None:
    """Return the placement of a model's variables by the current distribution; None without a distribution."""
    import keras

    distribution = keras.distribution.distribution()
    if distribution is None or keras.backend.backend() != "jax":
        return None
    mesh = distribution.device_mesh
    sizes = {str(name): int(size) for name, size in zip(mesh.axis_names, mesh.shape, strict=True) if size > 1}
    samples = distribution.get_data_layout((1,)).axes[0]
    specs = {id(one): _find_spec(distribution, one, sizes) for one in _list_variables(model, mode)}
    return Placement(
        mesh=MeshAxes(sizes=sizes, replicas=frozenset(_list_names(samples)) & sizes.keys()),
        divided={key: spec for key, spec in specs.items() if any(spec)},
    )


def _find_spec(distribution: Any, variable: Any, sizes: dict[str, int]) -> tuple[Axes, ...]:
    """Return the division of a variable along axes of several devices."""
    layout = distribution.get_variable_layout(variable)
    sharding = getattr(layout, "backend_layout", layout)
    entries = [*sharding.spec, *(None for _ in range(len(variable.shape) - len(sharding.spec)))]
    return tuple(
        tuple(Axis(name, sizes[name]) for name in _list_names(entry) if name in sizes) for entry in entries
    )


def _list_names(entry: str | Sequence[str] | None) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else tuple(entry or ())


def find_script_layout(
    model: Any, *, mode: Literal["train", "infer"], states_devices: bool = False
) -> DeviceLayout | None:
    """Return the layout of a model under the current distribution; None without a distribution.

    Args:
        model, mode: As for `find_placement`.
        states_devices: Whether the user's code states the number of its devices.
    """
    placement = find_distribution(model, mode=mode)
    if placement is None:
        return None
    import jax

    takes_all = placement.devices == jax.device_count() and not states_devices
    return build_device_layout(model, placement, mode=mode, takes_all=takes_all)


def build_device_layout(
    model: Any,
    placement: Placement,
    *,
    mode: Literal["train", "infer"],
    takes_all: bool = False,
) -> DeviceLayout:
    """Return what each device of a mesh holds of a model."""
    return DeviceLayout(
        devices=placement.devices,
        replicas=placement.replicas,
        takes_all=takes_all,
        whole=_compute_variable_bytes(model, mode, lambda variable: tuple(variable.shape)),
        each=_compute_variable_bytes(
            model,
            mode,
            placement.compute_local_shape,
        ),
    )


def _list_variables(model: Any, mode: Literal["train", "infer"]) -> list[Any]:
    state = [*model.optimizer.variables, *model.metrics_variables] if mode == "train" else []
    return [*model.trainable_variables, *model.non_trainable_variables, *state]


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
