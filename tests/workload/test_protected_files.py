"""From the first `fit()` on the user's files stay as they are, whatever writes to them, by each protection."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import pytest
import writers
from gpuplan.workload.capture.load import WorkloadOptions, load_workload

WRITTEN = {"hdf5", "sqlite", "numpy_save", "move", "move_a_folder", "path_unlink", "remove_a_tree", "rename_over"}
CHANGED_BELOW_PYTHON = {"c_library", "torch_script"}  # where nothing holds, by no way that is known


def make_files(folder: Path, names: list[str]) -> None:
    """Make the files of some writers."""
    for name in names:
        inner = folder / name / "inner"
        inner.mkdir(parents=True)
        for path in (inner.parent / "model.bin", inner.parent / "trained", inner / "model.bin"):
            path.write_bytes(b"trained")
        with sqlite3.connect(folder / name / "known.db") as base:
            base.execute("CREATE TABLE runs (number)")
            base.execute("INSERT INTO runs VALUES (1)")
        with h5py.File(folder / name / "known.h5", "w") as file:
            file["a"] = [1, 2, 3]


def look_at(folder: Path) -> dict[str, Any]:
    """Return type, mode and content of all that is in a folder, by path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content: Any = path.read_bytes() if path.is_file() else None
        if path.suffix == ".h5":
            with h5py.File(path) as file:  # the library marks a file as open, before `fit()`
                content = list(file["a"])
        found[str(path.relative_to(folder))] = (path.stat().st_mode, content)
    return found


def run_writers(folder: Path, *, layers: str, kinds: str) -> tuple[dict[str, str], list[str]]:
    """Run writers in a process of their own; return what became of each, and the notes; no file may change."""
    here, temporary, cache = folder / "run", folder / "temporary", folder / ".cache"
    for one in (here, temporary, cache):
        one.mkdir()
    names = [*writers.OPENED, *(name for kind in kinds.split(",") for name in writers.WRITERS[kind])]
    make_files(here, names)
    before = look_at(here)
    command = [sys.executable, writers.__file__, layers, kinds, temporary]
    environment = os.environ | {"HOME": str(folder)}
    process = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert (cache / "data").read_text() == "kept"
    after = look_at(here)
    if "a_file" in names and "native" in kinds:  # was open: written before `fit()`, not after
        assert after.pop("a_file/model.bin")[1] == b"trained before"
        del before["a_file/model.bin"]
    if layers == "none":
        for name in CHANGED_BELOW_PYTHON & set(names):
            assert after.pop(f"{name}/model.bin") != before.pop(f"{name}/model.bin")
    assert after == before
    outcomes, notes = json.loads((temporary / "outcomes.json").read_text())
    assert len(outcomes) >= len(names) - len(writers.OPENED)
    assert not [one for one in outcomes.values() if one.startswith("lost")]
    return outcomes, notes


@pytest.mark.parametrize("kinds", ["python,native", pytest.param("heavy", marks=pytest.mark.slow)])
def test_landlock_refuses_what_is_not_redirected(tmp_path: Path, kinds: str) -> None:
    """Functions of Python and of known libraries write elsewhere, all others fail."""
    outcomes, notes = run_writers(tmp_path, layers="landlock", kinds=kinds)

    if notes:
        pytest.skip("this machine has no Landlock")
    written = {name for name, one in outcomes.items() if one == "written"}
    assert written >= (WRITTEN if "native" in kinds else {"torch_save"})
    assert "enied" in outcomes["c_library" if "native" in kinds else "torch_script"]


@pytest.mark.parametrize("kinds", ["python,native", pytest.param("heavy", marks=pytest.mark.slow)])
def test_without_landlock_the_estimate_says_so(tmp_path: Path, kinds: str) -> None:
    """The same writers, but for those below Python that are not known; a note says that these can change files."""
    outcomes, notes = run_writers(tmp_path, layers="none", kinds=kinds)

    written = {name for name, one in outcomes.items() if one == "written"}
    assert written >= (WRITTEN if "native" in kinds else {"torch_save"})
    assert len(notes) == 1
    assert notes[0].startswith("files cannot be made read-only on this system")


SCRIPT = """
import os, shutil, tempfile, h5py, keras, numpy as np
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
for epochs in (1, 2):
    model.fit(np.zeros((8, 4)), np.zeros((8, 1)), epochs=epochs)
    with tempfile.NamedTemporaryFile(dir=".", delete=False) as file:
        file.write(b"untrained")
    os.replace(file.name, "model.bin")
    with h5py.File("model.h5", "w") as file:
        file["a"] = np.zeros(3)
    os.makedirs("out", exist_ok=True)
    assert open("model.bin").read() == "untrained"
"""


def test_an_estimate_leaves_trained_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both phases are planned, by what this machine has."""
    (tmp_path / "train.py").write_text(SCRIPT)
    for name in ("model.bin", "model.h5"):
        (tmp_path / name).write_text("trained")
    monkeypatch.chdir(tmp_path)
    before = look_at_bytes(tmp_path)
    workload = load_workload("train.py", options=WorkloadOptions(use_cache=False))

    assert look_at_bytes(tmp_path) == before
    assert [one.epochs for one in workload.phases] == [1, 2]
    assert not [note for note in workload.notes if "changed" in note or "followed until" in note]


def look_at_bytes(folder: Path) -> dict[str, bytes | None]:
    """Return the content of all files of a folder."""
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}
