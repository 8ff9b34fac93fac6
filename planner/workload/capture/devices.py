"""Devices that a script asks for: strategies of `tf.distribute`, which run on one device, and meshes of JAX."""

from __future__ import annotations

import ast
import math
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, NoReturn

import jax
import numpy as np

from ..backend import get_user_backend
from ..model import Strategy
from ..script_text import list_around, parse_file
from .patches import around, replace_after_import

STRATEGIES = ("MirroredStrategy", "MultiWorkerMirroredStrategy", "TPUStrategy")  # of `tf.distribute`


class StrategyWatch:
    """Strategies that a script enters, and the batches that it multiplies with their number of replicas."""

    def __init__(self) -> None:
        self._entered: tuple[str, int | None] | None = None
        self._products: set[int] = set()
        for name in STRATEGIES:
            for path in (f"distribute.{name}", f"distribute.experimental.{name}"):
                replace_after_import("tensorflow", path, partial(self._build_kind, name))
        replace_after_import("tensorflow", "distribute.cluster_resolver.TPUClusterResolver", _Resolver)
        for path in ("config.experimental_connect_to_cluster", "tpu.experimental.initialize_tpu_system"):
            replace_after_import("tensorflow", path, around(_skip_stand_in))

    def find(self, batch_size: int | None) -> Strategy | None:
        """Return the strategy entered last, for a batch of `fit()` [-]; None unless Keras runs on TensorFlow."""
        if self._entered is None or get_user_backend() != "tensorflow":
            return None
        name, devices = self._entered
        return Strategy(name=name, devices=devices, keeps_batch=devices is None and batch_size in self._products)

    def _build_kind(self, name: str, _: type) -> type:
        """Return the class of a strategy of some name that computes on the processor."""
        watch, one_device = self, sys.modules["tensorflow"].distribute.OneDeviceStrategy

        class Followed(one_device):  # type: ignore[misc, valid-type]
            def __init__(self, devices: Any = None, *args: Any, **kwargs: Any) -> None:
                super().__init__("/cpu:0")
                stated = name == "MirroredStrategy" and isinstance(devices, list | tuple)
                self._stated = len(devices) if stated else None

            @property
            def num_replicas_in_sync(self) -> int:
                return _ReplicaCount(self._stated or 1, watch._products)

            def scope(self) -> Any:
                watch._entered = name, self._stated
                os.environ.setdefault("KERAS_BACKEND", "tensorflow")
                return super().scope()

        Followed.__name__ = Followed.__qualname__ = name
        return Followed


class _ReplicaCount(int):
    """Number of replicas that notes its products with whole numbers."""

    def __new__(cls, count: int, products: set[int]) -> _ReplicaCount:
        made = super().__new__(cls, count)
        made._products = products
        return made

    _products: set[int]

    def __mul__(self, other: Any) -> Any:
        product = int(self) * other
        if isinstance(product, int):
            self._products.add(product)
        return product

    __rmul__ = __mul__


class _Resolver:
    """Stand-in of TensorFlow's resolver, which is asked only where the script goes on without a TPU."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._real(*args, **kwargs) if _is_guarded(sys._getframe(1)) else _STAND_IN

    def connect(self, *args: Any, **kwargs: Any) -> Any:
        return self._real.connect(*args, **kwargs) if _is_guarded(sys._getframe(1)) else _STAND_IN


_STAND_IN = SimpleNamespace(master=lambda: "", cluster_spec=lambda: SimpleNamespace(as_dict=dict))


def _skip_stand_in(function: Any, resolver: Any = None, *args: Any, **kwargs: Any) -> Any:
    return None if resolver is _STAND_IN else function(resolver, *args, **kwargs)


def _is_guarded(frame: FrameType) -> bool:
    """Return whether a line of the script stands in a `try` with handlers."""
    tree, line = parse_file(Path(frame.f_code.co_filename)), frame.f_lineno
    tries = [node for node in list_around(tree, line) if isinstance(node, ast.Try)] if tree is not None else []
    return any(node.handlers and line <= (node.body[-1].end_lineno or 0) for node in tries)


# --- meshes ---------------------------------------------------------------------------------------------------

OF_DEVICES = "keras.src.backend.jax.distribution_lib"
USUAL_DEVICES = 8  # of a large machine: for a layout that divides however many devices it finds [-]

NeedDevices = Callable[[int, bool], NoReturn]


def follow_mesh(need: NeedDevices, *, given: bool) -> None:
    """Let `keras.distribution` find this process's devices as those of any type; `given`: their number was set.

    `need` has the process started again with a number of devices, and tells whether the script takes all it finds.
    """

    def make_mesh(make: Any, mesh: Any, shape: Any, axis_names: Any, devices: Any = None) -> None:
        found, wanted = jax.device_count(), math.prod(shape)
        taken = found if devices is None else np.size(devices)
        if wanted == 0 and found < USUAL_DEVICES:  # a share of the devices: none of one
            need(USUAL_DEVICES, True)
        if wanted > 0 and (wanted > found or (wanted != taken and taken == found)):
            need(wanted, False)
        make(mesh, shape, axis_names, devices)

    def make_jax_mesh(make: Any, axis_shapes: Any, *how: Any, devices: Any = None, **options: Any) -> Any:
        wanted = math.prod(axis_shapes)
        if devices is None and wanted > jax.device_count():
            need(wanted, False)
        return make(axis_shapes, *how, devices=devices, **options)

    def make_layout(make: Any, layout: Any, device_mesh: Any) -> None:
        if not given and device_mesh is not None and device_mesh.devices.size == 1:
            need(USUAL_DEVICES, True)  # variables would be divided over the single one that was found
        make(layout, device_mesh)

    def find_device(_: Any, name: Any) -> Any:
        return name if isinstance(name, jax.Device) else jax.devices()[int(str(name).partition(":")[2] or 0)]

    for module, path, call in (
        (OF_DEVICES, "list_devices", lambda every, device_type=None: _FoundDevices(every(), need)),
        (OF_DEVICES, "get_device_count", lambda count, device_type=None: jax.device_count()),
        (OF_DEVICES, "_to_backend_device", find_device),
        ("keras", "distribution.DeviceMesh.__init__", make_mesh),
        ("jax", "make_mesh", make_jax_mesh),
        ("keras", "distribution.LayoutMap.__init__", make_layout),
    ):
        replace_after_import(module, path, around(call))


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
