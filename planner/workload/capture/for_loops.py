"""`for` loops of a script: how often each runs, and its end after the iteration that runs."""

from __future__ import annotations

import ast
import operator
import re
import threading
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

LOOP = "__gpuplan_loop__"
MOST_NAMED = 3  # things of a tuple or list that is written out [-]
# What a script has that trains in a loop of its own.
_OF_LOOPS = re.compile(r"train_on_batch|GradientTape|stateless_apply|apply_gradients|\.apply\(|\.backward\(")


class ForLoop:
    """A loop that runs; it ends after this iteration once `ends` is set."""

    def __init__(self, sources: Iterable[Any]) -> None:
        """Take what is iterated together."""
        self._sources = [one if hasattr(one, "__len__") else operator.length_hint(one, -1) for one in sources]
        self.ends, self.iteration = False, 0

    @cached_property
    def total(self) -> int | None:
        """Iterations [-]; None if unknown."""
        lengths = [one if isinstance(one, int) else _get_length(one) for one in self._sources]
        return min((length for length in lengths if length >= 0), default=None)


def _get_length(data: Any) -> int:
    """Return a length; -1 for unknown and endless data."""
    try:
        return len(data)
    except Exception:  # the data is the user's code
        return -1


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


def is_in_while(places: Iterable[tuple[str, int]]) -> bool:
    """Return whether a `while` loop runs, whose length is not known before its end."""
    return any(first <= line <= last for file, line in places for first, last in _whiles.get(file, ()))


def end_loops() -> None:
    """End all loops of known length that run in this thread, each after its iteration."""
    for loop in _list_known():
        loop.ends = True


def list_running() -> list[ForLoop]:
    """Return the loops that run in this thread, the outermost first."""
    return list(getattr(_threads, "loops", ()))


def _list_known() -> list[ForLoop]:
    return [loop for loop in list_running() if loop.total is not None]


def iterate(*together: Any) -> Iterator[Any]:
    """Yield the items of a loop, which is known while it runs; of several iterables, one of each together."""
    loop = ForLoop(together)
    running = vars(_threads).setdefault("loops", [])
    running.append(loop)
    try:
        for item in zip(*together) if len(together) > 1 else together[0]:  # noqa: B905  # as the script says
            loop.iteration += 1
            yield item
            if loop.ends:
                break
    finally:
        running.remove(loop)


def compile_with_loops(source: str | bytes, file: str) -> Any:
    """Compile a script; its `for` loops are known while they run, where it may train in one of its own."""
    tree = ast.parse(source, file)
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.While))
    _whiles[file] = [(node.lineno, node.end_lineno or 0) for node in loops]
    if _OF_LOOPS.search(source if isinstance(source, str) else source.decode("utf-8", errors="replace")):
        tree = ast.fix_missing_locations(_LoopMarker().visit(tree))
    return compile(tree, file, "exec")


class _LoopMarker(ast.NodeTransformer):
    def visit_For(self, node: ast.For) -> Any:
        """Put `iterate` around what is iterated, inside `enumerate` and a progress bar, in place of `zip`."""
        self.generic_visit(node)
        node.iter = _mark(node.iter)
        return node


def _mark(given: ast.expr) -> ast.expr:
    """Put `iterate` around what is iterated; a loop over a few things by name runs for each of them."""
    if isinstance(given, ast.Tuple | ast.List) and len(given.elts) <= MOST_NAMED:
        return given
    name = getattr(given.func, "id", "") if isinstance(given, ast.Call) else ""
    if isinstance(given, ast.Call) and given.args and name in ("enumerate", "tqdm"):
        given.args[0] = _mark(given.args[0])
        return given
    is_zip = isinstance(given, ast.Call) and name == "zip" and not given.keywords and len(given.args) > 1
    args = given.args if is_zip and isinstance(given, ast.Call) else [given]
    return ast.copy_location(ast.Call(ast.Name(LOOP, ast.Load()), args, []), given)
