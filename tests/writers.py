"""What a script may do to files after `fit()`: `python writers.py LAYERS KINDS TEMPORARY`, in their folder.

Each writer has a folder of its own name, with `model.bin`, `trained` and `inner/model.bin`.
"""

from __future__ import annotations

import csv
import json
import mmap
import os
import pickle
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from io import FileIO
from os import replace as replace_by_name
from pathlib import Path
from typing import Any

import numpy as np
from gpuplan.workload.capture import protect_files

NEW = b"untrained"


WRITERS: dict[str, dict[str, Callable[[Path], Any]]] = {"python": {}, "native": {}, "heavy": {}}
OPENED: dict[str, Callable[[Path], Callable[[], Any]]] = {}


def writer(kind: str) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    """Register a function that receives its folder, and returns what it reads back as bytes, if it can."""

    def register(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
        WRITERS[kind][function.__name__] = function
        return function

    return register


def opened(function: Callable[[Path], Callable[[], Any]]) -> Callable[[Path], Callable[[], Any]]:
    """Register a function that opens a file before `fit()`, and returns what writes to it afterwards."""
    OPENED[function.__name__] = function
    return function


@writer("python")
def open_text(folder: Path) -> Any:
    with open(folder / "model.bin", "w") as file:
        file.write(NEW.decode())
    return (folder / "model.bin").read_bytes()


@writer("python")
def open_to_append(folder: Path) -> Any:
    with (folder / "model.bin").open("ab") as file:
        file.write(NEW)
    return (folder / "model.bin").read_bytes().removeprefix(b"trained")


@writer("python")
def open_file_io(folder: Path) -> Any:
    with FileIO(str(folder / "model.bin"), "w") as file:
        file.write(NEW)


@writer("python")
def path_write_bytes(folder: Path) -> Any:
    (folder / "model.bin").write_bytes(NEW)
    return (folder / "model.bin").read_bytes()


@writer("python")
def new_file(folder: Path) -> Any:
    with (folder / "new.bin").open("xb") as file:
        file.write(NEW)
    return (folder / "new.bin").read_bytes()


@writer("python")
def named_temporary_file_and_replace(folder: Path) -> Any:
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(NEW)
    os.replace(file.name, folder / "model.bin")
    return (folder / "model.bin").read_bytes()


@writer("python")
def temporary_file_and_replace(folder: Path) -> Any:
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(NEW)
    shutil.move(file.name, folder / "model.bin")
    return (folder / "model.bin").read_bytes()


@writer("python")
def mkstemp_and_replace(folder: Path) -> Any:
    os.chdir(folder)
    descriptor, path = tempfile.mkstemp(dir=".")
    os.write(descriptor, NEW)
    os.close(descriptor)
    os.replace(path, "model.bin")
    return Path("model.bin").read_bytes()


@writer("python")
def replace_with_a_function_imported_before(folder: Path) -> Any:
    replace_by_name(folder / "trained", folder / "model.bin")


@writer("python")
def move(folder: Path) -> Any:
    (folder / "new.bin").write_bytes(NEW)
    shutil.move(folder / "new.bin", folder / "model.bin")
    return (folder / "model.bin").read_bytes()


@writer("python")
def move_a_folder(folder: Path) -> Any:
    shutil.move(folder / "inner", folder / "other")
    assert not (folder / "inner").exists()
    return NEW if (folder / "other" / "model.bin").read_bytes() == b"trained" else b""


@writer("python")
def rename_a_folder(folder: Path) -> Any:
    (folder / "inner").rename(folder / "other")


@writer("python")
def rename_over(folder: Path) -> Any:
    os.rename(folder / "trained", folder / "model.bin")
    return b"" if (folder / "trained").exists() or (folder / "model.bin").read_bytes() != b"trained" else NEW


@writer("python")
def path_unlink(folder: Path) -> Any:
    (folder / "model.bin").unlink()
    return b"" if (folder / "model.bin").exists() else NEW


@writer("python")
def remove_relative_to_a_folder(folder: Path) -> Any:
    os.unlink("model.bin", dir_fd=os.open(folder, os.O_RDONLY))


@writer("python")
def remove_a_tree(folder: Path) -> Any:
    shutil.rmtree(folder)
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "model.bin").write_bytes(NEW)
    return b"" if (folder / "model.bin").exists() else (folder / "inner" / "model.bin").read_bytes()


