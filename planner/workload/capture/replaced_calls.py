"""Replacement of what trains in a script: calls of Keras, updates by optimizers, and compiled functions."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import jax
import keras
import numpy as np

from ...errors import GpuplanError
from ..errors import WAY_OUT, BackendError, CaptureError, find_own_places, is_own_file
from ..keras_layers import replacing
from ..options import iter_specs
from ..script_text import can_train_after
from .training_calls import StandIns
from .training_loops import follow_jit, follow_tensorflow
from .watch import call_after_import

OWN_LOOP = "a loop of its own"
UNCOMPILED = f"{OWN_LOOP} whose step is not under `jax.jit`"
TORCH_ONLY = (
    "gpuplan plans Keras models: build it with `keras.layers` (a `keras.layers.TorchModuleWrapper` holds a "
    "module), or take a Keras model of the same kind, as in `gpuplan estimate ResNet50`"
)
FUNCTIONS = "tensorflow.python.eager.polymorphic_function.polymorphic_function"


class _Patches:
    """Replaced attributes of classes, which can be put back for a while."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self.active = True

    def replace(self, owner: Any, name: str, replacement: Any) -> None:
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
    """Replace what trains; return a function that restores it.

    `faults` receives the errors that are raised in the script, which may catch them.
    """
    followed, loops = _Followed(script, calls, faults), calls.loops
    for name in ("fit", "evaluate", "predict", "predict_on_batch", "train_on_batch"):
        followed.route(name)
    followed.patches.replace(keras.Model, "__call__", followed.build_call())
    for name in ("stateless_apply", "apply"):  # the first one calls the other, as it is before
        followed.follow_update(name)
    if loops is not None and keras.backend.backend() == "jax":
        followed.patches.replace(jax, "jit", follow_jit(loops))
    call_after_import("keras_tuner", followed.take_over_tuner)
    call_after_import("torch", followed.take_over_torch)
    call_after_import("tensorflow", followed.take_over_tensorflow)
    return followed.patches.undo


