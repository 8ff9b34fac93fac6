"""Errors of scripts whose data is missing: found by where they were raised, with what helps in this script."""

from __future__ import annotations

import ast
import os
import re
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from urllib.error import URLError

from .script_text import list_builders

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
