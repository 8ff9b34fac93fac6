"""Following of an unmodified script in the child process: its run, what its training calls do, and the answer."""

from __future__ import annotations

import builtins
import gc
import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial, wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import jax
import keras
import numpy as np

from ...errors import GpuplanError
from ..backend import LAST_TRACE
from ..errors import (
    WAY_OUT,
    BackendError,
    CaptureError,
    build_user_code_error,
    describe_error,
    find_own_places,
    find_user_line,
    is_own_file,
    name_place,
)
from ..keras_layers import replacing
from ..options import iter_specs
from ..script_text import NOTEBOOK, can_train_after, read_source, suggest_builders
from .patches import around, call_after_import, replace_after_import
from .phases import EarlyEnd
from .training_calls import StandIns
from .training_loops import (
    LOOP,
    ForLoop,
    LoopGivenUpError,
    TimedLoop,
    TrainingLoops,
    compile_with_loops,
    follow_jit,
    follow_tensorflow,
)

PLACEHOLDER = "pretrained.weights.h5"


def follow_script(path: Path, *, text: str, argv: Sequence[str], calls: StandIns) -> EarlyEnd | None:
    """Run a script, named `text` by the user, as `python script.py argv…` would, with its training calls replaced.

    Return how it ended early after its first `fit()`, None if it did not; GpuplanError if it came to none.
    """
    replaced = ReplacedCalls(path.name, calls)
    for module in (keras.utils, keras.src.utils, keras.src.utils.model_visualization):
        vars(module).update(plot_model=_do_nothing)
    folders = (str(path.parent),)
    error: BaseException = SystemExit(0)  # as at the end of its text
    try:
        _run_as_main(path, text=text, argv=argv, named=calls.named)
    except (Exception, SystemExit) as raised:
        error = raised
    except LoopGivenUpError as raised:
        calls.give_up_loop()
        places = find_own_places(raised, folders)
        why = f"a loop at {name_place(*places[-1])}, which runs for long"
        return EarlyEnd(why, can_train_after(places, is_loop_left=True))
    finally:
        replaced.active = False
    for fault in replaced.faults:  # though the script caught it; after a `fit()`, what another backend may mend
        if not calls.reached or isinstance(fault, BackendError):
            raise fault
    if not calls.reached:
        if isinstance(error, SystemExit):
            raise _build_end_error(text, path, end=error, argv=argv) from error
        if isinstance(error, GpuplanError):
            raise error
        raise build_user_code_error(error, name=text, doing="failed before fit()", folders=folders) from error
    code = error.code if isinstance(error, SystemExit) else ""
    if code in (0, None):
        return None
    why = f"it ended with exit code {code}" if code else _describe_failure(error, text, folders)
    return EarlyEnd(why, can_train_after(find_own_places(error, folders)))


def _describe_failure(error: BaseException, text: str, folders: Sequence[str]) -> str:
    """Return how a script failed; BackendError where the rest of it may run on another backend."""
    fault = build_user_code_error(error, name=text, doing="failed", folders=folders)
    if isinstance(fault, BackendError) and LAST_TRACE not in os.environ:
        fault.reached = True
        raise fault from error
    line = find_user_line(error, folders)
    return f"it failed{f' at {line}' if line else ''} ({describe_error(error)})"


def _run_as_main(path: Path, *, text: str, argv: Sequence[str], named: dict[str, None]) -> None:
    module = ModuleType("__main__")
    vars(module).update(__file__=str(path), __builtins__=builtins)
    sys.modules["__main__"] = module
    sys.argv = [text, *argv]
    sys.path.insert(0, str(path.parent))
    if find_spec("kinetic") is None:  # a module with what scripts use of it
        kinetic = ModuleType("kinetic")
        vars(kinetic).update(dict.fromkeys(("attach", "attach_batch", "list_jobs"), _do_nothing))
        sys.modules["kinetic"] = kinetic
    call_after_import("kinetic", partial(_follow_kinetic, named=named))
    source: str | bytes = path.read_bytes()
    vars(module)[LOOP] = ForLoop
    if path.suffix == NOTEBOOK:
        source = read_source(path)
        linecache.cache[str(path)] = (len(source), None, source.splitlines(keepends=True), str(path))
        vars(module).update(display=_do_nothing, get_ipython=_do_nothing)
    exec(compile_with_loops(source, str(path)), vars(module))  # the user's script, as requested


def _do_nothing(*args: Any, **kwargs: Any) -> None:
    """Show nothing."""


