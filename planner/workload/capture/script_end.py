"""Metrics of a script whose `fit()` trained nothing: unknown."""

from __future__ import annotations

import dis
import linecache
import math
import operator
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import find_own_frame, name_place

# Parts of the names of metrics that grow as training goes on; all others fall.
GROWING = ("acc", "auc", "precision", "recall", "f1", "iou", "dice", "score", "r2", "psnr", "ssim")
CHOICE = re.compile(r"arg(min|max|sort)|\.index\(|sorted\(|key=")  # of an epoch or a model
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
ARITHMETIC = ("add", "sub", "mul", "truediv", "pow", "mod", "floordiv")


class MetricUse:
    """Recorder of the lines whose result depends on an unknown metric."""

    def __init__(self, folder: str) -> None:
        """Start without records.

        Args:
            folder: Folder of the user's own files.
        """
        self._folder = folder
        self.notes: dict[str, str] = {}

    def record(self, outcome: bool) -> None:
        """Record the outcome of a comparison or truth test at the current line of the user's files."""
        frame = find_own_frame(sys._getframe(1), self._folder)
        if frame is None:
            return
        place = name_place(frame.f_code.co_filename, frame.f_lineno)
        if dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(("COMPARE", "POP_JUMP", "UNARY_NOT")):
            self.notes[place] = (
                f"{place} depends on a metric, which is unknown: the condition was taken as "
                f"{'true' if outcome else 'false'}, and may turn out otherwise"
            )
        elif CHOICE.search(linecache.getline(frame.f_code.co_filename, frame.f_lineno)):
            self.notes[place] = (
                f"{place} chooses by a metric, which is unknown: the last epoch was assumed to be the best"
            )


class UnknownMetric(float):
    """A metric of unknown value, as a number that gets better from epoch to epoch."""

    use: MetricUse

    @classmethod
    def of_epoch(cls, name: str, epoch: int, use: MetricUse) -> UnknownMetric:
        """Return the stand-in of a metric after an epoch.

        Args:
            name: Name of the metric, which tells whether it grows or falls.
            epoch: Epochs of all calls before it [-].
            use: Recorder.
        """
        falling = 1.0 / (epoch + 2.0)
        grows = any(part in name.lower() for part in GROWING)
        return cls.known_as(1.0 - falling if grows else falling, use)

    @classmethod
    def known_as(cls, value: float, use: MetricUse) -> UnknownMetric:
        """Return a stand-in with a value."""
        one = cls(value)
        one.use = use
        return one

    def __bool__(self) -> bool:
        self.use.record(True)
        return float(self) != 0.0

    def __format__(self, spec: str) -> str:
        return "unknown"

    def __repr__(self) -> str:
        return "unknown"

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (float(self),)

    __str__ = __repr__
    __hash__ = float.__hash__

    def __round__(self, digits: Any = None) -> Any:
        return self if digits is not None else round(float(self))

    def item(self) -> UnknownMetric:
        """Return the metric, as NumPy's and PyTorch's scalars do."""
        return self


def _build_comparison(name: str) -> Callable[[UnknownMetric, Any], Any]:
    compare = getattr(float, f"__{name}__")

    def method(self: UnknownMetric, other: Any) -> Any:
        outcome = compare(self, other)
        if outcome is not NotImplemented:
            self.use.record(bool(outcome))
        return outcome

    return method


def _build_arithmetic(name: str) -> Callable[..., Any]:
    compute = getattr(float, f"__{name}__")

    def method(self: UnknownMetric, *others: Any) -> Any:
        found = compute(self, *others)
        return found if found is NotImplemented else UnknownMetric.known_as(found, self.use)

    return method


def _build_function(function: Callable[[float], float]) -> Callable[[UnknownMetric], UnknownMetric]:
    """Return a method that NumPy calls on arrays of objects."""
    return lambda self: UnknownMetric.known_as(function(float(self)), self.use)


for _name in COMPARISONS:
    setattr(UnknownMetric, f"__{_name}__", _build_comparison(_name))
for _name in (*ARITHMETIC, *(f"r{name}" for name in ARITHMETIC), "neg", "abs"):
    setattr(UnknownMetric, f"__{_name}__", _build_arithmetic(_name))
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "conjugate": operator.pos,
}  # fmt: skip
for _name, _function in _FUNCTIONS.items():
    setattr(UnknownMetric, _name, _build_function(_function))


class MetricList(list[Any]):
    """Values of a metric by epoch; NumPy sees objects, so that its comparisons are recorded too."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy as np

        array = np.empty(len(self), dtype=object)
        array[:] = list(self)
        return array if dtype is None else array.astype(dtype)


class MetricHistory(dict[str, MetricList]):
    """`History.history` with stand-ins; a metric that is asked for by a name not foreseen exists too."""

    def __init__(self, names: Iterable[str], *, first_epoch: int, epochs: int, use: MetricUse) -> None:
        """Fill in all metrics.

        Args:
            names: Names of the known metrics.
            first_epoch: Epochs of all calls before [-].
            epochs: Epochs of the call [-].
            use: Recorder.
        """
        self._range = range(first_epoch, first_epoch + epochs)
        self._use = use
        super().__init__({name: self._build(name) for name in names})

    def _build(self, name: str) -> MetricList:
        return MetricList(UnknownMetric.of_epoch(name, epoch, self._use) for epoch in self._range)

    def __missing__(self, name: str) -> MetricList:
        self[name] = self._build(str(name))
        return self[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
