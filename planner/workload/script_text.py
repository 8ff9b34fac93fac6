"""Facts about a user's file from its text, before any of it runs: builders of models, foreign frameworks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ..errors import UsageError

_BUILDS = re.compile(r"Sequential\(|Model\(|\bInput\(|\blayers\.|applications\.|from_preset\(")
_KERAS = re.compile(r"keras", re.IGNORECASE)
_TORCH_TRAINS = re.compile(r"\.backward\(|torch\.optim|nn\.Module")
_TF1 = re.compile(r"tf\.(?:compat\.v1\.)?(placeholder|Session|global_variables_initializer|app\.run|contrib)\b")
KERAS_ONLY = "gpuplan plans Keras models; the nearest one will do: `gpuplan estimate ResNet50`"
MOST_NAMED = 3


def list_builders(path: Path) -> list[str]:
    """Return the functions of a file that seem to build a model, in order; none for an unreadable file."""
    try:
        source = path.read_text(encoding="utf-8", errors="replace")
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


def require_keras(path: Path) -> None:
    """Raise UsageError for a script that trains with PyTorch or TensorFlow 1 and never names Keras."""
    source = path.read_text(encoding="utf-8", errors="replace")
    if _KERAS.search(source):
        return
    if re.search(r"^\s*(?:import|from) torch\b", source, re.MULTILINE) and _TORCH_TRAINS.search(source):
        raise UsageError(f"{path.name} trains with PyTorch, without Keras", hint=KERAS_ONLY)
    old = _TF1.search(source)
    if old is not None:
        raise UsageError(f"{path.name} is written for TensorFlow 1 (`{old[0]}`)", hint=KERAS_ONLY)