@writer("python")
def make_a_folder(folder: Path) -> Any:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "model.bin").write_bytes(NEW)
    assert (folder / "a" / "b").is_dir()
    return (folder / "a" / "b" / "model.bin").read_bytes()


@writer("python")
def make_folders_again(folder: Path) -> Any:
    os.makedirs(folder / "inner", exist_ok=True)
    (folder / "inner").mkdir(exist_ok=True)
    assert (folder / "inner" / "model.bin").read_bytes() == b"trained"
    return NEW


@writer("python")
def make_a_temporary_folder(folder: Path) -> Any:
    with tempfile.TemporaryDirectory() as made:
        np.save(f"{made}/array.npy", np.zeros(3))
        shutil.copy2(f"{made}/array.npy", folder / "model.bin")
    assert not os.path.exists(made)
    return NEW if len(np.load(folder / "model.bin")) == 3 else b""


@writer("python")
def truncate(folder: Path) -> Any:
    os.truncate(folder / "model.bin", 0)
    return (folder / "model.bin").read_bytes() + NEW


@writer("python")
def link_over(folder: Path) -> Any:
    (folder / "model.bin").unlink()
    (folder / "model.bin").symlink_to(folder / "trained")


@writer("python")
def link(folder: Path) -> Any:
    os.symlink("trained", folder / "a")
    os.link(folder / "trained", folder / "b")


@writer("python")
def change_mode_and_time(folder: Path) -> Any:
    os.chmod(folder / "model.bin", 0o600)
    os.utime(folder / "model.bin", (1, 1))
    return NEW


@writer("python")
def copy_a_tree(folder: Path) -> Any:
    shutil.copytree(folder / "inner", folder / "copy")
    return NEW if (folder / "copy" / "model.bin").read_bytes() == b"trained" else b""


@writer("python")
def map_a_file(folder: Path) -> Any:
    with (folder / "model.bin").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:5] = NEW[:5]
    return NEW if (folder / "model.bin").read_bytes()[:5] == NEW[:5] else b""


@writer("python")
def numpy_save(folder: Path) -> Any:
    np.save(folder / "a.npy", np.zeros(3))
    np.savez(folder / "b.npz", np.zeros(3))
    np.savetxt(folder / "model.bin", np.zeros(3))
    return NEW if len(np.load(folder / "a.npy")) == 3 else b""


@writer("python")
def numpy_memory_map(folder: Path) -> Any:
    mapped = np.memmap(folder / "model.bin", np.uint8, "r+")
    mapped[:] = 0
    mapped.flush()
    return NEW if not any((folder / "model.bin").read_bytes()) else b""


@writer("python")
def dump(folder: Path) -> Any:
    for name, module, mode in (("a", json, "w"), ("model.bin", pickle, "wb")):
        with (folder / name).open(mode) as file:
            module.dump([1], file)
    return NEW if json.loads((folder / "a").read_text()) == [1] else b""


@writer("python")
def write_table(folder: Path) -> Any:
    with (folder / "model.bin").open("w", newline="") as file:
        csv.writer(file).writerow(["loss", 1])
    return NEW if (folder / "model.bin").read_text().startswith("loss") else b""


@writer("python")
def write_archive(folder: Path) -> Any:
    with zipfile.ZipFile(folder / "model.bin", "w") as archive:
        archive.writestr("a", NEW)
    with zipfile.ZipFile(folder / "model.bin") as archive:
        return archive.read("a")


@writer("python")
def shell(folder: Path) -> Any:
    subprocess.run(["sh", "-c", "echo > model.bin"], cwd=folder, check=True)


@writer("python")
def system(folder: Path) -> Any:
    os.system(f"echo > {folder}/model.bin")


@writer("native")
def hdf5(folder: Path) -> Any:
    import h5py

    with h5py.File(folder / "model.bin", "w") as file:
        file["a"] = np.arange(3)
    with h5py.File(folder / "model.bin") as file:
        return NEW if len(file["a"]) == 3 else b""


@writer("native")
def sqlite(folder: Path) -> Any:
    with sqlite3.connect(folder / "known.db") as base:
        base.execute("INSERT INTO runs VALUES (2)")
        base.commit()
        return NEW if list(base.execute("SELECT * FROM runs")) == [(1,), (2,)] else b""


