"""The start-up script of every cloud, run to its end by bash: it trains, and then it ends the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch.onboard.rented_machine import OFFERS, asked, start_machine

ENDS = {"aws": "shutdown -h now", "gcp": "shutdown -P now", "azure": "curl -s -f -m 30 -H Authorization"}
TIMERS = {"aws": "shutdown -h +60", "gcp": "shutdown -P +62", "azure": "sleep 3600"}


@pytest.mark.parametrize("provider", sorted(OFFERS))
def test_a_script_runs_to_its_end_and_then_the_machine_does(provider: str, tmp_path: Path) -> None:
    """The supervisor finds its own files although the script runs elsewhere; the timer comes first of all."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("import helper; helper.train()")
    (tmp_path / "code" / "helper.py").write_text("def train(): print('trained on', 12)")
    machine = start_machine(tmp_path, provider, 1, {"GPUPLAN_METADATA_URL": "http://127.0.0.1:9"})
    machine.wait(timeout=120)

    outcome = (tmp_path / "machine-1" / "work" / "outcome.json").read_text()
    words = asked(tmp_path, 1)
    assert '"status": "done"' in outcome, (outcome, words)
    assert any(line.startswith(TIMERS[provider]) for line in words[:4])
    assert any(line.startswith(ENDS[provider]) for line in words[-3:])
    if provider != "azure":
        kept = next((tmp_path / "bucket" / "r1").rglob("outcome.json"))
        assert kept.read_text() == outcome
