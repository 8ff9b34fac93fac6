"""Screens of `breakeven`, `rig` and `sweep` on the packaged prices: the answer first, whole at 80 columns.

This machine is a fixed one. Golden texts change with prices and the predictor: `pytest --update-golden`.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gpuplan.cli.app import run
from gpuplan.offers import local
from gpuplan.offers.catalog import Catalog, load_catalog

EXAMPLES = Path(__file__).parents[2] / "examples"
XEON = local.LocalCpu(model_name="Intel(R) Xeon(R) CPU @ 2.20GHz", cpu_id="GenuineIntel-6-79")
TEXTS = "models.py:lstm_text?length=16"
RTX4090 = ("--accelerator", "RTX4090", "--price", "2500")
ROWS, BELOW = 10, 4
SCREENS = {
    "breakeven-one": ("breakeven", "{mnist}"),
    "breakeven-long": ("breakeven", "{mnist}", "--epochs", "20000"),
    "breakeven-named": ("breakeven", "{mnist}", "--against", "colab-free,local,aws:g4dn.xlarge,cloud:spot",
                        "--runs", "20"),
    "breakeven-deadline": ("breakeven", "{mnist}", "--epochs", "20000", "--deadline", "8h"),
    "rig-buy": ("rig", "{mnist}", *RTX4090, "--hours-a-week", "150"),
    "rig-rent": ("rig", "{mnist}", *RTX4090),
    "rig-by-price": ("rig", "--accelerator", "RTX3090", "--price", "1400"),
    "sweep": ("sweep", TEXTS, "--samples", "50000", "--epochs", "20", "--batch-sizes", "64,256"),
}  # fmt: skip


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.fixture
def named(saved: str, tmp_path: Path) -> str:
    """The saved workload without the folder of its script: no text depends on where that is."""
    path = tmp_path / "mnist.json"
    path.write_text(json.dumps({**json.loads(Path(saved).read_text()), "model": "mnist_cnn.py"}))
    return str(path)


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", SCREENS)
def test_the_screen(
    monkeypatch: pytest.MonkeyPatch, named: str, golden: Callable[[str, str], None], name: str, width: int
) -> None:
    """The answer, a table of at most ten rows with its title, at most four lines below; no line too long."""

    def probe(catalog: Catalog | None = None) -> Any:
        build = partial(local.build_local_offer, catalog or load_catalog())
        return build(cpu=XEON, logical_cores=8, memory_gib=32.0, gpu_names=())

    terminal = Terminal()
    monkeypatch.setattr(local, "probe_local_offer", probe)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.chdir(EXAMPLES)
    code = run([word.replace("{mnist}", named) for word in SCREENS[name]])
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()]
    answer, table, *below = "\n".join(lines).split("\n\n")

    assert code == 0
    assert max(map(len, lines)) <= width
    assert re.match(r"Train it here|Take |Likely |Buy it: |Rent: |Do not buy: |Batch ", answer)
    rows = table.splitlines()
    header = next(row for row in rows if " machine " in f" {row}")
    assert len(rows) - rows.index(header) - 1 <= ROWS
    assert len(below) <= 1
    assert len("".join(below).splitlines()) <= BELOW
    golden(f"{name}-{width}.txt", "".join(f"{line}\n" for line in lines))
