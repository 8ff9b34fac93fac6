"""The example notebook, executed in a fresh kernel."""

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


def _text(output: dict[str, Any]) -> str:
    return "".join(output.get("text", "") or output.get("data", {}).get("text/html", ""))


def test_the_notebook_is_kept_without_outputs() -> None:
    """A diff shows what was changed, and no number goes out of date."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]

    assert all(
        cell["outputs"] == [] and cell["execution_count"] is None
        for cell in cells
        if cell["cell_type"] == "code"
    )


def test_the_notebook_runs(tmp_path: Path) -> None:
    """Every cell, by nbclient: tables of offers, a measured step, and an estimate corrected by it."""
    executed = tmp_path / "executed.ipynb"
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "notebook"), str(NOTEBOOK), str(executed)],
        env={**os.environ, "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cells = {cell["id"]: cell for cell in json.loads(executed.read_text(encoding="utf-8"))["cells"]}
    said = {name: "".join(map(_text, cell.get("outputs", ()))) for name, cell in cells.items()}

    assert "<table" in said["estimate"]
    assert "colab" in said["notebooks"]
    assert "ms a step" in said["measure"]
    assert "measured" in said["corrected"]
    assert "cheapest:" in said["decision"]
