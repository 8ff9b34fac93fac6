"""Traces are kept by content."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gpuplan.files import get_cache_folder
from gpuplan.workload.capture import load
from gpuplan.workload.capture import load as cache
from gpuplan.workload.capture.load import WorkloadOptions, load_workload

SCRIPT = """
import keras, numpy as np, widths
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(widths.WIDTH)])
model.compile(loss="mse")
model.fit(np.zeros((64, 4)), np.zeros((64, widths.WIDTH)), epochs=2)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script that imports a module of its own folder."""
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "widths.py").write_text("WIDTH = 3\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The references for which a child process was started."""
    started: list[str] = []

    def counted(text: str, **kwargs: Any) -> dict[str, Any]:
        started.append(text)
        return trace_in_child(text, **kwargs)

    trace_in_child = load.trace_in_child
    monkeypatch.setattr(load, "trace_in_child", counted)
    return started


def test_the_same_content_is_traced_once(script: Path, children: list[str]) -> None:
    """A second call returns an equal workload without a child; how long the run is needs no other trace."""
    first = load_workload("train.py", options=WorkloadOptions(), base=script)
    second = load_workload("train.py", options=WorkloadOptions(), base=script)
    longer = load_workload("train.py", options=WorkloadOptions(epochs=10, compiled=False), base=script)

    assert children == ["train.py"]
    assert first == second
    assert (longer.steps, longer.compiled) == (20, False)
    assert longer.ops == first.ops


def test_a_change_of_an_imported_module_is_noticed(script: Path, children: list[str]) -> None:
    """The entry lists the user's own files with their hashes, modules included, and nothing installed."""
    before = load_workload("train.py", options=WorkloadOptions(), base=script)
    (script / "widths.py").write_text("WIDTH = 9\n", encoding="utf-8")
    later = time.time() + 2  # Python takes the bytecode of a file of the same size and second for the file's own
    os.utime(script / "widths.py", (later, later))
    after = load_workload("train.py", options=WorkloadOptions(), base=script)

    assert (before.parameters, after.parameters) == (4 * 3 + 3, 4 * 9 + 9)
    assert len(children) == 2
    (entry,) = get_cache_folder("workloads").glob("*.json")
    assert {Path(f).name for f in json.loads(entry.read_text())["files"]} == {"train.py", "widths.py"}


def test_other_options_and_arguments_are_other_entries(script: Path) -> None:
    """Batch size, precision, mode and the script's arguments change the trace, so they change the key."""
    reference = load.parse_reference("train.py", base=script)

    def key(*argv: str, **options: Any) -> str:
        return cache.compute_entry_key(reference, base=script, options=WorkloadOptions(**options), argv=argv)

    keys = [key(), key("--x"), key(batch_size=1), key(precision="tf32"), key(mode="infer"), key(loss="mae")]
    assert len(set(keys)) == len(keys)
    assert key() == key(use_cache=False)


def test_a_recalled_workload_imports_neither_keras_nor_jax_nor_numpy(script: Path) -> None:
    """What is cached costs no heavy import."""
    load_workload("train.py", options=WorkloadOptions(), base=script)
    code = (
        "import sys\nfrom gpuplan.workload.capture.load import *\n"
        "load_workload('train.py', options=WorkloadOptions())\n"
        "print(sorted({'keras', 'jax', 'numpy'} & set(sys.modules)))"
    )
    # The key of a script names the folder that it is run in, since the script may look at it.
    subprocess.run([sys.executable, "-c", code], cwd=script, check=True)
    command = [sys.executable, "-c", code]
    again = subprocess.run(command, cwd=script, capture_output=True, text=True, check=True)

    assert again.stdout.strip() == "[]"
    assert again.stderr == ""


def test_a_broken_cache_folder_costs_one_warning(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the folder should be there is a file: the answer is the same, with one line on stderr."""
    (tmp_path / "occupied").touch()
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path / "occupied"))
    workload = load_workload("train.py", options=WorkloadOptions(), base=script)

    assert workload.parameters == 4 * 3 + 3
    assert capsys.readouterr().err.count("warning: ") == 1


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_cache_folder_costs_one_warning(
    script: Path, cache_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder without write permission: the same."""
    cache_dir.chmod(0o500)
    load_workload("train.py", options=WorkloadOptions(), base=script)

    assert capsys.readouterr().err.count("warning: ") == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "gpuplan.cache/1"}', "null"])
def test_a_damaged_entry_is_a_miss(text: str) -> None:
    """Half-written or foreign files are never taken for a trace."""
    folder = get_cache_folder("workloads")
    folder.mkdir(parents=True)
    (folder / "key.json").write_text(text, encoding="utf-8")

    assert cache.read_entry("key") is None
