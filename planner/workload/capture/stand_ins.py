"""Results of `fit()`, `evaluate()` and `predict()` of a model that neither trains nor computes."""

from __future__ import annotations

from typing import Any

from ..build.fit_inputs import FitInputs
from .unknown_metrics import MetricHistory, MetricUse, UnknownMetric


class StandIns:
    """Maker of results whose metrics are unknown; the epochs of all calls are counted."""

    def __init__(self, use: MetricUse) -> None:
        """Start at the first epoch.

        Args:
            use: Recorder of the lines that depend on a metric.
        """
        self._use = use
        self._epoch = 0

    def fit(self, model: Any, arguments: dict[str, Any], *, epochs: int) -> Any:
        """Return the `History` of a call, and set it as the model's."""
        import keras

        names = _name_metrics(model)
        if arguments.get("validation_data") is not None or arguments.get("validation_split"):
            names += [f"val_{name}" for name in names]
        history = keras.callbacks.History()
        history.history = MetricHistory(names, first_epoch=self._epoch, epochs=epochs, use=self._use)
        first = arguments.get("initial_epoch") or 0
        history.epoch = list(range(first, first + epochs))
        history.params = {"verbose": 0, "epochs": first + epochs, "steps": None}
        history._model = model
        model.history = history
        self._epoch += epochs
        return history

    def evaluate(self, model: Any, *, as_dict: bool) -> Any:
        """Return the metrics of a model: a dict, a list, or the loss alone, as Keras does."""
        last = max(0, self._epoch - 1)
        found = {name: UnknownMetric.of_epoch(name, last, self._use) for name in _name_metrics(model)}
        if as_dict:
            return found
        values = list(found.values())
        return values if len(values) > 1 else values[0]

    def predict(self, model: Any, feed: FitInputs) -> Any:
        """Return zeros in the shape of the predictions; ValueError where the samples cannot be counted."""
        import keras
        import numpy as np

        from ..build.assemble import build_symbolic_output

        if feed.samples is None:
            raise ValueError("the samples to predict cannot be counted")
        output = build_symbolic_output(model, feed.x, feed.batch_size or 1)
        return keras.tree.map_structure(
            lambda tensor: np.zeros((feed.samples, *tensor.shape[1:]), str(tensor.dtype)), output
        )


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
