"""Strategies of `tf.distribute` in a script, which is followed on one device, and the batch that they divide."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from ..model import Strategy
from ..script_text import list_around, parse_file
from .watch import call_after_import

PLACES = {  # of the strategies, in `tf.distribute`
    "MirroredStrategy": ("",),
    "MultiWorkerMirroredStrategy": ("", "experimental"),
    "TPUStrategy": ("", "experimental"),
}


class StrategyWatch:
    """Strategies that a script enters, and the batches that it multiplies with their number of replicas."""

    def __init__(self) -> None:
        """Watch TensorFlow from its import on."""
        self._entered: tuple[str, int | None] | None = None
        self._products: set[int] = set()
        call_after_import("tensorflow", self._replace)

    def find(self, batch_size: int | None) -> Strategy | None:
        """Return the strategy entered last, for a batch of `fit()` [-]; None unless Keras runs on TensorFlow."""
        if self._entered is None or os.environ.get("KERAS_BACKEND") != "tensorflow":
            return None
        name, devices = self._entered
        return Strategy(name=name, devices=devices, keeps_batch=devices is None and batch_size in self._products)

    def _replace(self, tensorflow: Any) -> None:
        distribute = tensorflow.distribute
        for name, places in PLACES.items():
            kind = self._build_kind(distribute.OneDeviceStrategy, name)
            for place in places:
                setattr(getattr(distribute, place) if place else distribute, name, kind)
        distribute.cluster_resolver.TPUClusterResolver = _Resolver(distribute.cluster_resolver.TPUClusterResolver)
        for owner, name in (
            (tensorflow.config, "experimental_connect_to_cluster"),
            (tensorflow.tpu.experimental, "initialize_tpu_system"),
        ):
            setattr(owner, name, _skip_stand_in(getattr(owner, name)))

    def _build_kind(self, one_device: type, name: str) -> type:
        """Return the class of a strategy of some name that computes on the processor."""
        watch = self

        class Followed(one_device):  # type: ignore[misc]
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


def _skip_stand_in(function: Any) -> Any:
    def call(resolver: Any = None, *args: Any, **kwargs: Any) -> Any:
        return None if resolver is _STAND_IN else function(resolver, *args, **kwargs)

    return call


def _is_guarded(frame: FrameType) -> bool:
    """Return whether a line of the script stands in a `try` with handlers."""
    tree, line = parse_file(Path(frame.f_code.co_filename)), frame.f_lineno
    tries = [node for node in list_around(tree, line) if isinstance(node, ast.Try)] if tree is not None else []
    return any(node.handlers and line <= (node.body[-1].end_lineno or 0) for node in tries)
