"""Launched, timed, checkpointed, killed, resumed, reconciled, known to the next estimate: all on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpuplan.launch.agent.watchdog import read_recorded
from launch.local.test_local_life import TRAIN, eventually

pytestmark = pytest.mark.slow

SCHEMAS = Path(__file__).parents[3] / "schemas"


class Computer:
    """A computer with a ledger and kept runs of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "GPUPLAN_STATE_DIR": str(folder / "state"),
            "GPUPLAN_DATA_DIR": str(folder / "data"),
            "GPUPLAN_CACHE_DIR": str(folder / "cache"),
            "GPUPLAN_CHECKPOINT_EVERY": "1s",
            "GPUPLAN_STOP_LOSS": "off",
        }

    def gpuplan(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "gpuplan", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    def estimate(self) -> dict[str, Any]:
        self.gpuplan("estimate", "train.py", "--provider", "local", "-o", "plan.json", "--", "0.01")
        found: dict[str, Any] = json.loads((self.folder / "plan.json").read_text())
        return found


def test_killed_resumed_reconciled_and_known_to_the_next_estimate(tmp_path: Path) -> None:
    """400 steps that sleep 10 ms each; SIGKILL to all of it right after the first checkpoint."""
    computer = Computer(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN.replace("epochs=5", "epochs=50"))
    before = computer.estimate()["offers"][0]
    assert before["basis"] != "measured"
    launch = ("launch", "plan.json", "--yes")
    refused = computer.gpuplan("launch", "plan.json", code=2)
    assert "add `--yes`" in refused.stderr
    computer.gpuplan(*launch, "--", "0.01")
    (work,) = eventually(lambda: list((tmp_path / "state" / "runs").glob("*/work")))
    (machine,) = (tmp_path / "state" / "machines").iterdir()
    eventually(lambda: any(work.glob("checkpoints/fit-0/step-*")))
    os.killpg(read_recorded(machine)[1].pid, signal.SIGKILL)
    run = work.parent.name

    computer.gpuplan(*launch, "--wait", "--", "0.01")
    found = json.loads(computer.gpuplan("reconcile", "plan.json", run, "--json").stdout)

    jsonschema.validate(found, json.loads((SCHEMAS / "gpuplan.reconcile.json").read_text()))
    parts = {one["part"]: one for one in found["parts"]}
    assert parts["step"]["actual"] > 0.01
    assert 0 < parts["steps"]["actual"] < 400  # of the attempt that went on from the checkpoint
    logs = [path.read_text() for path in (tmp_path / "state" / "machines").glob("*/log.txt")]
    assert [text.count("iterations 400") for text in sorted(logs)].count(1) == 1
    assert parts["machine"]["actual"] > parts["training"]["actual"]
    assert parts["machine"]["predicted"] is not None
    assert (parts["compute"]["predicted"]["mid"], parts["compute"]["actual"]) == (0, 0)
    (kept,) = (tmp_path / "data" / "runs").glob("*.profile.json")
    jsonschema.validate(json.loads(kept.read_text()), json.loads((SCHEMAS / "gpuplan.profile.json").read_text()))
    after = computer.estimate()["offers"][0]
    assert after["basis"] == "measured"
    assert after["step_time_s"]["mid"] == pytest.approx(parts["step"]["actual"], rel=1e-5)  # six digits in JSON
    assert "no run `r0-1`" in computer.gpuplan("reconcile", "plan.json", "r0-1", code=2).stderr
