"""Layout of a built model on the devices of a mesh: that of its distribution, or one chosen for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ..device_layout import DeviceLayout
from ..keras_layers import group_variables
from ..trace.division.mesh_axes import MeshAxes
from ..trace.division.placement import Placement
from ..trace.division.spec import Axes, Axis


def get_distribution_name() -> str:
    """Return the name of the distribution (`DataParallel`, ...); empty if none is set."""
    import keras

    known = keras.distribution.distribution()
    return "" if known is None else type(known).__name__


def find_distribution(model: Any, *, mode: Literal["train", "infer"]) -> Placement | None:
    """Return the placement of a model's variables by the current distribution; None without a distribution.

    Args:
        model: A `keras.Model` on JAX, its optimizer and metrics built for training; variables may be abstract.
        mode: Training, or inference, which has neither optimizer nor metrics.
    """
    import keras

    distribution = keras.distribution.distribution()
    if distribution is None or keras.backend.backend() != "jax":
        return None
    mesh = distribution.device_mesh
    sizes = {str(name): int(size) for name, size in zip(mesh.axis_names, mesh.shape, strict=True) if size > 1}
    held = group_variables(model, train=mode == "train")
    samples = distribution.get_data_layout((1,)).axes[0]
    specs = {id(one): _find_spec(distribution, one, sizes) for group in held for one in group}
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


def build_script_layout(
    model: Any, placement: Placement | None, *, mode: Literal["train", "infer"], states_devices: bool
) -> DeviceLayout | None:
    """Return the layout of a model under the distribution of the user's code; None without one.

    Args:
        model, mode: As for `find_distribution`.
        placement: Placement by that distribution.
        states_devices: Whether the user's code states the number of its devices.
    """
    import jax

    from ..trace.jax.step import build_device_layout

    if placement is None:
        return None
    takes_all = placement.devices == jax.device_count() and not states_devices
    return build_device_layout(model, placement, mode=mode, takes_all=takes_all)
