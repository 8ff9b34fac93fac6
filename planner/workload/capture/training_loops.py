"""Training loops of a script's own: steps known by the update at their end or as compiled functions, and runs."""

from __future__ import annotations

import ast
import gc
import operator
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import cached_property, partial, wraps
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import keras
import numpy as np

from ..errors import CaptureError, find_own_places, is_own_file
from ..trace.jax.step import TracedStep, build_unfused, compute_array_bytes, trace_function

LOOP = "__gpuplan_loop__"
MOST_NAMED = 3  # things of a tuple or list that is written out, over which a loop runs as it is [-]
# What a script has that trains in a loop of its own.
_OF_LOOPS = re.compile(r"train_on_batch|GradientTape|stateless_apply|apply_gradients|\.apply\(|\.backward\(")


class ForLoop:
    """Iterables of a loop, iterated together; the loop ends after this iteration once `ends` is set."""

    def __init__(self, *together: Any) -> None:
        self._together, self.ends, self.iteration = together, False, 0
        self._lengths = [one if hasattr(one, "__len__") else operator.length_hint(one, -1) for one in together]

    @cached_property
    def total(self) -> int | None:
        """Iterations [-]; None if unknown."""
        lengths = []
        for one in self._lengths:
            with suppress(Exception):  # the data is the user's code
                lengths.append(one if isinstance(one, int) else len(one))
        return min((length for length in lengths if length >= 0), default=None)

    def __iter__(self) -> Iterator[Any]:
        running = vars(_threads).setdefault("loops", [])
        running.append(self)
        try:
            together = self._together
            for item in zip(*together) if len(together) > 1 else together[0]:  # noqa: B905  # as the script says
                self.iteration += 1
                yield item
                if self.ends:
                    break
        finally:
            running.remove(self)


_threads = threading.local()
_whiles: dict[str, list[tuple[int, int]]] = {}  # first and last lines, by file


def count_runs(counted: dict[ForLoop, int]) -> int:
    """Return how often a call runs from now on in the loops of known length that run in this thread [-].

    `counted` has the iteration of each loop at which the call was counted first: 0 runs are left for a later one.
    """
    left = 0
    for loop in _list_known():
        if counted.setdefault(loop, loop.iteration) != loop.iteration:
            return 0
        total = loop.total or 1
        left = left * total + max(0, total - loop.iteration)
    return left + 1


def _is_in_while(places: Iterable[tuple[str, int]]) -> bool:
    """Return whether a `while` loop runs, whose length is not known before its end."""
    return any(first <= line <= last for file, line in places for first, last in _whiles.get(file, ()))


def end_loops() -> None:
    """End all loops of known length that run in this thread, each after its iteration."""
    for loop in _list_known():
        loop.ends = True


def _list_known() -> list[ForLoop]:
    """Return the loops of known length that run in this thread, the outermost first."""
    return [loop for loop in getattr(_threads, "loops", ()) if loop.total is not None]


def compile_with_loops(source: str | bytes, file: str) -> Any:
    """Compile a script; its `for` loops are known while they run, where it may train in one of its own."""
    tree = ast.parse(source, file)
    nodes = list(ast.walk(tree))
    _whiles[file] = [(one.lineno, one.end_lineno or 0) for one in nodes if isinstance(one, ast.While)]
    if _OF_LOOPS.search(source if isinstance(source, str) else source.decode("utf-8", errors="replace")):
        for node in nodes:
            if isinstance(node, ast.For):
                node.iter = _mark(node.iter)
        ast.fix_missing_locations(tree)
    return compile(tree, file, "exec")


def _mark(given: ast.expr) -> ast.expr:
    """Put a `ForLoop` around what is iterated, inside `enumerate` and a progress bar, in place of `zip`."""
    if isinstance(given, ast.Tuple | ast.List) and len(given.elts) <= MOST_NAMED:
        return given
    name = getattr(given.func, "id", "") if isinstance(given, ast.Call) else ""
    if isinstance(given, ast.Call) and given.args and name in ("enumerate", "tqdm"):
        given.args[0] = _mark(given.args[0])
        return given
    is_zip = isinstance(given, ast.Call) and name == "zip" and not given.keywords and len(given.args) > 1
    args = given.args if is_zip and isinstance(given, ast.Call) else [given]
    return ast.copy_location(ast.Call(ast.Name(LOOP, ast.Load()), args, []), given)


# --- steps ---------------------------------------------------------------------------------------------------

