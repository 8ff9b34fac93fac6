"""Text of the user's script or notebook: builders, what trains, and what helps where its data is missing."""

from __future__ import annotations

import ast
import json
import os
import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.error import URLError

from ..errors import UsageError

_BUILDS = re.compile(r"Sequential\(|Model\(|\bInput\(|\blayers\.|applications\.|from_preset\(")
_KERAS = re.compile(r"keras", re.IGNORECASE)
_TORCH_TRAINS = re.compile(r"\.backward\(|torch\.optim|nn\.Module")
_TF1 = re.compile(r"tf\.(?:compat\.v1\.)?(placeholder|Session|global_variables_initializer|app\.run|contrib)\b")
KERAS_ONLY = "gpuplan plans Keras models; the nearest one will do: `gpuplan estimate ResNet50`"
MOST_NAMED = 3


def parse_file(path: Path) -> ast.Module | None:
    """Return the syntax tree of a script or notebook; None for an unreadable file."""
    with suppress(OSError, SyntaxError, ValueError):
        return ast.parse(read_source(path))
    return None


def list_around(tree: ast.AST, line: int) -> list[Any]:
    """Return the nodes that span a line."""
    return [one for one in ast.walk(tree) if _get_line(one) <= line <= (getattr(one, "end_lineno", None) or 0)]


def _list_functions(tree: ast.Module | None) -> dict[str, tuple[ast.FunctionDef, str]]:
    """Return the functions of a module, each with its text, by name."""
    functions = (node for node in (tree.body if tree is not None else ()) if isinstance(node, ast.FunctionDef))
    return {node.name: (node, ast.unparse(node)) for node in functions}


def _list_builders(tree: ast.Module | None) -> list[str]:
    """Return the functions of a module that seem to build a model, in order."""
    found = _list_functions(tree).items()
    return [name for name, (_, text) in found if not name.startswith("_") and _BUILDS.search(text)]


def suggest_builders(text: str, path: Path) -> str:
    """Return MODEL arguments for the functions of a file, named `text`, that seem to build a model."""
    return " or ".join(f"`{text}:{name}`" for name in _list_builders(parse_file(path))[:MOST_NAMED])


# What trains, by the name of the call.
TRAINS = frozenset({
    "apply_gradients", "backward", "fit", "fit_generator", "minimize", "search", "stateless_apply",
    "train_on_batch",
})  # fmt: skip
_BODIES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def can_train_after(places: Sequence[tuple[str, int]], *, is_loop_left: bool = False) -> bool:
    """Return whether a script could still train, by what is left to run at each place (file, line) of its stack.

    That is what follows the line (of the innermost, the line too), and each loop around it unless it is left.
    """
    for n, (file, line) in enumerate(places):
        tree = parse_file(Path(file))
        if tree is None:
            return True
        around = list_around(tree, line)
        body: ast.AST = max((node for node in around if isinstance(node, _BODIES)), key=_get_line, default=tree)
        loops = [
            node for node in around if isinstance(node, ast.For | ast.While) and node.lineno > _get_line(body)
        ]
        if is_loop_left:
            first = max([node.end_lineno or 0 for node in loops], default=line) + 1
        else:
            first = min([node.lineno for node in loops], default=line + (n < len(places) - 1))
        bodies = {node.name: _name_calls(node, 0) for node in ast.walk(tree) if isinstance(node, _BODIES)}
        trains = set(TRAINS)
        while more := {name for name, calls in bodies.items() if name not in trains and calls & trains}:
            trains |= more
        if _name_calls(body, first) & trains:
            return True
    return False


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


NOTEBOOK = ".ipynb"
# A magic, a shell line or a question, with what it is assigned to.
_MAGIC = re.compile(r"^(\s*)(?:([\w.,\s]+?)=\s*)?(?:[%!]|\?+\w|[\w.]+\?+$)")
# Cell magics that run the rest of their cell as Python.
_OF_PYTHON = ("%%time", "%%timeit", "%%capture", "%%prun", "%%memit", "%%skip_if_done")


def read_source(path: Path) -> str:
    """Return the Python text of a script or notebook; ValueError for a notebook that is none."""
    text = path.read_bytes().decode("utf-8", errors="replace")
    return text if path.suffix != NOTEBOOK else "\n".join(_read_cells(text))


def find_cell(path: Path, line: int) -> tuple[int, int]:
    """Return the number of a line's code cell in a notebook, from 1, and the line in it; (0, line) in a script."""
    if path.suffix != NOTEBOOK:
        return 0, line
    for number, cell in enumerate(_read_cells(path.read_text(encoding="utf-8", errors="replace")), start=1):
        lines = cell.count("\n") + 1
        if line <= lines:
            return number, line
        line -= lines
    return 0, line


@lru_cache(maxsize=2)
def _read_cells(text: str) -> tuple[str, ...]:
    try:
        cells = json.loads(text)["cells"]
        codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (KeyError, TypeError) as error:
        raise ValueError("no notebook of format 4") from error
    return tuple("\n".join(_leave_out_magics(code)) for code in codes)


def _leave_out_magics(code: str) -> Iterator[str]:
    lines = code.split("\n")
    is_python = not code.lstrip().startswith("%%") or code.lstrip().startswith(_OF_PYTHON)
    if is_python:
        with suppress(SyntaxError, ValueError):
            ast.parse(code)
            yield from lines
            return
    continues = False
    for line in lines:
        found = _MAGIC.match(line)
        if is_python and not found and not continues:
            yield line
        else:
            target = found[2] if found and is_python else None
            yield f"{found[1]}{target}= []" if found and target else f"{found[1] if found else ''}pass"
        continues = (continues or bool(found)) and line.endswith("\\")