class _Followed:
    """A script that is followed: replacements of what it calls."""

    def __init__(self, script: str, calls: StandIns, faults: list[GpuplanError]) -> None:
        self._script, self._calls, self._faults, self._loops = script, calls, faults, calls.loops
        self.patches = _Patches()

    @contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except GpuplanError as error:
            self._faults.append(error)
            raise

    def _refuse(self, how: str, *, backend: str | None = None) -> None:
        with self._kept():
            if backend is not None:
                raise BackendError(f"{self._script} trains with {how}", backend=backend)
            message = f"{self._script} trains with {how}, not with fit()"
            raise CaptureError(message, hint=WAY_OUT.format(name=self._script))

    def _is_called_by_user(self) -> bool:
        return is_own_file(sys._getframe(2).f_code.co_filename, str(self._calls.own))

    def _can_train(self) -> bool:
        places = find_own_places(sys._getframe(2), (str(self._calls.own),))
        return not self._calls.reached or can_train_after(places)

    def route(self, name: str) -> None:
        """Replace a method of models by that of the same name of the calls."""
        signature = inspect.signature(getattr(keras.Model, name))
        replacement = getattr(self._calls, name)

        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(model, *args, **kwargs)
            bound.apply_defaults()
            if name == "train_on_batch":
                batch_size = next(iter_specs(bound.arguments["x"])).shape[0]
                bound.arguments.update(batch_size=batch_size, epochs=1)
            with self.patches.suspended(), self._kept():
                return replacement(model, dict(bound.arguments))

        self.patches.replace(keras.Model, name, call)

    def build_call(self) -> Callable[..., Any]:
        """Return a replacement of the call of a model, which predicts once a step was found."""
        original = keras.Model.__call__

        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_called_by_user() and args:
                if self._loops is not None:
                    shapes = (getattr(one, "shape", ()) for one in iter_specs(args[0]))
                    self._loops.batch_size = next((shape[0] for shape in shapes if shape), 1)
                if self._calls.reached and _is_prediction(args, kwargs):
                    with suppress(Exception), self.patches.suspended():
                        return self._calls.call(model, args[0])
            return original(model, *args, **kwargs)

        return call

    def follow_update(self, name: str) -> None:
        """Tell of each update by an optimizer of Keras; without a trace, JAX's steps cannot be told apart."""
        kind, backend = keras.optimizers.Optimizer, keras.backend.backend()
        apply, update = kind.apply, getattr(kind, name)

        def follow(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._loops is None or (backend == "jax" and not self._loops.is_tracing):
                self._refuse(OWN_LOOP if self._loops is None else UNCOMPILED)
                return None
            self._loops.enter("update")
            with replacing((kind, "apply", apply)):
                done = update(optimizer, *args, **kwargs)
            with self._kept():
                self._loops.update(optimizer, list(optimizer._trainable_variables))
            return done

        self.patches.replace(kind, name, follow)

    def take_over_tuner(self, module: Any) -> None:
        """Replace searches of KerasTuner."""

        def search(tuner: Any, *args: Any, **kwargs: Any) -> None:
            with self.patches.suspended(), self._kept():
                self._calls.search(tuner, args, kwargs)

        self.patches.replace(module.Tuner, "search", search)

    def take_over_torch(self, module: Any) -> None:
        """Follow PyTorch's gradients and optimizers."""
        backward, loops = module.Tensor.backward, self._loops

        def follow(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            self._require_torch()
            self._tell("backward")
            return backward(tensor, *args, **kwargs)

        self.patches.replace(module.Tensor, "backward", follow)
        if loops is not None:
            hooks = import_module("torch.optim.optimizer")
            hooks.register_optimizer_step_pre_hook(lambda *given: self._tell("update"))
            hooks.register_optimizer_step_post_hook(lambda optimizer, *given: self._finish_torch(optimizer))

    def _tell(self, phase: Any) -> None:
        if self._loops is not None:
            self._loops.enter(phase)

    def _finish_torch(self, optimizer: Any) -> None:
        if self._loops is not None and self.patches.active:
            with self._kept():
                self._loops.update(optimizer, [one for group in optimizer.param_groups for one in group["params"]])

    def _require_torch(self) -> None:
        """Raise an error unless a Keras model is trained on its PyTorch backend, and loops are followed."""
        if not any(issubclass(type(one), keras.Model) for one in gc.get_objects()):
            with self._kept():
                raise CaptureError(f"{self._script} trains a PyTorch module, not a Keras model", hint=TORCH_ONLY)
        if self._loops is None:
            self._refuse(OWN_LOOP)
        if keras.backend.backend() != "torch":
            self._refuse("PyTorch's gradients", backend="torch")

    def take_over_tensorflow(self, module: Any) -> None:
        """Follow `tf.GradientTape` and the functions of TensorFlow."""
        tape, backend, loops = module.GradientTape, keras.backend.backend(), self._loops
        begin, compute = tape.__init__, tape.gradient

        def follow_tape(one: Any, *args: Any, **kwargs: Any) -> None:
            if backend != "tensorflow" and self._is_called_by_user() and self._can_train():
                self._refuse("`tf.GradientTape`", backend="tensorflow")
            begin(one, *args, **kwargs)

        def follow_gradient(one: Any, *args: Any, **kwargs: Any) -> Any:
            self._tell("backward")
            return compute(one, *args, **kwargs)

        self.patches.replace(tape, "__init__", follow_tape)
        self.patches.replace(tape, "gradient", follow_gradient)
        if loops is not None and backend == "tensorflow":
            self.patches.replace(sys.modules[FUNCTIONS].Function, "__call__", follow_tensorflow(loops))


def _is_prediction(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a model is called with data, in no trace and with no gradient to follow."""
    tape = sys.modules.get("tensorflow.python.pywrap_tfe")
    if len(args) != 1 or any(kwargs.values()) or (tape is not None and not tape.TFE_Py_TapeSetIsEmpty()):
        return False
    return all(
        isinstance(leaf, np.ndarray) or (not isinstance(leaf, jax.core.Tracer) and hasattr(leaf, "__array__"))
        for leaf in jax.tree.leaves(args)
    )
