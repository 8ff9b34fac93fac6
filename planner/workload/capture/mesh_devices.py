"""Devices that a script finds in the child process, which may not be those of its machine.

A mesh states how many devices it needs when it is built, which is later than JAX decides how many it has. The
process is therefore started again with that number of devices of the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

USUAL_DEVICES = 8  # of a large machine: for a layout that divides however many devices it finds [-]

NeedDevices = Callable[[int, bool], NoReturn]


def follow_mesh(need: NeedDevices, *, given: bool) -> None:
    """Let `keras.distribution` find this process's devices as those of any type, and report what a mesh needs.

    Args:
        need: Function that ends the process, so that it is started again with a number of devices; its second
            argument tells whether the script takes all devices that it finds.
        given: Whether the number of devices was set for this process.
    """
    from keras.src.backend import distribution_lib

    every = distribution_lib.list_devices
    distribution_lib.list_devices = lambda device_type=None: _FoundDevices(every(), need)
    if hasattr(distribution_lib, "get_device_count"):
        distribution_lib.get_device_count = lambda device_type=None: len(every())
    if hasattr(distribution_lib, "_to_backend_device"):
        distribution_lib._to_backend_device = _find_device
    _watch_mesh(need)
    _watch_jax_mesh(need)
    if not given:
        _watch_layout(need)


class _FoundDevices(list[str]):
    """Names of the devices that were found; those beyond the last are asked for when they are taken."""

    def __init__(self, names: list[str], need: NeedDevices) -> None:
        super().__init__(names)
        self._need = need

    def __getitem__(self, index: Any) -> Any:
        last = index.stop if isinstance(index, slice) else index + 1
        if last is not None and last > len(self):
            self._need(last, False)
        return super().__getitem__(index)


def _find_device(name: Any) -> Any:
    """Return a device of this process by a name like `gpu:1`, whatever its type."""
    import jax

    return name if isinstance(name, jax.Device) else jax.devices()[int(str(name).partition(":")[2] or 0)]


def _watch_mesh(need: NeedDevices) -> None:
    """Ask for as many devices as a mesh has."""
    import keras

    mesh = keras.distribution.DeviceMesh
    build = mesh.__init__

    @wraps(build)
    def init(self: Any, shape: Any, axis_names: Any, devices: Any = None) -> None:
        import jax
        import numpy as np

        found, wanted = jax.device_count(), math.prod(shape)
        taken = found if devices is None else np.size(devices)
        if wanted == 0 and found < USUAL_DEVICES:  # a share of the devices: none of one
            need(USUAL_DEVICES, True)
        if wanted > 0 and (wanted > found or (wanted != taken and taken == found)):
            need(wanted, False)
        build(self, shape, axis_names, devices)

    mesh.__init__ = init


def _watch_jax_mesh(need: NeedDevices) -> None:
    """Ask for as many devices as a mesh of `jax.make_mesh` has."""
    import jax

    build = jax.make_mesh

    @wraps(build)
    def make_mesh(axis_shapes: Any, *how: Any, **options: Any) -> Any:
        wanted = math.prod(axis_shapes)
        if options.get("devices") is None and wanted > jax.device_count():
            need(wanted, False)
        return build(axis_shapes, *how, **options)

    jax.make_mesh = make_mesh


def _watch_layout(need: NeedDevices) -> None:
    """Ask for several devices where variables would be divided over the single one that was found."""
    import keras

    layouts = keras.distribution.LayoutMap
    build = layouts.__init__

    @wraps(build)
    def init(self: Any, device_mesh: Any) -> None:
        if device_mesh is not None and device_mesh.devices.size == 1:
            need(USUAL_DEVICES, True)
        build(self, device_mesh)

    layouts.__init__ = init