# Modules that load data from elsewhere, by the end of their path or a folder in it.
_LOADERS = re.compile(
    r"/(urllib/request|http/client|socket|ssl|keras/src/utils/file_utils)\.py$|/site-packages/"
    r"(requests|urllib3|httpx|httpcore|aiohttp|fsspec|gcsfs|huggingface_hub|datasets|tensorflow_datasets|kagglehub"
    r"|gdown|torchvision/datasets|sklearn/datasets)/"
)
_LOADS = re.compile(r"load_data|get_file|read_csv|np\.load|open\(|_from_directory|tfds\.|load_dataset|urlretrieve")
_ARGUMENTS = re.compile(r"argparse|sys\.argv|\bclick\b|absl|\bfire\.Fire|typer")
_ABSENT = re.compile(r"(?:name = |^|\s)'?([^\s':;}]+)'?(?:; No such file|, errno = 2\b)")
SWITCH = "GPUPLAN_DOWNLOADS"
OF_ARRAYS = (".npy", ".npz", ".h5", ".hdf5", ".csv", ".tsv", ".parquet", ".pkl", ".json", ".txt")


def is_from_loader(error: BaseException) -> bool:
    """Return whether an error was raised on the way to another machine."""
    return isinstance(error, (URLError, ConnectionError, TimeoutError)) or any(
        _LOADERS.search(frame.f_code.co_filename.replace(os.sep, "/"))
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def describe_missing_data(
    error: BaseException, frames: Sequence[tuple[FrameType, int]], *, where: str, script: str, folder: str
) -> tuple[str, str] | None:
    """Return the message (empty to keep that of the error) and the hint for missing data; None for other errors.

    `frames` are those in the user's files; `where` is the line, or the script; `folder` that of the script.
    """
    is_download = is_from_loader(error)
    name = None if is_download else _find_missing_file(error)
    if name is None and not is_download:
        return None
    path = Path(folder, os.path.basename(script))
    without = _suggest_without_data(frames, script, path) if script.endswith(".py") else ""
    first = _suggest_download(error) if name is None else _suggest_place(name, script, path)
    at = "" if os.path.isabs(name or "") else f" in {os.getcwd()}"
    message = "" if name is None else f"{where}: there is no `{name}`{at}"
    return message, "; or ".join(filter(None, (first, without)))


def _find_missing_file(error: BaseException) -> str | None:
    """Return the name of a file that an error says is missing; None for other errors."""
    if not isinstance(error, FileNotFoundError) and type(error).__name__ != "NotFoundError":
        return None
    name = getattr(error, "filename", None)
    found = None if name else _ABSENT.search(str(error))
    name = found[1] if found else name
    return os.fspath(name) if isinstance(name, (str, os.PathLike)) else None


def _suggest_download(error: BaseException) -> str:
    """Return where the file of a failed download may be put, or that a network is needed."""
    if SWITCH in str(error):
        return f"`{SWITCH}=true` lets it load from elsewhere"
    for frame, _ in traceback.walk_tb(error.__traceback__):
        target = frame.f_locals.get("download_target")
        if frame.f_code.co_name == "get_file" and isinstance(target, str):
            return f"put the file at `{target}`, where Keras looks first"
    return "run it where that can be reached"


def _suggest_place(name: str, script: str, path: Path) -> str:
    beside = path.parent / name
    if not os.path.isabs(name) and beside.exists() and beside.parent != Path.cwd():
        return f"it is beside the script: run gpuplan in {path.parent}"
    source = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if _ARGUMENTS.search(source):
        return f"pass its place after `--`, as in `gpuplan estimate {script} -- --data PLACE`"
    if Path(name).suffix in OF_ARRAYS:
        return "a small file of the same form will do, with `--samples N` for the number of its samples"
    return "put it there, or run gpuplan where it is"


def _suggest_without_data(frames: Sequence[tuple[FrameType, int]], script: str, path: Path) -> str:
    """Return the command that plans a model by a function that loads no data as it is called; empty for none."""
    tree = parse_file(path)
    functions = _list_functions(tree)
    loading = {frame.f_code.co_name for frame, _ in frames} & functions.keys()
    loading |= {name for name, (_, text) in functions.items() if _LOADS.search(text)}
    for _ in functions:  # those that call one
        loading |= {
            name for name, (_, text) in functions.items() if any(f"{one}(" in text for one in loading - {name})
        }
    builders = (name for name in _list_builders(tree) if name not in loading)
    builder = next((name for name in builders if not _needs_arguments(functions[name][0].args)), None)
    if tree is None or builder is None:
        return ""
    command = f"`gpuplan estimate {script}:{builder} --samples N --epochs N`"
    line = next((line for frame, line in frames if frame.f_code.co_name == "<module>"), 0)
    tests = [ast.unparse(node.test) for node in list_around(tree, line) if isinstance(node, ast.If)]
    if any("__name__" in test for test in tests):
        return f"{command} plans its model without the data"
    return f'move what loads it below `if __name__ == "__main__":`, then {command} plans its model without it'


def _needs_arguments(arguments: ast.arguments) -> bool:
    given = [*arguments.posonlyargs, *arguments.args]
    return len(given) > len(arguments.defaults) or any(one is None for one in arguments.kw_defaults)