LONGEST_COUNT_S = 10.0  # computing time of a loop whose length is found by running it
HELD = "held_by_gpuplan"
Place = tuple[tuple[str, int], ...]
Updates = list[tuple[Any, list[Any]]]  # optimizers, each with the variables that it updates
Call = Callable[..., Any]


class LoopGivenUpError(BaseException):
    """A loop was left, since it runs too long to be counted."""


class LoopStep(NamedTuple):
    """A step of a loop: the model that it trains, and whether it is one XLA program or runs kernel by kernel."""

    model: Any
    traced: TracedStep
    batch_size: int
    compiled: bool


AddStep = Callable[[object, Callable[[], LoopStep], int], None]  # its place, itself, and its runs [-]


class TrainingLoops:
    """Steps of loops: functions that a backend compiles, or what runs between two updates."""

    def __init__(self, folder: str, add: AddStep, *, has_trained: Callable[[], bool]) -> None:
        """Start; once a step was found (`has_trained`), functions that do not train are not computed."""
        self.folder, self._add, self._has_trained = folder, add, has_trained
        self._compiled: dict[object, tuple[Any, Updates]] = {}  # by function and shapes
        self._counted: dict[Place, dict[ForLoop, int]] = {}
        self._started_s: dict[Place, float] = {}
        self._updates: Updates | None = None  # of the function that is traced
        self._pending: dict[object, int] = {}
        self._known: set[object] = set()
        self._last: dict[ForLoop, int] = {}  # loops at the last update, with their iterations
        self._recorded: tuple[list[Any], list[Any]] | None = None
        self._recording = ExitStack()
        self.batch_size = 1  # of the last call of a model [-]

    @property
    def is_tracing(self) -> bool:
        """Whether a function of the user's is traced."""
        return self._updates is not None

    def find_place(self) -> Place:
        """Return the lines of the user's files that lead to the call that runs."""
        return tuple(find_own_places(sys._getframe(1), (self.folder,)))

    def count(self, place: Place, *, ends: bool = True) -> int:
        """Return for how many runs a call stands [-], and end its loops; LoopGivenUpError if it goes on."""
        if place in self._counted:
            now_s = time.process_time()
            if now_s - self._started_s.setdefault(place, now_s) > LONGEST_COUNT_S:
                raise LoopGivenUpError
        counted = self._counted.setdefault(place, {})
        if _is_in_while(place):
            return 1
        times = count_runs(counted)
        if ends:
            end_loops()
        return times

    def follow(self, key: object, run: Call, *, trace: Call, build: Call, build_results: Call) -> Any:
        """Return the results of a compiled function, known by itself and its shapes; a step ends its loops.

        `run` computes it, `trace` traces it, `build` and `build_results` make a step, and stand-ins of results.
        """
        if key not in self._compiled:
            found: Updates = []
            self._updates = found
            try:
                self._compiled[key] = trace(), found
            finally:
                self._updates = None
        traced, updates = self._compiled[key]
        if updates:
            place = self.find_place()
            self._add(place, partial(build, traced, updates), self.count(place))
        elif not self._has_trained():
            return run()
        return build_results(traced)

    def enter(self, phase: Any) -> None:
        """Note that the backward pass or the update of a step begins."""
        if self._recorded is not None:
            self._recorded[1][0] = phase

    def update(self, optimizer: Any, variables: list[Any]) -> None:
        """Take an update: in a function that is traced, or at the end of a step of a loop.

        Such a step is what ran since the last update in the same loop, which runs until all its steps are known.
        """
        if self._updates is not None:
            self._updates.append((optimizer, variables))
            return
        if self._recorded is None:  # what runs kernel by kernel is recorded from the first update on
            if keras.backend.backend() == "torch":
                from ..trace.backends.torch_step import record_rows
            else:
                from ..trace.backends.tensorflow_step import record_rows
            self._recorded = self._recording.enter_context(record_rows())
        recorded, phase = self._recorded
        place, rows = self.find_place(), tuple(recorded)
        recorded.clear()
        phase[0] = "forward"
        running = {loop: loop.iteration for loop in getattr(_threads, "loops", ())}
        follows, self._last = bool(running.items() & self._last.items()), running
        runs = self.count(place, ends=False) + self._pending.get(place, 0)
        if not (follows or place in self._known or place in self._pending):
            self._pending[place] = runs
            return
        self._pending.pop(place, None)
        self._known.add(place)
        self._add(place, partial(self._build_step, rows, [(optimizer, variables)], self.batch_size), runs)
        if not self._pending and not _is_in_while(place):
            end_loops()

    @staticmethod
    def _build_step(rows: tuple[Any, ...], updates: Updates, batch_size: int) -> LoopStep:
        model = hold_models(updates)
        return LoopStep(model, build_unfused(model, rows, train=True, input_bytes=0), batch_size, False)


