"""Facts about a user's file from its text, before any of it runs: builders of models, foreign frameworks."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from .notebook import read_source

_BUILDS = re.compile(r"Sequential\(|Model\(|\bInput\(|\blayers\.|applications\.|from_preset\(")
_KERAS = re.compile(r"keras", re.IGNORECASE)
_TORCH_TRAINS = re.compile(r"\.backward\(|torch\.optim|nn\.Module")
_TF1 = re.compile(r"tf\.(?:compat\.v1\.)?(placeholder|Session|global_variables_initializer|app\.run|contrib)\b")
KERAS_ONLY = "gpuplan plans Keras models; the nearest one will do: `gpuplan estimate ResNet50`"
MOST_NAMED = 3


def list_builders(path: Path) -> list[str]:
    """Return the functions of a file that seem to build a model, in order; none for an unreadable file."""
    try:
        source = read_source(path)
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return []
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"))
    return [one.name for one in functions if _BUILDS.search(ast.get_source_segment(source, one) or "")]


def suggest_builders(text: str, path: Path) -> str:
    """Return MODEL arguments for the functions of a file that seem to build a model; empty for none.

    Args:
        text: The file as the user named it.
        path: Its path.
    """
    return " or ".join(f"`{text}:{name}`" for name in list_builders(path)[:MOST_NAMED])


# What trains, by the name of the call.
TRAINS = frozenset({
    "apply_gradients", "backward", "fit", "fit_generator", "minimize", "search", "stateless_apply",
    "train_on_batch",
})  # fmt: skip
_BODIES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def can_train_after(places: Sequence[tuple[str, int]], *, is_loop_left: bool = False) -> bool:
    """Return whether a script could still train, by what is left to run at each place (file, line) of its stack.

    What follows the line is left, and the whole of each loop around it, or what follows these loops if they are
    left; of the innermost place, the line too. A function trains if one that it names does.
    """
    inner = len(places) - 1
    return any(
        _has_training_left(Path(file), line, None if is_loop_left else int(n < inner))
        for n, (file, line) in enumerate(places)
    )


def _has_training_left(path: Path, line: int, after: int | None) -> bool:
    """Return whether a file trains some lines after one; None: after the loops around it."""
    try:
        tree = ast.parse(read_source(path))
    except (OSError, SyntaxError, ValueError):
        return True
    around = [node for node in ast.walk(tree) if _spans(node, line)]
    body: ast.AST = max((node for node in around if isinstance(node, _BODIES)), key=_get_line, default=tree)
    loops = [
        node for node in around if isinstance(node, (ast.For, ast.While)) and _get_line(node) > _get_line(body)
    ]
    if after is None:
        first = max([node.end_lineno or 0 for node in loops], default=line) + 1
    else:
        first = min([_get_line(node) for node in loops], default=line + after)
    bodies = {node.name: _name_calls(node, 0) for node in ast.walk(tree) if isinstance(node, _BODIES)}
    trains = set(TRAINS)
    while more := {name for name, calls in bodies.items() if name not in trains and calls & trains}:
        trains |= more
    return bool(_name_calls(body, first) & trains)


def _spans(node: ast.AST, line: int) -> bool:
    return _get_line(node) <= line <= (getattr(node, "end_lineno", None) or 0)


def _get_line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _name_calls(node: ast.AST, first: int) -> set[str]:
    """Return the names of all calls from a line on, but of those in functions that are defined there."""
    found: set[str] = set()
    waiting = list(ast.iter_child_nodes(node))
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.Call) and _get_line(one) >= first:
            found.add(getattr(one.func, "attr", getattr(one.func, "id", "")))
        if not isinstance(one, _BODIES):
            waiting += ast.iter_child_nodes(one)
    return found


def require_keras(path: Path) -> None:
    """Raise UsageError for a script that trains with PyTorch or TensorFlow 1 and never names Keras."""
    source = read_source(path)
    if _KERAS.search(source):
        return
    if re.search(r"^\s*(?:import|from) torch\b", source, re.MULTILINE) and _TORCH_TRAINS.search(source):
        raise UsageError(f"{path.name} trains with PyTorch, without Keras", hint=KERAS_ONLY)
    old = _TF1.search(source)
    if old is not None:
        raise UsageError(f"{path.name} is written for TensorFlow 1 (`{old[0]}`)", hint=KERAS_ONLY)