def _follow_kinetic(module: Any, named: dict[str, None]) -> None:
    """Let functions under `@kinetic.run` run here, and keep the accelerators that they name; nothing is sent."""

    def run(accelerator: Any = "tpu-v5e-1", *args: Any, spot: bool = False, **options: Any) -> Any:
        def decorate(function: Any) -> Any:
            @wraps(function)
            def call(*given: Any, **kept: Any) -> Any:
                named[f"{accelerator}:spot" if spot else str(accelerator)] = None
                return function(*given, **kept)

            def call_async(*given: Any, **kept: Any) -> Any:
                found = call(*given, **kept)
                return SimpleNamespace(job_id="", result=lambda *how, **more: found)

            def call_for_each(inputs: Any, **how: Any) -> Any:
                listed = [one if isinstance(one, dict | list | tuple) else (one,) for one in inputs]
                found = [call(**one) if isinstance(one, dict) else call(*one) for one in listed]
                return SimpleNamespace(wait=_do_nothing, results=lambda **how: found)

            vars(call).update(run_async=call_async, run_async_map=call_for_each)
            return call

        return decorate

    module.run = run
    module.Data = lambda *args, **options: args[0] if args else None


def _build_end_error(text: str, path: Path, *, end: SystemExit, argv: Sequence[str]) -> CaptureError:
    if end.code not in (0, None):
        # Argparse says what it lacks as it ends a script; an option gets a word for its value.
        frames = (frame for frame, _ in traceback.walk_tb(end.__traceback__) if frame.f_code.co_name == "error")
        said = next((str(frame.f_locals.get("message")) for frame in frames), "")
        asked = said.partition("arguments are required: ")[2].split(", ")
        names = [name.rpartition("/")[2] for name in asked if name]
        lacking = [f"{name} {name.lstrip('-').upper()}" if name[0] == "-" else name.upper() for name in names]
        needed = " ".join([*argv, *(lacking or ["--data folder"])])
        hint = f"pass its arguments after `--`, as in `gpuplan estimate {text} -- {needed}`"
        given = f" with the arguments {list(argv)}" if argv else " without arguments"
        return CaptureError(f"{text} ended (exit {end.code}) before fit(), run{given}", hint=hint)
    hint = f"if it trains otherwise, write a function that returns its model, and type `{path.name}:FUNCTION`"
    if builders := suggest_builders(text, path):
        hint = f"to plan a model that it defines, type {builders}"
    return CaptureError(f"{text} ended without calling fit()", hint=hint)


def skip_pretrained_weights() -> Callable[[], bool]:
    """Let Keras skip pretrained weights, whose values cost no time; return what tells whether any were."""
    skipped: list[object] = []

    def get_file(get: Any, fname: Any = None, origin: Any = None, *args: Any, **kwargs: Any) -> Any:
        if "keras-applications" not in str(origin):
            return get(fname, origin, *args, **kwargs)
        skipped.append(fname)
        return os.path.join(os.sep, "nowhere", PLACEHOLDER)

    replace_after_import("keras.src.utils.file_utils", "get_file", around(get_file))
    keras.Model.load_weights = lambda model, *args, **kwargs: skipped.append(args)
    return lambda: bool(skipped)


def follow_one_fit(
    path: Path,
    use: Callable[[Any, dict[str, Any]], NoReturn],
    *,
    text: str,
    argv: Sequence[str],
    fit_call: int,
    folder: Path | None = None,
    loop: TimedLoop | None = None,
) -> NoReturn:
    """Run a script until the training call after `fit_call` others; CaptureError if it ended before.

    `use` takes its model and arguments, and must end the process or raise; `loop` times the script's own.
    """
    calls = StandIns(own=path.parent, folder=folder, use=use, fit_call=fit_call)
    if loop is not None:
        calls.loops, loop.begin = loop, calls.begin
    follow_script(path, text=text, argv=argv, calls=calls)
    message = f"{text} called fit() {calls.count} times, fewer than when it was first traced"
    raise CaptureError(message, hint="run the command again")


OWN_LOOP = "a loop of its own"
UNCOMPILED = f"{OWN_LOOP} whose step is not under `jax.jit`"
TORCH_ONLY = (
    "gpuplan plans Keras models: build it with `keras.layers` (a `keras.layers.TorchModuleWrapper` holds a "
    "module), or take a Keras model of the same kind, as in `gpuplan estimate ResNet50`"
)
FUNCTIONS = "tensorflow.python.eager.polymorphic_function.polymorphic_function"