class TimedLoop(TrainingLoops):
    """Timer of the first step that trains in a loop of a script that runs for real.

    The time counts from the end of the step before, of whatever kind, and so includes the script's own work.
    """

    def __init__(self, folder: str, *, prepare: Callable[[int], None], add: Callable[[float], None]) -> None:
        """Start; the first step's batch size [-] goes to `prepare`, and the times of further ones [s] to `add`."""
        super().__init__(folder, lambda *_: None, has_trained=bool)
        self._prepare, self._time_step = prepare, add
        self.begin: Callable[[], object] = int  # called before `prepare`
        self._timed: object = None  # the function and shapes, or the place, of the first step
        self._ended_s = 0.0

    def follow(self, key: object, run: Call, **_: Any) -> Any:
        """Run a compiled function; it trains if an optimizer updates variables while it is traced."""
        self._updates = []
        try:
            found = jax.block_until_ready(run())
            if self._updates:
                self._known.add(key)
        finally:
            self._updates = None
        if key in self._known:
            self._end(key)
        return found

    def update(self, optimizer: Any, variables: list[Any]) -> None:
        """Take an update: in a compiled function, or as the end of a step."""
        if self._updates is None:
            self._end(self.find_place())
        else:
            self._updates.append((optimizer, variables))

    def _end(self, key: object) -> None:
        if self._timed is None:
            self._timed = key
            self.begin()
            self._prepare(self.batch_size)
        elif key == self._timed:
            self._time_step(time.perf_counter() - self._ended_s)
        self._ended_s = time.perf_counter()


def hold_models(updates: Updates) -> Any:
    """Return a model of the models that some updates train, with the variables of all their optimizers."""
    trained = {id(variable) for _, variables in updates for variable in variables}
    objects = (one for one in gc.get_objects() if issubclass(type(one), keras.Model))
    every = [one for one in objects if getattr(one, "built", False) and not hasattr(one, HELD)]
    inner = {id(layer) for one in every for layer in one._flatten_layers(include_self=False)}
    found = [
        one
        for one in every
        if id(one) not in inner
        and any(id(v) in trained or id(getattr(v, "_value", v)) in trained for v in one.trainable_variables)
    ]
    if not found:
        raise CaptureError("the loop updates variables of no Keras model")

    class Models(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            setattr(self, HELD, found)
            self.built = True

    held = Models()
    state = []
    for one in dict.fromkeys(optimizer for optimizer, _ in updates):  # a function may be traced twice
        known = one
        if not isinstance(one, keras.optimizers.Optimizer):  # of PyTorch: as Keras's of the same name
            known = getattr(keras.optimizers, type(one).__name__, keras.optimizers.Adam)()
            known.build(held.trainable_variables)
        state += known.variables
    object.__setattr__(held, "optimizer", SimpleNamespace(variables=state, built=True))
    return held


def follow_jit(loops: TrainingLoops, compile_function: Any, function: Any = None, /, **options: Any) -> Any:
    """Compile a function as `jax.jit` does, and follow it if it is one of the user's own files."""
    if not is_own_file(sys._getframe(3).f_code.co_filename, loops.folder):
        return compile_function(function, **options) if function is not None else compile_function(**options)

    def compile_own(function: Any) -> Any:
        compiled = compile_function(function, **options)

        @wraps(function, updated=())
        def call(*args: Any, **named: Any) -> Any:
            is_inner = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, named)))
            if loops.is_tracing or is_inner:
                return compiled(*args, **named)
            return loops.follow(
                (call, str(jax.tree.map(_describe_leaf, (args, named)))),
                partial(compiled, *args, **named),
                trace=partial(_trace_jitted, function, options, args, named),
                build=partial(_build_jax_step, args),
                build_results=lambda traced: jax.tree.map(_build_zeros, traced.results),
            )

        vars(call)["lower"] = compiled.lower
        return call

    return compile_own if function is None else compile_own(function)


