"""Replacement of the calls with which a script trains, evaluates and predicts, and of their results."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from ...errors import GpuplanError
from ..build.fit_inputs import read_fit_inputs
from ..errors import WAY_OUT, CaptureError
from .protect_files import FileProtection
from .script_end import MetricHistory, MetricUse, UnknownMetric
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
        self._own, self._folder = own, folder
        self._protection: FileProtection | None = None
        self._calls = self._epoch = 0

    @property
    def reached(self) -> bool:
        """Whether a `fit()` was followed."""
        return self._calls > 0

    def fit(self, model: Any, arguments: dict[str, Any], *, calls: int = 1) -> Any:
        """Return the `History` of equal calls, and set it as the model's; files are protected from then on."""
        import keras

        self._protection = self._protection or FileProtection(
            self._folder, own=self._own, after_import=call_after_import
        )
        self._calls += 1
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

    def evaluate(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Return the metrics of a model: a dict, a list, or the loss alone, as Keras does."""
        last = max(0, self._epoch - 1)
        found = {name: UnknownMetric.of_epoch(name, last, self._use) for name in _name_metrics(model)}
        if arguments.get("return_dict"):
            return found
        values = list(found.values())
        return values if len(values) > 1 else values[0]

    def predict(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Return stand-ins of the predictions; ValueError where the samples cannot be counted."""
        from ..build.first_step import build_output, build_predictions

        feed = read_fit_inputs(arguments)
        if feed.samples is None:
            raise ValueError("the samples to predict cannot be counted")
        output = build_output(model, feed.x, feed.batch_size or 1)
        return build_predictions(model, output, samples=feed.samples)

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
        return
    if _waiting not in sys.meta_path:
        sys.meta_path.insert(0, _waiting)
    _waiting.functions.setdefault(name, []).append(function)


class _Finder(MetaPathFinder):
    def __init__(self) -> None:
        self.functions: dict[str, list[Callable[[Any], None]]] = {}  # by the module for which they wait

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        functions = self.functions.get(fullname)
        if functions is None:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                for function in functions:
                    function(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_waiting = _Finder()


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
