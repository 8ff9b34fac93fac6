"""Replacement of the calls with which a script trains, evaluates and predicts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import GpuplanError
from ..errors import WAY_OUT, CaptureError
from .later_imports import call_after_import
from .stand_ins import StandIns

OWN_LOOP = "a loop of its own"
TORCH_ONLY = (
    "gpuplan plans Keras models: build it with `keras.layers` (a `keras.layers.TorchModuleWrapper` holds a "
    "module), or take a Keras model of the same kind, as in `gpuplan estimate ResNet50`"
)


class _Patches:
    """Replaced attributes of classes, which can be put back for a while."""

    def __init__(self) -> None:
        self._replaced: list[tuple[type, str, Any, Any]] = []
        self.active = True

    def replace(self, owner: type, name: str, replacement: Any) -> None:
        self._replaced.append((owner, name, vars(owner).get(name), replacement))
        if self.active:
            setattr(owner, name, replacement)

    def undo(self) -> None:
        self.active = False
        for owner, name, original, _ in reversed(self._replaced):
            setattr(owner, name, original) if original is not None else delattr(owner, name)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        self.undo()
        try:
            yield
        finally:
            self.active = True
            for owner, name, _, replacement in self._replaced:
                setattr(owner, name, replacement)


def replace_training_calls(script: str, calls: StandIns, faults: list[GpuplanError]) -> Callable[[], None]:
    """Replace training calls of Keras; return a function that restores them.

    Args:
        script: Name of the script.
        calls: What happens instead.
        faults: Receives the errors that are raised in the script, which may catch them.
    """
    import keras

    patches = _Patches()

    def route(name: str) -> None:
        original = getattr(keras.Model, name)
        signature, replacement = inspect.signature(original), getattr(calls, name)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            with patches.suspended(), _kept(faults):
                return replacement(self, dict(bound.arguments))

        patches.replace(keras.Model, name, call)

    for name in ("fit", "evaluate", "predict"):
        route(name)
    patches.replace(keras.Model, "train_on_batch", _build_refusal("train_on_batch()", script, faults))
    for name in ("apply", "stateless_apply"):
        patches.replace(keras.optimizers.Optimizer, name, _build_refusal(OWN_LOOP, script, faults))

    def take_over_tuner(module: Any) -> None:
        def search(self: Any, *args: Any, **kwargs: Any) -> None:
            with patches.suspended(), _kept(faults):
                calls.search(self, args, kwargs)

        patches.replace(module.Tuner, "search", search)

    def refuse_torch(module: Any) -> None:
        patches.replace(module.Tensor, "backward", _build_torch_refusal(script, faults))

    call_after_import("keras_tuner", take_over_tuner)
    call_after_import("torch", refuse_torch)
    return patches.undo


@contextmanager
def _kept(faults: list[GpuplanError]) -> Iterator[None]:
    try:
        yield
    except GpuplanError as error:
        faults.append(error)
        raise


def _build_refusal(how: str, script: str, faults: list[GpuplanError]) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        with _kept(faults):
            raise _build_error(how, script)

    return refuse


def _build_error(how: str, script: str) -> CaptureError:
    return CaptureError(f"{script} trains with {how}, not with fit()", hint=WAY_OUT.format(name=script))


def _build_torch_refusal(script: str, faults: list[GpuplanError]) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        import gc

        import keras

        with _kept(faults):
            if any(issubclass(type(one), keras.Model) for one in gc.get_objects()):
                raise _build_error(OWN_LOOP, script)
            raise CaptureError(f"{script} trains a PyTorch module, not a Keras model", hint=TORCH_ONLY)

    return refuse