class ReplacedCalls:
    """Replacements of the calls of a script that train, with the function that each calls first; while active."""

    def __init__(self, script: str, calls: StandIns) -> None:
        self._script, self._calls, self._loops, backend = script, calls, calls.loops, keras.backend.backend()
        self.faults: list[GpuplanError] = []  # raised in the script, which may catch them
        self.active = True
        for name in ("fit", "evaluate", "predict", "train_on_batch"):
            self._replace("keras", f"Model.{name}", partial(self._route, name))
        self._replace("keras", "Model.predict_on_batch", partial(self._route, "predict"))
        self._replace("keras", "Model.__call__", self._call)
        for name in ("stateless_apply", "apply"):
            self._replace("keras", f"optimizers.Optimizer.{name}", self._update)
        self._replace("keras_tuner", "Tuner.search", self._search)
        self._replace("torch", "Tensor.backward", self._compute_torch_gradients)
        self._replace("tensorflow", "GradientTape.__init__", self._begin_tape)
        self._replace("tensorflow", "GradientTape.gradient", self._compute_gradients)
        if self._loops is not None:
            call_after_import("torch", partial(self._follow_torch, self._loops))
            if backend == "jax":
                self._replace("jax", "jit", partial(follow_jit, self._loops))
            if backend == "tensorflow":
                self._replace(FUNCTIONS, "Function.__call__", partial(follow_tensorflow, self._loops))

    def _replace(self, module: str, path: str, call: Callable[..., Any]) -> None:
        def call_if_active(original: Any, *args: Any, **kwargs: Any) -> Any:
            return call(original, *args, **kwargs) if self.active else original(*args, **kwargs)

        replace_after_import(module, path, around(call_if_active))

    def _suspended(self) -> AbstractContextManager[None]:
        return replacing((self, "active", False))

    @contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except GpuplanError as error:
            self.faults.append(error)
            raise

    def _refuse(self, how: str, *, backend: str | None = None) -> None:
        with self._kept():
            if backend is not None:
                raise BackendError(f"{self._script} trains with {how}", backend=backend)
            message = f"{self._script} trains with {how}, not with fit()"
            raise CaptureError(message, hint=WAY_OUT.format(name=self._script))

    def _is_called_by_user(self) -> bool:
        return is_own_file(sys._getframe(4).f_code.co_filename, str(self._calls.own))

    def _route(self, name: str, method: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the method of the same name of the calls, with all arguments."""
        bound = inspect.signature(method).bind(model, *args, **kwargs)
        bound.apply_defaults()
        if name == "train_on_batch":
            batch_size = next(iter_specs(bound.arguments["x"])).shape[0]
            bound.arguments.update(batch_size=batch_size, epochs=1)
        with self._suspended(), self._kept():
            return getattr(self._calls, name)(model, dict(bound.arguments))

    def _call(self, call_model: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Predict by the call of a model, once a step was found."""
        if self._is_called_by_user() and args:
            if self._loops is not None:
                shapes = (getattr(one, "shape", ()) for one in iter_specs(args[0]))
                self._loops.batch_size = next((shape[0] for shape in shapes if shape), 1)
            if self._calls.reached and _is_prediction(args, kwargs):
                with suppress(Exception), self._suspended():
                    return self._calls.call(model, args[0])
        return call_model(model, *args, **kwargs)

    def _update(self, update: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Tell of each update by an optimizer of Keras; without a trace, JAX's steps cannot be told apart."""
        if self._loops is None or (keras.backend.backend() == "jax" and not self._loops.is_tracing):
            self._refuse(OWN_LOOP if self._loops is None else UNCOMPILED)
            return None
        self._loops.enter("update")
        with self._suspended():  # one calls the other
            done = update(optimizer, *args, **kwargs)
        with self._kept():
            self._loops.update(optimizer, list(optimizer._trainable_variables))
        return done

    def _search(self, _: Any, tuner: Any, *args: Any, **kwargs: Any) -> None:
        with self._suspended(), self._kept():
            self._calls.search(tuner, args, kwargs)

    def _compute_gradients(self, compute: Any, one: Any, *args: Any, **kwargs: Any) -> Any:
        if self._loops is not None:
            self._loops.enter("backward")
        return compute(one, *args, **kwargs)

    def _follow_torch(self, loops: TrainingLoops, _: Any) -> None:
        """Tell of each update by an optimizer of PyTorch."""
        hooks = import_module("torch.optim.optimizer")

        def finish(optimizer: Any, *given: Any) -> None:
            if self.active:
                variables = [one for group in optimizer.param_groups for one in group["params"]]
                with self._kept():
                    loops.update(optimizer, variables)

        hooks.register_optimizer_step_pre_hook(lambda *given: loops.enter("update"))
        hooks.register_optimizer_step_post_hook(finish)

    def _compute_torch_gradients(self, compute: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
        """Tell of a backward pass of a Keras model on its PyTorch backend, if loops are followed."""
        if not any(issubclass(type(one), keras.Model) for one in gc.get_objects()):
            with self._kept():
                raise CaptureError(f"{self._script} trains a PyTorch module, not a Keras model", hint=TORCH_ONLY)
        if self._loops is None:
            self._refuse(OWN_LOOP)
        if keras.backend.backend() != "torch":
            self._refuse("PyTorch's gradients", backend="torch")
        return self._compute_gradients(compute, loss, *args, **kwargs)

    def _begin_tape(self, begin: Any, tape: Any, *args: Any, **kwargs: Any) -> None:
        """Refuse `tf.GradientTape` that may train on another backend than TensorFlow."""
        if keras.backend.backend() != "tensorflow" and self._is_called_by_user():
            places = find_own_places(sys._getframe(1), (str(self._calls.own),))
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
