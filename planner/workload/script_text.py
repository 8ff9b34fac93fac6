"""Text of the user's script or notebook: builders, what trains, and what helps where its data is missing."""

from __future__ import annotations

import ast
import json
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from types import FrameType
from urllib.error import URLError

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
    """Return the code cells of a notebook as Python."""
    try:
        cells = json.loads(text)["cells"]
        codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (KeyError, TypeError) as error:
        raise ValueError("no notebook of format 4") from error
    return tuple("\n".join(_leave_out_magics(code)) for code in codes)


def _leave_out_magics(code: str) -> Iterator[str]:
    """Yield the lines of a cell, each magic replaced by `pass`."""
    lines = code.split("\n")
    is_python = not code.lstrip().startswith("%%") or code.lstrip().startswith(_OF_PYTHON)
    if is_python and _parses(code):
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


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError):
        return False
    return True


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
    error: BaseException, *, where: str, script: str, folders: Sequence[str], is_own: Callable[[str, str], bool]
) -> tuple[str, str] | None:
    """Return the message (empty to keep that of the error) and the hint for missing data; None for other errors.

    Args:
        error: The exception.
        where: Line of the user's file, or the script.
        script: Script as the user named it.
        folders: Folders of the user's files; the script is in the first.
        is_own: Function that returns whether a file lies in such a folder.
    """
    name = None if is_from_loader(error) else _find_missing_file(error)
    if name is None and not is_from_loader(error):
        return None
    path = Path(folders[0] if folders else ".", os.path.basename(script))
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if any(is_own(frame.f_code.co_filename, folder) for folder in folders)
    ]
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
    """Return where a missing file may be, or what may stand in for it."""
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
    """Return the command that plans a model of a script without its data; empty if the script has none such.

    A function is called after the file was imported, which must not load the same data.
    """
    builders = _list_without_data(path, [frame for frame, _ in frames])
    if not builders:
        return ""
    command = f"`gpuplan estimate {script}:{builders[0]} --samples N --epochs N`"
    line = next((line for frame, line in frames if frame.f_code.co_name == "<module>"), 0)
    if _is_below_main(path, line):
        return f"{command} plans its model without the data"
    return f'move what loads it below `if __name__ == "__main__":`, then {command} plans its model without it'


def _list_without_data(path: Path, frames: Sequence[FrameType]) -> list[str]:
    """Return the functions that build a model, need no argument and load no data."""
    builders = list_builders(path)
    tree = ast.parse(path.read_text(encoding="utf-8", errors="replace") if builders else "")
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    texts = {name: ast.unparse(node) for name, node in functions.items()}
    loading = {frame.f_code.co_name for frame in frames} & functions.keys()
    loading |= {name for name, text in texts.items() if _LOADS.search(text)}
    for _ in functions:  # those that call one
        loading |= {name for name, text in texts.items() if any(f"{one}(" in text for one in loading - {name})}
    return [name for name in builders if name not in loading and not _needs_arguments(functions[name].args)]


def _needs_arguments(arguments: ast.arguments) -> bool:
    given = [*arguments.posonlyargs, *arguments.args]
    return len(given) > len(arguments.defaults) or any(one is None for one in arguments.kw_defaults)


def _is_below_main(path: Path, line: int) -> bool:
    """Return whether a line of a script runs only if it is started itself."""
    tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    return any(
        isinstance(node, ast.If)
        and "__name__" in ast.unparse(node.test)
        and node.lineno <= line <= (node.end_lineno or 0)
        for node in tree.body
    )
