"""Steps of Keras 3 that were timed for this project, held against their kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROFILES = sorted((ROOT / "profiles" / "measured").glob("*.json"))


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_kernels_of_a_row_add_up_to_its_device_time(path: Path) -> None:
    """The longest kernels and the rest; on one stream they take no longer than the step."""
    profile = json.loads(path.read_text())
    rows = [row for row in profile["rows"] if row["status"] == "measured"]
    assert rows
    for row in rows:
        kernels = row["kernels"]
        listed_ms = sum(kernel["ms"] for kernel in kernels["kernels"])
        assert kernels["total_ms"] == pytest.approx(listed_ms + kernels["rest_ms"], rel=1e-3)
        assert kernels["total_ms"] < 1.15 * row["step_ms"]
        environment = profile["environments"][row["environment"]]
        assert environment.get("device_state") or environment["device"]["nvidia_smi"]["driver_version"]
