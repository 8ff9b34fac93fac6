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
    replace("keras", "Model.__call__", followed.call)
    apply = keras.optimizers.Optimizer.apply
    for name in ("stateless_apply", "apply"):  # the first one calls the other, as it is before
        replace("keras", f"optimizers.Optimizer.{name}", partial(followed.update, apply))
    replace("keras_tuner", "Tuner.search", followed.search)
    replace("torch", "Tensor.backward", followed.compute_torch_gradients)
    replace("tensorflow", "GradientTape.__init__", followed.begin_tape)
    replace("tensorflow", "GradientTape.gradient", followed.compute_gradients)
    if loops is not None:
        call_after_import("torch", followed.follow_torch)
        if backend == "jax":
            replace("jax", "jit", partial(follow_jit, loops))
        if backend == "tensorflow":
            replace(FUNCTIONS, "Function.__call__", partial(follow_tensorflow, loops))
    return followed.patches.undo


class _Followed:
    """A script that is followed: what is called in place of its calls, with the function that it calls first."""

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
        return is_own_file(sys._getframe(3).f_code.co_filename, str(self._calls.own))

    def route(self, name: str, method: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the method of the same name of the calls, with all arguments."""
        bound = inspect.signature(method).bind(model, *args, **kwargs)
        bound.apply_defaults()
        if name == "train_on_batch":
            batch_size = next(iter_specs(bound.arguments["x"])).shape[0]
            bound.arguments.update(batch_size=batch_size, epochs=1)
        with self.patches.suspended(), self._kept():
            return getattr(self._calls, name)(model, dict(bound.arguments))

    def call(self, call_model: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Predict by the call of a model, once a step was found."""
        if self._is_called_by_user() and args:
            if self._loops is not None:
                shapes = (getattr(one, "shape", ()) for one in iter_specs(args[0]))
                self._loops.batch_size = next((shape[0] for shape in shapes if shape), 1)
            if self._calls.reached and _is_prediction(args, kwargs):
                with suppress(Exception), self.patches.suspended():
                    return self._calls.call(model, args[0])
        return call_model(model, *args, **kwargs)

    def update(self, apply: Any, update: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Tell of each update by an optimizer of Keras; without a trace, JAX's steps cannot be told apart."""
        if self._loops is None or (keras.backend.backend() == "jax" and not self._loops.is_tracing):
            self._refuse(OWN_LOOP if self._loops is None else UNCOMPILED)
            return None
        self._loops.enter("update")
        with replacing((keras.optimizers.Optimizer, "apply", apply)):
            done = update(optimizer, *args, **kwargs)
        with self._kept():
            self._loops.update(optimizer, list(optimizer._trainable_variables))
        return done

    def search(self, _: Any, tuner: Any, *args: Any, **kwargs: Any) -> None:
        """Take over a search of KerasTuner."""
        with self.patches.suspended(), self._kept():
            self._calls.search(tuner, args, kwargs)

    def compute_gradients(self, compute: Any, one: Any, *args: Any, **kwargs: Any) -> Any:
        """Tell of a backward pass."""
        if self._loops is not None:
            self._loops.enter("backward")
        return compute(one, *args, **kwargs)

    def follow_torch(self, _: Any) -> None:
        """Tell of each update by an optimizer of PyTorch."""
        hooks, loops = import_module("torch.optim.optimizer"), self._loops

        def finish(optimizer: Any, *given: Any) -> None:
            if loops is not None and self.patches.active:
                variables = [one for group in optimizer.param_groups for one in group["params"]]
                with self._kept():
                    loops.update(optimizer, variables)

        hooks.register_optimizer_step_pre_hook(lambda *given: loops and loops.enter("update"))
        hooks.register_optimizer_step_post_hook(finish)

    def compute_torch_gradients(self, compute: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
        """Tell of a backward pass of a Keras model on its PyTorch backend, if loops are followed."""
        if not any(issubclass(type(one), keras.Model) for one in gc.get_objects()):
            with self._kept():
                raise CaptureError(f"{self._script} trains a PyTorch module, not a Keras model", hint=TORCH_ONLY)
        if self._loops is None:
            self._refuse(OWN_LOOP)
        if keras.backend.backend() != "torch":
            self._refuse("PyTorch's gradients", backend="torch")
        return self.compute_gradients(compute, loss, *args, **kwargs)

    def begin_tape(self, begin: Any, tape: Any, *args: Any, **kwargs: Any) -> None:
        """Refuse `tf.GradientTape` that may train on another backend than TensorFlow."""
        if keras.backend.backend() != "tensorflow" and self._is_called_by_user():
            places = find_own_places(sys._getframe(2), (str(self._calls.own),))
            if not self._calls.reached or can_train_after(places):
                self._refuse("`tf.GradientTape`", backend="tensorflow")
        begin(tape, *args, **kwargs)


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