@writer("native")
def pandas(folder: Path) -> Any:
    import pandas as pd

    pd.DataFrame({"a": [1, 2]}).to_csv(folder / "model.bin")
    return NEW if len(pd.read_csv(folder / "model.bin")) == 2 else b""


@writer("native")
def c_library(folder: Path) -> Any:
    protect_files.call("truncate", str(folder / "model.bin"), 0)


@writer("heavy")
def torch_save(folder: Path) -> Any:
    import torch

    torch.save({"a": torch.zeros(3)}, folder / "model.bin")
    return NEW if len(torch.load(folder / "model.bin")["a"]) == 3 else b""


@writer("heavy")
def torch_script(folder: Path) -> Any:
    import torch

    torch.jit.trace(torch.nn.Linear(1, 1), torch.zeros(1, 1)).save(str(folder / "model.bin"))


@writer("heavy")
def tensorflow_file(folder: Path) -> Any:
    import tensorflow as tf

    with tf.io.gfile.GFile(str(folder / "model.bin"), "w") as file:
        file.write(NEW.decode())
    return tf.io.gfile.GFile(str(folder / "model.bin"), "rb").read()


@writer("heavy")
def tensorflow_checkpoint(folder: Path) -> Any:
    import tensorflow as tf

    variable = tf.Variable(1.0)
    path = tf.train.Checkpoint(a=variable).save(str(folder / "model.bin"))
    tf.train.Checkpoint(a=variable).restore(path).assert_consumed()
    return NEW


@writer("heavy")
def tensorflow_saved_model(folder: Path) -> Any:
    import tensorflow as tf

    tf.saved_model.save(tf.train.Checkpoint(a=tf.Variable(1.0)), str(folder / "inner"))


@opened
def a_file(folder: Path) -> Callable[[], Any]:
    file = (folder / "model.bin").open("a")
    file.write(" before")

    def write() -> None:
        file.write(NEW.decode())
        file.flush()

    return write


@opened
def a_mapped_array(folder: Path) -> Callable[[], Any]:
    mapped = np.memmap(folder / "model.bin", np.uint8, "r+")

    def write() -> None:
        mapped[:] = 0
        mapped.flush()

    return write


@opened
def a_database(folder: Path) -> Callable[[], Any]:
    base = sqlite3.connect(folder / "known.db")
    base.execute("SELECT * FROM runs").fetchall()

    def write() -> None:
        base.execute("INSERT INTO runs VALUES (2)")
        base.commit()

    return write


@opened
def an_array_file(folder: Path) -> Callable[[], Any]:
    import h5py

    file = h5py.File(folder / "known.h5", "a")

    def write() -> None:
        file["a"][:] = 7
        file.flush()

    return write


@opened
def a_socket(folder: Path) -> Callable[[], Any]:
    address = f"{tempfile.mkdtemp()}/socket"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()

    def write() -> None:
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(address)
        listening.close()

    return write


def main() -> None:
    """Call all writers of some kinds, and print what became of each as JSON."""
    layers, kinds, temporary = sys.argv[1], sys.argv[2].split(","), Path(sys.argv[3])
    here, outcomes = Path.cwd(), {}
    if layers == "none":
        protect_files.restrict_writes = lambda folders: False
    late = {name: open_it(here / name) for name, open_it in OPENED.items() if "native" in kinds}
    if "heavy" in kinds:
        import tensorflow as tf
        import torch  # noqa: F401

        tf.function(lambda: tf.constant(1))()
    protection = protect_files.FileProtection(temporary, own=here)
    chosen = {name: write for kind in kinds for name, write in WRITERS[kind].items()}
    calls = {name: lambda write=write, name=name: write(here / name) for name, write in chosen.items()} | late
    for name, write in calls.items():
        try:
            found = write()
            outcomes[name] = "written" if found == NEW else "done" if found is None else f"lost: {found!r}"
        except Exception as error:
            outcomes[name] = f"{type(error).__name__}: {error}"
        os.chdir(here)
    Path("~/.cache/data").expanduser().write_text("kept")
    (temporary / "outcomes.json").write_text(json.dumps([outcomes, protection.notes]))
    os._exit(0)


if __name__ == "__main__":
    main()
