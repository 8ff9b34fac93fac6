"""Replacement of the calls with which a script trains, searches, evaluates and predicts, and of their results."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from ..build.fit_inputs import FitInputs, read_fit_inputs
from .protect_files import FileProtection
from .script_end import MetricHistory, MetricUse, UnknownMetric
from .training_loops import TrainingLoops


class StandIns:
    """Replacements of a script's training calls: results whose metrics are unknown."""

    loops: TrainingLoops | None = None  # where those of the script's own are followed

    def __init__(self, *, own: Path, folder: Path | None) -> None:
        """Start before the first call, at the first epoch.

        Args:
            own: Folder of the user's own files.
            folder: Folder for what the script writes after its first `fit()`; None for a temporary one.
        """
        self._use = MetricUse(str(own))
        self.own, self._folder = own, folder
        self._protection: FileProtection | None = None
        self.count = self._epoch = 0
        self._outputs: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()

    @property
    def reached(self) -> bool:
        """Whether a `fit()` was followed."""
        return self.count > 0

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
        self.count += 1

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
        """Return predictions in the shape of the output."""
        from ..build.first_step import build_output, build_predictions

        known, key = self._outputs.setdefault(model, {}), str(feed.x)
        if key not in known:
            known[key] = build_output(model, feed.x, feed.batch_size or 1)
        return build_predictions(model, known[key], samples=feed.samples or 1)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBudget:
    """Work of a search.

    Args:
        model: Model of the default hyperparameters.
        hyperparameters: The default hyperparameters.
        arguments: Arguments of each trial's `fit()` by name.
        trials: Trainings [-].
        note: Sentence for the user.
    """

    model: Any
    hyperparameters: Any
    arguments: dict[str, Any]
    trials: int
    note: str


def find_budget(tuner: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> SearchBudget:
    """Return the budget of a search.

    Args:
        tuner: Tuner of KerasTuner.
        arguments, options: Arguments of `search()`, which are those of `fit()`.
    """
    import keras

    hyperparameters = import_module("keras_tuner").HyperParameters()
    model = tuner.hypermodel.build(hyperparameters)
    bound = inspect.signature(keras.Model.fit).bind(model, *arguments, **options)
    bound.apply_defaults()
    given = dict(bound.arguments)
    trials = _count_trials(tuner.oracle)
    longest = getattr(tuner.oracle, "max_epochs", None)  # of Hyperband
    if longest is not None:
        given["epochs"] = int(longest)
    trials *= int(getattr(tuner, "executions_per_trial", None) or 1)
    note = (
        f"the KerasTuner search is planned as its budget: {trials} trials x {given['epochs']} epochs of the model "
        "with default hyperparameters; other values take more or less time"
    )
    return SearchBudget(model=model, hyperparameters=hyperparameters, arguments=given, trials=trials, note=note)


def _count_trials(oracle: Any) -> int:
    """Return the trainings of all epochs that a search amounts to [-].

    Hyperband: max_epochs x log(max_epochs, factor)^2 epochs an iteration, by KerasTuner's documentation.
    """
    longest = getattr(oracle, "max_epochs", None)
    if longest is None:
        return int(getattr(oracle, "max_trials", None) or 1)
    rounds = math.log(max(2, longest), getattr(oracle, "factor", 3)) ** 2
    return max(1, math.ceil(rounds * int(getattr(oracle, "hyperband_iterations", 1))))


def stand_in_for_results(tuner: Any, budget: SearchBudget) -> None:
    """Let a tuner that searched nothing return the default hyperparameters and their models."""
    hyperparameters = budget.hyperparameters
    tuner.get_best_models = lambda num_models=1: [
        tuner.hypermodel.build(hyperparameters) for _ in range(num_models)
    ]
    tuner.get_best_hyperparameters = lambda num_trials=1: [hyperparameters] * num_trials
    tuner.results_summary = tuner.search_space_summary = lambda *args, **kwargs: None
