"""Replacement of the calls with which a script trains, searches, evaluates and predicts, and of their results."""

from __future__ import annotations

import dis
import inspect
import linecache
import math
import operator
import re
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NoReturn
from weakref import WeakKeyDictionary

import keras
import numpy as np

from ..build.fit_inputs import FitInputs, build_output, build_predictions, read_fit_inputs
from ..errors import list_own_frames, name_place
from .protect_files import FileProtection
from .training_loops import TrainingLoops, end_loops


class StandIns:
    """Replacements of a script's training calls: results whose metrics are unknown."""

    loops: TrainingLoops | None = None  # where those of the script's own are followed, or timed

    def __init__(
        self,
        *,
        own: Path,
        folder: Path | None,
        use: Callable[[Any, dict[str, Any]], NoReturn] | None = None,
        fit_call: int = 0,
    ) -> None:
        """Start; `folder` takes what is written after the first `fit()`, None: a new one.

        `use` takes the model and the arguments of the call after `fit_call` others.
        """
        UnknownMetric.folder, UnknownMetric.notes = str(own), {}
        self.metric_notes = UnknownMetric.notes
        self.own, self._folder, self._use, self._fit_call = own, folder, use, fit_call
        self._protection: FileProtection | None = None
        self.count = self._epoch = 0
        self.named: dict[str, None] = {}  # accelerators of `@kinetic.run`
        self.notes: dict[str, None] = {}
        self._outputs: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()

    @property
    def reached(self) -> bool:
        """Whether a `fit()` was followed."""
        return self.count > 0

    def fit(self, model: Any, arguments: dict[str, Any], *, calls: int = 1) -> Any:
        """Return the `History` of equal calls, and set it as the model's."""
        self._use_model(model, arguments)
        self.begin()
        names = _name_metrics(model)
        if arguments.get("validation_data") is not None or arguments.get("validation_split"):
            names += [f"val_{name}" for name in names]
        epochs = count_epochs(arguments)
        history = keras.callbacks.History()
        history.history = MetricHistory(names, first_epoch=self._epoch, epochs=epochs)
        first = arguments.get("initial_epoch") or 0
        history.epoch = list(range(first, first + epochs))
        history.params = {"verbose": 0, "epochs": first + epochs, "steps": None}
        history._model = model
        model.history = history
        self._epoch += epochs
        return history

    def begin(self) -> None:
        """Count a call that trains; files are protected from the first one on."""
        self._protection = self._protection or FileProtection(self._folder, own=self.own)
        self.count += 1

    def _use_model(self, model: Any, arguments: dict[str, Any]) -> None:
        if self._use is not None and self.count == self._fit_call:
            self._use(model, arguments)

    def train_on_batch(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Return the metrics of a model, as `evaluate` does."""
        self._use_model(model, arguments)
        if self._use is not None:
            end_loops()
        self.begin()
        return StandIns.evaluate(self, model, arguments)

    def give_up_loop(self) -> None:
        """Leave a loop that runs too long to be counted."""

    def evaluate(self, model: Any, arguments: dict[str, Any]) -> Any:
        """Return the metrics of a model: a dict, a list, or the loss alone, as Keras does."""
        last = max(0, self._epoch - 1)
        found = {name: UnknownMetric.of_epoch(name, last) for name in _name_metrics(model)}
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

    def call(self, model: Any, inputs: Any) -> Any:
        """Return plausible predictions as tensors of the backend."""
        values = self._stand_in(model, read_fit_inputs({"x": inputs}))
        return keras.tree.map_structure(keras.ops.convert_to_tensor, values)

    def _stand_in(self, model: Any, feed: FitInputs) -> Any:
        known, key = self._outputs.setdefault(model, {}), str(feed.x)
        if key not in known:
            known[key] = build_output(model, feed.x, feed.batch_size or 1)
        return build_predictions(model, known[key], samples=feed.samples or 1)

    def note(self, note: str) -> None:
        """Keep an assumption for the user."""
        self.notes[note] = None

    def search(self, tuner: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Take a search of KerasTuner, given the arguments of `fit()`, as its trials, and note so.

        Each trains the model of the default hyperparameters, which the tuner then returns as the best.
        """
        defaults = import_module("keras_tuner").HyperParameters()
        model = tuner.hypermodel.build(defaults)
        bound = inspect.signature(keras.Model.fit).bind(model, *arguments, **options)
        bound.apply_defaults()
        longest = getattr(tuner.oracle, "max_epochs", None)  # of Hyperband
        trials = int(getattr(tuner.oracle, "max_trials", None) or 1)
        if longest is not None:  # max_epochs x log(max_epochs, factor)^2 epochs an iteration (KerasTuner's pages)
            bound.arguments["epochs"] = int(longest)
            rounds = math.log(max(2, longest), getattr(tuner.oracle, "factor", 3)) ** 2
            trials = max(1, math.ceil(rounds * int(getattr(tuner.oracle, "hyperband_iterations", 1))))
        trials *= int(getattr(tuner, "executions_per_trial", None) or 1)
        self.fit(model, dict(bound.arguments), calls=trials)
        tuner.get_best_models = lambda num_models=1: [tuner.hypermodel.build(defaults) for _ in range(num_models)]
        tuner.get_best_hyperparameters = lambda num_trials=1: [defaults] * num_trials
        tuner.results_summary = tuner.search_space_summary = lambda *args, **kwargs: None
        self.note(
            f"the KerasTuner search is planned as its budget: {trials} trials x {bound.arguments['epochs']} "
            "epochs of the model with default hyperparameters; other values take more or less time"
        )


def count_epochs(arguments: dict[str, Any]) -> int:
    """Return the epochs of a call [-]."""
    return max(1, int(arguments["epochs"]) - int(arguments.get("initial_epoch") or 0))


def _name_metrics(model: Any) -> list[str]:
    """Return the loss and the metrics given to `compile()`, which a model knows before it is built."""
    compiled = getattr(model, "_compile_metrics", None)
    given = [getattr(compiled, name, None) for name in ("_user_metrics", "_user_weighted_metrics")]
    leaves = [leaf for leaf in keras.tree.flatten(given) if leaf is not None]
    names = (
        leaf if isinstance(leaf, str) else getattr(leaf, "name", None) or getattr(leaf, "__name__", "metric")
        for leaf in leaves
    )
    return ["loss", *map(str, names)]


def find_early_end(arguments: dict[str, Any]) -> str | None:
    """Return the class of a callback that may end training before the last epoch; None without one."""
    callbacks = arguments.get("callbacks") or ()
    listed = getattr(callbacks, "callbacks", callbacks)
    for callback in listed if isinstance(listed, (list, tuple)) else (listed,):
        codes = (getattr(one, "__code__", None) for cls in type(callback).__mro__ for one in vars(cls).values())
        if any(code is not None and "stop_training" in code.co_names for code in codes):
            return type(callback).__name__
    return None


# --- metrics, which are unknown -------------------------------------------------------------------------------

# Parts of the names of metrics that grow as training goes on; all others fall.
GROWING = ("acc", "auc", "precision", "recall", "f1", "iou", "dice", "score", "r2", "psnr", "ssim")
CHOICE = re.compile(r"arg(min|max|sort)|\.index\(|sorted\(|key=")  # of an epoch or a model
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
ARITHMETIC = ("add", "sub", "mul", "truediv", "pow", "mod", "floordiv")


class UnknownMetric(float):
    """A metric of unknown value, as a number that gets better from epoch to epoch."""

    folder: ClassVar[str] = ""  # of the user's own files
    notes: ClassVar[dict[str, str]] = {}  # on the lines whose result depends on a metric

    @classmethod
    def of_epoch(cls, name: str, epoch: int) -> UnknownMetric:
        """Return the stand-in of a metric after some epochs of all calls; its name tells whether it grows."""
        falling = 1.0 / (epoch + 2.0)
        return cls(1.0 - falling if any(one in name.lower() for one in GROWING) else falling)

    def _record(self, outcome: bool) -> None:
        """Record the outcome of a comparison or truth test at the current line of the user's files."""
        frames = list_own_frames(sys._getframe(1), (self.folder,))
        if not frames:
            return
        frame, _ = frames[-1]
        place = name_place(frame.f_code.co_filename, frame.f_lineno)
        if dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(("COMPARE", "POP_JUMP", "UNARY_NOT")):
            self.notes[place] = (
                f"{place} depends on a metric, which is unknown: the condition was taken as "
                f"{'true' if outcome else 'false'}, and may turn out otherwise"
            )
        elif CHOICE.search(linecache.getline(frame.f_code.co_filename, frame.f_lineno)):
            chosen = "which is unknown: the last epoch was assumed to be the best"
            self.notes[place] = f"{place} chooses by a metric, {chosen}"

    def __format__(self, spec: str) -> str:
        return "unknown"

    def __repr__(self) -> str:
        return "unknown"

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (float(self),)

    __str__ = __repr__
    __hash__ = float.__hash__


def _build_method(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that records the result of one of `float` if it is a comparison, and else as unknown."""

    def method(self: UnknownMetric, *others: Any) -> Any:
        found = compute(float(self), *others)
        if isinstance(found, bool):
            self._record(found)
        return UnknownMetric(found) if isinstance(found, float) else found

    return method


_OPERATORS = (*COMPARISONS, *ARITHMETIC, *(f"r{name}" for name in ARITHMETIC), "neg", "abs", "bool", "round")
_METHODS: dict[str, Callable[..., Any]] = {f"__{name}__": getattr(float, f"__{name}__") for name in _OPERATORS}
# NumPy calls the last four on arrays of objects.
_METHODS |= {"item": float, "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "conjugate": operator.pos}
for _name, _function in _METHODS.items():
    setattr(UnknownMetric, _name, _build_method(_function))


class MetricList(list[Any]):
    """Values of a metric by epoch; NumPy sees objects, so that its comparisons are recorded too."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        array = np.empty(len(self), dtype=object)
        array[:] = list(self)
        return array if dtype is None else array.astype(dtype)


class MetricHistory(dict[str, MetricList]):
    """`History.history` with stand-ins; a metric that is asked for by a name not foreseen exists too."""

    def __init__(self, names: Iterable[str], *, first_epoch: int, epochs: int) -> None:
        self._range = range(first_epoch, first_epoch + epochs)
        super().__init__()
        for name in names:
            self.__missing__(name)

    def __missing__(self, name: str) -> MetricList:
        self[name] = MetricList(UnknownMetric.of_epoch(str(name), epoch) for epoch in self._range)
        return self[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
