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


def _check_before(owner: Any, name: str, check: Callable[..., None]) -> None:
    """Call a function with the arguments of another one before it."""
    function = getattr(owner, name)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return function(*args, **kwargs)

    setattr(owner, name, call)


def _watch_mesh(need: NeedDevices) -> None:
    """Ask for as many devices as a mesh has, of Keras or of `jax.make_mesh`."""
    import jax
    import keras

    def check_mesh(self: Any, shape: Any, axis_names: Any, devices: Any = None) -> None:
        import numpy as np

        found, wanted = jax.device_count(), math.prod(shape)
        taken = found if devices is None else np.size(devices)
        if wanted == 0 and found < USUAL_DEVICES:  # a share of the devices: none of one
            need(USUAL_DEVICES, True)
        if wanted > 0 and (wanted > found or (wanted != taken and taken == found)):
            need(wanted, False)

    def check_jax_mesh(axis_shapes: Any, *how: Any, devices: Any = None, **options: Any) -> None:
        wanted = math.prod(axis_shapes)
        if devices is None and wanted > jax.device_count():
            need(wanted, False)

    _check_before(keras.distribution.DeviceMesh, "__init__", check_mesh)
    _check_before(jax, "make_mesh", check_jax_mesh)


def _watch_layout(need: NeedDevices) -> None:
    """Ask for several devices where variables would be divided over the single one that was found."""
    import keras

    def check(self: Any, device_mesh: Any) -> None:
        if device_mesh is not None and device_mesh.devices.size == 1:
            need(USUAL_DEVICES, True)

    _check_before(keras.distribution.LayoutMap, "__init__", check)
