"""Searches of KerasTuner as a budget: every trial trains the model of the default hyperparameters."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from importlib import import_module
from typing import Any


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
