"""Replacement of what trains in a script: calls of Keras, updates by optimizers, and compiled functions."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
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
from .patches import Patches
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


def replace_training_calls(script: str, calls: StandIns, faults: list[GpuplanError]) -> Callable[[], None]:
    """Replace what trains; return a function that restores it.

    `faults` receives the errors that are raised in the script, which may catch them.
    """
    followed, loops, backend = _Followed(script, calls, faults), calls.loops, keras.backend.backend()
    replace = followed.patches.replace
    for name in ("fit", "evaluate", "predict", "predict_on_batch", "train_on_batch"):
        replace("keras", f"Model.{name}", partial(followed.route, name))
    replace("keras", "Model.__call__", followed.follow_call)
    apply = keras.optimizers.Optimizer.apply
    for name in ("stateless_apply", "apply"):  # the first one calls the other, as it is before
        replace("keras", f"optimizers.Optimizer.{name}", partial(followed.follow_update, apply))
    replace("keras_tuner", "Tuner.search", followed.follow_search)
    replace("torch", "Tensor.backward", partial(followed.follow_gradient, followed.require_torch))
    replace("tensorflow", "GradientTape.__init__", followed.follow_tape)
    replace("tensorflow", "GradientTape.gradient", partial(followed.follow_gradient, lambda: None))
    if loops is not None:
        call_after_import("torch", followed.follow_torch)
        if backend == "jax":
            replace("jax", "jit", partial(follow_jit, loops))
        if backend == "tensorflow":
            replace(FUNCTIONS, "Function.__call__", partial(follow_tensorflow, loops))
    return followed.patches.undo


class _Followed:
    """A script that is followed: methods that make replacements of what it calls."""

    def __init__(self, script: str, calls: StandIns, faults: list[GpuplanError]) -> None:
        self._script, self._calls, self._faults, self._loops = script, calls, faults, calls.loops
        self.patches = Patches()

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

    def route(self, name: str, method: Any) -> Any:
        """Call the method of the same name of the calls, with all arguments."""
        signature, replacement = inspect.signature(method), getattr(self._calls, name)

        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(model, *args, **kwargs)
            bound.apply_defaults()
            if name == "train_on_batch":
                batch_size = next(iter_specs(bound.arguments["x"])).shape[0]
                bound.arguments.update(batch_size=batch_size, epochs=1)
            with self.patches.suspended(), self._kept():
                return replacement(model, dict(bound.arguments))

        return call

    def follow_call(self, call_model: Any) -> Any:
        """Predict by the call of a model, once a step was found."""

        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_called_by_user() and args:
                if self._loops is not None:
                    shapes = (getattr(one, "shape", ()) for one in iter_specs(args[0]))
                    self._loops.batch_size = next((shape[0] for shape in shapes if shape), 1)
                if self._calls.reached and _is_prediction(args, kwargs):
                    with suppress(Exception), self.patches.suspended():
                        return self._calls.call(model, args[0])
            return call_model(model, *args, **kwargs)

        return call

    def follow_update(self, apply: Any, update: Any) -> Any:
        """Tell of each update by an optimizer of Keras; without a trace, JAX's steps cannot be told apart."""
        kind, backend = keras.optimizers.Optimizer, keras.backend.backend()

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

        return follow

    def follow_search(self, _: Any) -> Any:
        """Take over searches of KerasTuner."""

        def search(tuner: Any, *args: Any, **kwargs: Any) -> None:
            with self.patches.suspended(), self._kept():
                self._calls.search(tuner, args, kwargs)

        return search

    def _tell(self, phase: Any) -> None:
        if self._loops is not None:
            self._loops.enter(phase)

    def follow_gradient(self, require: Callable[[], None], compute: Any) -> Any:
        """Tell of a backward pass, where it is what may train."""

        def follow(one: Any, *args: Any, **kwargs: Any) -> Any:
            require()
            self._tell("backward")
            return compute(one, *args, **kwargs)

        return follow

    def follow_torch(self, _: Any) -> None:
        """Tell of each update by an optimizer of PyTorch."""
        hooks = import_module("torch.optim.optimizer")

        def finish(optimizer: Any, *given: Any) -> None:
            if self._loops is not None and self.patches.active:
                with self._kept():
                    self._loops.update(
                        optimizer, [one for group in optimizer.param_groups for one in group["params"]]
                    )

        hooks.register_optimizer_step_pre_hook(lambda *given: self._tell("update"))
        hooks.register_optimizer_step_post_hook(finish)

    def require_torch(self) -> None:
        """Raise an error unless a Keras model is trained on its PyTorch backend, and loops are followed."""
        if not any(issubclass(type(one), keras.Model) for one in gc.get_objects()):
            with self._kept():
                raise CaptureError(f"{self._script} trains a PyTorch module, not a Keras model", hint=TORCH_ONLY)
        if self._loops is None:
            self._refuse(OWN_LOOP)
        if keras.backend.backend() != "torch":
            self._refuse("PyTorch's gradients", backend="torch")

    def follow_tape(self, begin: Any) -> Any:
        """Refuse `tf.GradientTape` that may train on another backend than TensorFlow."""

        def follow(tape: Any, *args: Any, **kwargs: Any) -> None:
            if keras.backend.backend() != "tensorflow" and self._is_called_by_user():
                places = find_own_places(sys._getframe(1), (str(self._calls.own),))
                if not self._calls.reached or can_train_after(places):
                    self._refuse("`tf.GradientTape`", backend="tensorflow")
            begin(tape, *args, **kwargs)

        return follow


def _is_prediction(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a model is called with data, in no trace and with no gradient to follow."""
    tape = sys.modules.get("tensorflow.python.pywrap_tfe")
    if keras.backend.backend() == "torch" and sys.modules["torch"].is_grad_enabled():
        return False
    if len(args) != 1 or any(kwargs.values()) or (tape is not None and not tape.TFE_Py_TapeSetIsEmpty()):
        return False
    return all(
        isinstance(leaf, np.ndarray) or (not isinstance(leaf, jax.core.Tracer) and hasattr(leaf, "__array__"))
        for leaf in jax.tree.leaves(args)
    )
