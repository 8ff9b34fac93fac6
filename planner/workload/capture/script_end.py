"""End of a script whose `fit()` trained nothing: unknown metrics, and files that stay as they are."""

from __future__ import annotations

import builtins
import dis
import io
import linecache
import math
import operator
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..errors import find_own_frame

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
REFUSED = frozenset({
    "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.system", "os.exec",
    "os.posix_spawn", "subprocess.Popen",
})  # fmt: skip


def make_scratch(folder: Path | None) -> Path:
    """Make the folder of redirected files in a folder, or in a new temporary one."""
    scratch = (folder or Path(tempfile.mkdtemp(prefix="gpuplan-"))) / "written"
    scratch.mkdir(exist_ok=True)
    return scratch


def protect_files(scratch: Path) -> None:
    """Redirect what this process writes from now on; it cannot be undone.

    Args:
        scratch: Existing folder for the redirected files, removed by the parent process.
    """
    redirection = _Redirection(scratch)
    opened, opened_raw = io.open, os.open

    def open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if "x" not in mode:
            file = redirection.find(file, writes=any(sign in mode for sign in "wa+"), keeps="w" not in mode)
        return opened(file, mode, *args, **kwargs)

    def open_raw(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_EXCL:
            redirection.own.add(os.path.abspath(os.fspath(path)))
        elif kwargs.get("dir_fd") is None:
            path = redirection.find(path, writes=bool(flags & WRITING), keeps=not flags & os.O_TRUNC)
        return opened_raw(path, flags, *args, **kwargs)

    builtins.open = io.open = open_file
    os.open = open_raw
    sys.addaudithook(redirection.refuse)
    _keep_models_unsaved()


class _Redirection:
    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._copies: dict[str, str] = {}
        self.own: set[str] = set()  # temporary files that the script created
        home = os.path.expanduser("~")
        kept = ("/dev", "/proc", str(scratch.parent), f"{home}/.keras", f"{home}/.cache")
        self._kept = tuple(os.path.join(folder, "") for folder in kept)

    def find(self, file: Any, *, writes: bool, keeps: bool) -> Any:
        """Return the path to open instead of one that is written, or was."""
        if not isinstance(file, (str, os.PathLike)):
            return file
        path = os.path.abspath(os.fsdecode(os.fspath(file)))
        if path in self._copies:
            return self._copies[path]
        if not writes or path.startswith(self._kept) or path in self.own:
            return file
        copy = str(self._scratch / f"{len(self._copies)}-{os.path.basename(path)}")
        if keeps and os.path.isfile(path):
            shutil.copyfile(path, copy)
        self._copies[path] = copy
        return copy

    def refuse(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise PermissionError for what cannot be redirected."""
        if event not in REFUSED:
            return
        path = arguments[0]
        if isinstance(path, int):  # a file that is open already
            return
        if isinstance(path, (str, os.PathLike)) and event.startswith("os."):
            path = os.path.abspath(os.fsdecode(os.fspath(path)))
            if path in self.own or path.startswith((*self._kept, _temporary_prefix())):
                return
        raise PermissionError(f"{event} after fit(), which trained nothing here")


def _temporary_prefix() -> str:
    """Return the start of the paths that `tempfile` creates."""
    return os.path.join(tempfile.gettempdir(), tempfile.gettempprefix())


def _keep_models_unsaved() -> None:
    """Let Keras save no model: its libraries write files below Python."""
    import keras

    def save_nothing(*args: Any, **kwargs: Any) -> None:
        """Save nothing."""

    for owner, names in (
        (keras.Model, ("save", "save_weights", "export")),
        (keras.saving, ("save_model", "save_weights")),
        (keras.models, ("save_model",)),
    ):
        for name in names:
            if hasattr(owner, name):
                setattr(owner, name, save_nothing)


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
        place = f"{os.path.basename(frame.f_code.co_filename)}, line {frame.f_lineno}"
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