def _trace_jitted(function: Any, options: dict[str, Any], args: Any, named: Any) -> Any:
    """Return a function under `jax.jit` traced for the shapes of some arguments."""
    numbers, names = (options.get(f"static_arg{what}") or () for what in ("nums", "names"))
    fixed = tuple(sorted({one % len(args) for one in ((numbers,) if isinstance(numbers, int) else numbers)}))
    names = (names,) if isinstance(names, str) else names
    kept = {name: value for name, value in named.items() if name in names}
    shapes = [one if n in fixed else jax.tree.map(_abstract, one) for n, one in enumerate(args)]
    rest = {name: jax.tree.map(_abstract, value) for name, value in named.items() if name not in kept}
    return trace_function(partial(function, **kept), shapes, rest, fixed=fixed)


def _abstract(leaf: Any) -> Any:
    """Return shape and type of an array or variable; another value as it is."""
    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        return leaf
    dtype = leaf.dtype if not isinstance(leaf.dtype, str) else jax.dtypes.canonicalize_dtype(leaf.dtype)
    return jax.ShapeDtypeStruct(tuple(leaf.shape), dtype)


def _describe_leaf(leaf: Any) -> Any:
    return (tuple(leaf.shape), str(leaf.dtype)) if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else leaf


def _build_zeros(spec: Any) -> Any:
    """Return zeros as a step would return them, of which arrays take no memory."""
    if jax.dtypes.issubdtype(spec.dtype, jax.dtypes.extended):
        return jax.numpy.zeros(spec.shape, spec.dtype)
    return np.broadcast_to(np.zeros((), spec.dtype), spec.shape) if spec.shape else jax.numpy.zeros((), spec.dtype)


def _build_jax_step(args: Any, traced: Any, updates: Updates) -> LoopStep:
    model = hold_models(updates)
    shapes = list(map(_describe_leaf, traced.closed.in_avals))
    trained: list[int] = []
    for _, variables in updates:  # where they stand among the inputs, in a sequence
        wanted, size = list(map(_describe_leaf, variables)), len(variables)
        starts = (n for n in range(len(shapes) - size + 1) if shapes[n : n + size] == wanted)
        first = next(starts, None)
        trained += () if first is None else range(first, first + size)
    held = list(map(_describe_leaf, (*model.variables, *model.optimizer.variables)))
    batch = _find_batch(args, list(map(_describe_leaf, jax.tree.leaves(traced.results))), held)
    fed = [compute_array_bytes(*form) for form in batch]
    step = traced.tabulate(model, trained=trained, input_bytes=sum(fed))
    return LoopStep(model, step, batch[fed.index(max(fed))][0][0] if fed else 1, True)


def _find_batch(args: Any, returned: list[Any], held: list[Any]) -> list[Any]:
    """Return shapes and types of the arrays that a step neither returns nor takes from the model: its data."""
    state, found = Counter(returned) | Counter(held), []
    for form in map(_describe_leaf, jax.tree.leaves(args)):
        if isinstance(form, tuple) and form[0]:
            if state[form] > 0:
                state[form] -= 1
            else:
                found.append(form)
    return found


def follow_tensorflow(loops: TrainingLoops, call_function: Any, function: Any, *args: Any, **named: Any) -> Any:
    """Call a `tf.function`, and follow it if the user's own files do, as `follow_jit` does."""
    import tensorflow as tf

    own = is_own_file(sys._getframe(3).f_code.co_filename, loops.folder)
    if loops.is_tracing or not tf.executing_eagerly() or not own:
        return call_function(function, *args, **named)

    def build_zeros(tensor: Any) -> Any:
        return None if tensor is None else tf.zeros([size or 1 for size in tensor.shape], tensor.dtype)

    return loops.follow(
        (function, str(tf.nest.map_structure(_describe_leaf, (args, named)))),
        partial(call_function, function, *args, **named),
        trace=partial(function.get_concrete_function, *args, **named),
        build=partial(_build_tensorflow_step, function, (args, named)),
        build_results=lambda found: tf.nest.map_structure(build_zeros, found.structured_outputs),
    )


def _build_tensorflow_step(function: Any, given: Any, concrete: Any, updates: Updates) -> LoopStep:
    import tensorflow as tf

    from ..trace.backends.tensorflow_step import list_graph_rows

    model = hold_models(updates)
    batch = [leaf for leaf in tf.nest.flatten(given) if getattr(leaf, "shape", ())]
    fed = sum(int(tf.size(leaf)) * leaf.dtype.size for leaf in batch if hasattr(leaf.dtype, "size"))
    rows = list_graph_rows(concrete.graph, [optimizer for optimizer, _ in updates])
    step = build_unfused(model, rows, train=True, input_bytes=fed)
    compiled = bool(getattr(function, "_jit_compile", False))
    return LoopStep(model, step, int(batch[0].shape[0]) if batch else 1, compiled)
