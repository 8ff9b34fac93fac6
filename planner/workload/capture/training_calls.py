"""Replacement of the calls with which a script trains, evaluates and predicts, and of their results."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from ...errors import GpuplanError
from ..build.fit_inputs import FitInputs, choose_loss, read_fit_inputs
from ..errors import WAY_OUT, BackendError, CaptureError, is_own_file
from ..keras_layers import replacing
from ..options import iter_specs
from .protect_files import FileProtection
from .script_end import MetricHistory, MetricUse, UnknownMetric
from .training_loops import TrainingLoops
from .tuner_search import SearchBudget, find_budget, stand_in_for_results


class StandIns:
    """Replacements of a script's training calls: results whose metrics are unknown."""

    def __init__(self, *, own: Path, folder: Path | None) -> None:
        """Start before the first call, at the first epoch.

        Args:
            own: Folder of the user's own files.
            folder: Folder for what the script writes after its first `fit()`; None for a temporary one.
        """
        self._use = MetricUse(str(own))
        self.own, self._folder = own, folder
        self._protection: FileProtection | None = None
        self._calls = self._epoch = 0
        self._outputs: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()

    @property
    def reached(self) -> bool:
        """Whether a `fit()` was followed."""
        return self._calls > 0

    def fit(self, model: Any, arguments: dict[str, Any], *, calls: int = 1) -> Any:
        """Return the `History` of equal calls, and set it as the model's."""
        import keras

        self.begin()
        names = _name_metrics(model)
        if arguments.get("validation_data") is not None or arguments.get("validation_split"):
            names += [f"val_{name}" for name in names]
        epochs = count_epochs(arguments)
        history = keras.callbacks.History()
        history.history = MetricHistory(names, first_epoch=self._epoch, epochs=epochs, use=self._use)
        first = arguments.get("initial_epoch") or 0
        history.epoch = list(range(first, first + epochs))
        history.params = {"verbose": 0, "epochs": first + epochs, "steps": None}
        history._model = model
        model.history = history
        self._epoch += epochs
        return history

    def begin(self) -> None:
        """Count a call that trains; files are protected from the first one on."""
        self._protection = self._protection or FileProtection(
            self._folder, own=self.own, after_import=call_after_import
        )
        self._calls += 1

    def train_on_batch(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Return the metrics of a model, as `evaluate` does."""
        self.begin()
        return StandIns.evaluate(self, model, arguments)

    def give_up_loop(self) -> None:
        """Leave a loop that runs too long to be counted."""

    def evaluate(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Return the metrics of a model: a dict, a list, or the loss alone, as Keras does."""
        last = max(0, self._epoch - 1)
        found = {name: UnknownMetric.of_epoch(name, last, self._use) for name in _name_metrics(model)}
        if arguments.get("return_dict"):
            return found
        values = list(found.values())
        return values if len(values) > 1 else values[0]

    def predict(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Return plausible predictions; ValueError where the samples cannot be counted."""
        feed = read_fit_inputs(arguments)
        if feed.samples is None:
            raise ValueError("the samples to predict cannot be counted")
        return self._stand_in(model, feed)

    def predict_on_batch(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Return plausible predictions."""
        return self.predict(model, {**arguments, "batch_size": None})

    def call(self, model: Any, inputs: Any) -> Any:
        """Return plausible predictions as tensors of the backend."""
        import keras

        values = self._stand_in(model, read_fit_inputs({"x": inputs}))
        return keras.tree.map_structure(keras.ops.convert_to_tensor, values)

    def _stand_in(self, model: Any, feed: FitInputs) -> Any:
        """Return predictions in the shape of the output: probabilities that are all equal, or zeros."""
        import keras
        import numpy as np

        from ..build.assemble import build_symbolic_output

        known, key = self._outputs.setdefault(model, {}), str(feed.x)
        if key not in known:
            output = build_symbolic_output(model, feed.x, feed.batch_size or 1)
            known[key] = output, choose_loss(model, output)

        def build(tensor: Any, loss: str) -> Any:
            shape = tensor.shape[1:]
            chances = {"sparse_categorical_crossentropy": shape and 1 / shape[-1], "binary_crossentropy": 0.5}
            return np.full((feed.samples, *shape), chances.get(loss, 0.0), str(tensor.dtype))

        return keras.tree.map_structure(build, *known[key])

    def search(self, tuner: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> SearchBudget:
        """Take a search of KerasTuner as its trials, each of the default hyperparameters."""
        budget = find_budget(tuner, arguments, options)
        self.fit(budget.model, budget.arguments, calls=budget.trials)
        stand_in_for_results(tuner, budget)
        return budget


def count_epochs(arguments: dict[str, Any]) -> int:
    """Return the epochs of a call [-]."""
    return max(1, int(arguments["epochs"]) - int(arguments.get("initial_epoch") or 0))


def _name_metrics(model: Any) -> list[str]:
    """Return the loss and the metrics given to `compile()`, which a model knows before it is built."""
    import keras

    compiled = getattr(model, "_compile_metrics", None)
    given = [getattr(compiled, name, None) for name in ("_user_metrics", "_user_weighted_metrics")]
    leaves = [leaf for leaf in keras.tree.flatten(given) if leaf is not None]
    return ["loss", *map(_get_metric_name, leaves)]


def _get_metric_name(metric: Any) -> str:
    if isinstance(metric, str):
        return metric
    return str(getattr(metric, "name", None) or getattr(metric, "__name__", "metric"))


def find_early_end(arguments: dict[str, Any]) -> str | None:
    """Return the class of a callback that may end training before the last epoch; None without one."""
    callbacks = arguments.get("callbacks") or ()
    listed = getattr(callbacks, "callbacks", callbacks)
    for callback in listed if isinstance(listed, (list, tuple)) else (listed,):
        methods = (
            getattr(vars(cls).get(name), "__code__", None) for cls in type(callback).__mro__ for name in vars(cls)
        )
        if any(code is not None and "stop_training" in code.co_names for code in methods):
            return type(callback).__name__
    return None


def call_after_import(name: str, function: Callable[[Any], None]) -> None:
    """Call a function with a top-level module once it is imported, or at once if it already is."""
    if name in sys.modules:
        function(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, function))


class _Finder(MetaPathFinder):
    def __init__(self, name: str, function: Callable[[Any], None]) -> None:
        self._name, self._function = name, function

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._function(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


OWN_LOOP = "a loop of its own"
UNCOMPILED = f"{OWN_LOOP} whose step is not under `jax.jit`"
TORCH_ONLY = (
    "gpuplan plans Keras models: build it with `keras.layers` (a `keras.layers.TorchModuleWrapper` holds a "
    "module), or take a Keras model of the same kind, as in `gpuplan estimate ResNet50`"
)


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

    for name in ("fit", "evaluate", "predict", "predict_on_batch"):
        route(name)
    call_original, loops = keras.Model.__call__, getattr(calls, "loops", None)

    def call_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = is_own_file(sys._getframe(1).f_code.co_filename, str(calls.own))
        if own and loops is not None and args:
            loops.batch_size = next((one.shape[0] for one in iter_specs(args[0]) if getattr(one, "shape", ())), 1)
        if own and calls.reached and _is_prediction(args, kwargs):
            with suppress(Exception), patches.suspended():
                return calls.call(self, args[0])
        return call_original(self, *args, **kwargs)

    patches.replace(keras.Model, "__call__", call_model)
    take_batch = inspect.signature(keras.Model.train_on_batch)

    def train_on_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = take_batch.bind(self, *args, **kwargs)
        bound.apply_defaults()
        first = next(iter_specs(bound.arguments["x"]))
        with patches.suspended(), _kept(faults):
            return calls.train_on_batch(self, {**bound.arguments, "batch_size": len(first), "epochs": 1})

    patches.replace(keras.Model, "train_on_batch", train_on_batch)
    if loops is None:
        for name in ("apply", "stateless_apply"):
            patches.replace(keras.optimizers.Optimizer, name, _build_refusal(OWN_LOOP, script, faults))
    else:
        _follow_loops(loops, patches, calls, script, faults)

    def take_over_tuner(module: Any) -> None:
        def search(self: Any, *args: Any, **kwargs: Any) -> None:
            with patches.suspended(), _kept(faults):
                calls.search(self, args, kwargs)

        patches.replace(module.Tuner, "search", search)

    def take_over_torch(module: Any) -> None:
        backward = module.Tensor.backward

        def follow(self: Any, *args: Any, **kwargs: Any) -> Any:
            _require_torch(script, faults)
            loops.enter("backward")
            return backward(self, *args, **kwargs)

        patches.replace(module.Tensor, "backward", follow)
        if loops is not None:
            hooks = module.optim.optimizer
            hooks.register_optimizer_step_pre_hook(lambda *given: loops.enter("update"))
            hooks.register_optimizer_step_post_hook(
                lambda one, *given: loops.update(one, [v for group in one.param_groups for v in group["params"]])
            )

    call_after_import("keras_tuner", take_over_tuner)
    call_after_import("torch", take_over_torch)
    return patches.undo


def _follow_loops(
    loops: TrainingLoops, patches: _Patches, calls: StandIns, script: str, faults: list[GpuplanError]
) -> None:
    """Follow updates by optimizers of Keras, and functions that are compiled."""
    import keras

    backend, optimizer = keras.backend.backend(), keras.optimizers.Optimizer
    apply, apply_stateless = optimizer.apply, optimizer.stateless_apply

    def follow_update(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        if backend == "jax" and not loops.is_tracing:
            with _kept(faults):
                raise _build_error(UNCOMPILED, script)
        loops.enter("update")
        done = apply(self, grads, trainable_variables)
        with _kept(faults):
            loops.update(self, list(trainable_variables or self._trainable_variables))
        return done

    def follow_stateless(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not loops.is_tracing:
            with _kept(faults):
                raise _build_error(UNCOMPILED, script)
        with replacing((type(self), "apply", apply)):
            done = apply_stateless(self, *args, **kwargs)
        loops.update(self, list(self._trainable_variables))
        return done

    patches.replace(optimizer, "apply", follow_update)
    patches.replace(optimizer, "stateless_apply", follow_stateless)
    how: dict[str, Any] = {"folder": str(calls.own), "has_trained": lambda: calls.reached}
    if backend == "jax":
        import jax

        from .compiled_functions import follow_jit

        patches.replace(jax, "jit", follow_jit(loops, **how))

    def take_over_tensorflow(module: Any) -> None:
        from .compiled_functions import follow_tensorflow

        tape, polymorphic = module.GradientTape, sys.modules[FUNCTIONS]
        begin, compute = tape.__init__, tape.gradient

        def follow_tape(self: Any, *args: Any, **kwargs: Any) -> None:
            if backend != "tensorflow" and is_own_file(sys._getframe(1).f_code.co_filename, str(calls.own)):
                with _kept(faults):
                    raise BackendError(f"{script} trains with `tf.GradientTape`", backend="tensorflow")
            begin(self, *args, **kwargs)

        def follow_gradient(self: Any, *args: Any, **kwargs: Any) -> Any:
            loops.enter("backward")
            return compute(self, *args, **kwargs)

        patches.replace(tape, "__init__", follow_tape)
        patches.replace(tape, "gradient", follow_gradient)
        if backend == "tensorflow":
            patches.replace(polymorphic.Function, "__call__", follow_tensorflow(loops, **how))

    call_after_import("tensorflow", take_over_tensorflow)


FUNCTIONS = "tensorflow.python.eager.polymorphic_function.polymorphic_function"


def _is_prediction(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a model is called with data, in no trace and with no gradient to follow."""
    import jax
    import numpy as np

    tape = sys.modules.get("tensorflow.python.pywrap_tfe")
    if len(args) != 1 or any(kwargs.values()) or (tape is not None and not tape.TFE_Py_TapeSetIsEmpty()):
        return False
    return all(
        isinstance(leaf, np.ndarray) or (not isinstance(leaf, jax.core.Tracer) and hasattr(leaf, "__array__"))
        for leaf in jax.tree.leaves(args)
    )


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


def _require_torch(script: str, faults: list[GpuplanError]) -> None:
    """Raise an error unless a Keras model is trained on its PyTorch backend."""
    import gc

    import keras

    with _kept(faults):
        if not any(issubclass(type(one), keras.Model) for one in gc.get_objects()):
            raise CaptureError(f"{script} trains a PyTorch module, not a Keras model", hint=TORCH_ONLY)
        if keras.backend.backend() != "torch":
            raise BackendError(f"{script} trains with PyTorch's gradients", backend="torch")
