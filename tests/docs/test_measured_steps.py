"""Numbers on measured steps in `docs/limits.md`, held against the packaged rows."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.accuracy import score_measurements
from gpuplan.predict.measurements import read_measurements
from gpuplan.predict.predictor import Predictor

ROOT = Path(__file__).parents[2]
PROFILES = sorted((ROOT / "profiles" / "measured").glob("*.json"))
ROW = re.compile(r"^\| (JAX|PyTorch) [\d.]+, .*?\| (\d+) \| (\d+) % \| (\d+) % \| (\d+) of", re.MULTILINE)


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


@pytest.mark.slow
def test_errors_on_measured_steps_are_those_of_the_page(tmp_path: Path) -> None:
    """The command on the page, by its parts: median and mean error, and steps inside the interval, per backend."""
    from lab.campaign_rows import read_profiles, write_csv

    write_csv(tmp_path / "rows.csv", read_profiles(PROFILES))
    found = score_measurements(
        read_measurements(tmp_path / "rows.csv"), load_catalog().accelerators.__getitem__, Predictor.load(),
        progress=lambda _: None,
    )  # fmt: skip
    assert not found.unpredicted
    computed = {}
    for name, framework in (("JAX", "jax"), ("PyTorch", "pytorch")):
        rows = [row for row in found.rows if row.measurement.framework == framework]
        ratios = [row.predicted_s.mid / row.measurement.step_s for row in rows]
        errors = [abs(ratio - 1) for ratio in ratios]
        inside = sum(row.predicted_s.low <= row.measurement.step_s <= row.predicted_s.high for row in rows)
        shown = (100 * statistics.median(errors), 100 * statistics.mean(errors))
        computed[name] = (len(rows), *(round(value) for value in shown), inside)
    stated = {
        name: tuple(map(int, values)) for name, *values in ROW.findall((ROOT / "docs/limits.md").read_text())
    }
    assert stated == computed
