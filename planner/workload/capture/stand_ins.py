"""Training calls of a script that neither train nor compute, and their results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..build.fit_inputs import read_fit_inputs
from .tuner_search import SearchBudget, find_budget, stand_in_for_results
from .unknown_metrics import MetricHistory, MetricUse, UnknownMetric
from .written_files import make_scratch, protect_files


class StandIns:
    """What happens at the training calls of a script: results whose metrics are unknown."""

    def __init__(self, *, own: Path, folder: Path | None) -> None:
        """Start before the first call, at the first epoch.

        Args:
            own: Folder of the user's own files.
            folder: Folder for what the script writes after its first `fit()`; None for a temporary one.
        """
        self._use = MetricUse(str(own))
        self._folder = folder
        self._calls = self._epoch = 0

    @property
    def reached(self) -> bool:
        """Whether a `fit()` was followed."""
        return self._calls > 0

    def fit(self, model: Any, arguments: dict[str, Any], *, calls: int = 1) -> Any:
        """Return the `History` of equal calls, and set it as the model's; files are protected from then on."""
        import keras

        if not self.reached:
            protect_files(make_scratch(self._folder))
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
        """Return zeros in the shape of the predictions; ValueError where the samples cannot be counted."""
        import keras
        import numpy as np

        from ..build.assemble import build_symbolic_output

        feed = read_fit_inputs(arguments)
        if feed.samples is None:
            raise ValueError("the samples to predict cannot be counted")
        output = build_symbolic_output(model, feed.x, feed.batch_size or 1)
        return keras.tree.map_structure(
            lambda tensor: np.zeros((feed.samples, *tensor.shape[1:]), str(tensor.dtype)), output
        )

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
            getattr(vars(cls).get(name), "__code__", None)
            for cls in type(callback).__mro__
            for name in vars(cls)
        )
        if any(code is not None and "stop_training" in code.co_names for code in methods):
            return type(callback).__name__
    return None
