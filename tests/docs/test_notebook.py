"""The example notebooks, executed in a fresh kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "decide_on_colab.ipynb"
BENCHMARK = ROOT / "examples" / "benchmark_on_colab.ipynb"


def _text(output: dict[str, Any]) -> str:
    return "".join(output.get("text", "") or output.get("data", {}).get("text/html", ""))


def _execute(notebook: Path, folder: Path) -> dict[str, str]:
    """Execute a notebook by nbclient, and return what each cell says."""
    executed = folder / "executed.ipynb"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # where `gpuplan` is
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "notebook"), str(notebook), str(executed)],
        env={**os.environ, "PYTHONWARNINGS": "default", "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cells = {cell["id"]: cell for cell in json.loads(executed.read_text(encoding="utf-8"))["cells"]}
    return {name: "".join(map(_text, cell.get("outputs", ()))) for name, cell in cells.items()}


@pytest.mark.parametrize("notebook", [NOTEBOOK, BENCHMARK], ids=lambda path: path.stem)
def test_the_notebook_is_kept_without_outputs(notebook: Path) -> None:
    """A diff shows what was changed, and no number goes out of date."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]

    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_the_notebook_runs(tmp_path: Path) -> None:
    """Every cell, by nbclient: tables of offers, a measured step, and an estimate corrected by it."""
    said = _execute(NOTEBOOK, tmp_path)

    assert "<table" in said["estimate"]
    assert "Colab" in said["notebooks"]
    assert "ms a step" in said["measure"]
    assert "<table" in said["corrected"]
    assert "The time of a step here is measured." in said["decision"]


def test_the_benchmark_runs(tmp_path: Path) -> None:
    """One workload on this CPU: its row is shown and kept; a CPU's is not predicted, and the notebook goes on."""
    short = tmp_path / "short.ipynb"
    text = BENCHMARK.read_text(encoding="utf-8")
    assert "MINUTES = 10" in text
    text = text.replace("MINUTES = 10", "MINUTES = 1").replace('ONLY = \\"\\"', 'ONLY = \\"--only mlp\\"')
    short.write_text(text, encoding="utf-8")
    said = _execute(short, tmp_path)

    assert "gpuplan.profile.benchmark_models:mlp" in said["rows"]
    assert said["rows"].startswith("CPU")
    assert len(said["rows"].splitlines()) == 1
    assert "rows.csv is in the current folder" in said["download"]
