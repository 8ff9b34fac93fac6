"""What is said about doubtful measurements, and what limits a step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpuplan.profile import background_load
from gpuplan.profile.background_load import LoadMonitor
from gpuplan.profile.document import find_bottleneck, find_caveats
from gpuplan.profile.run import ProfileRequest, profile
from gpuplan.profile.statistics import ProcessLimits
from gpuplan.profile.windows import MeasurementRules, Meter
from gpuplan.profile_schema import OtherProcess

RULES = MeasurementRules(most_s=1.0, least_s=0.5)


def row(**changes: Any) -> dict[str, Any]:
    """A row of a steady measurement: 10 ms a step at batch size 32."""
    meter = Meter(RULES)
    for i in range(1, 200):
        meter.ended(0.01 * i)
    return {"batch_size": 32, "fit": meter.to_json(), "step": {"median_s": 0.009}, "pipeline": None} | changes


def busy(other: float, *most: OtherProcess, stolen: float = 0.0) -> dict[str, Any]:
    """A row of two cores, of which others used so much."""
    share = {"other_cores": other, "stolen_cores": stolen, "other_share": other / 2}
    return row(load={"wall_s": 2.0, "cores": 2, "own_cores": 1.0, **share, "most": list(most)})


def test_a_calm_and_steady_measurement_has_no_findings() -> None:
    """Nothing to say."""
    assert find_caveats(busy(0.05), rules=RULES) == []


def test_another_process_is_named_with_its_share_and_the_way_out() -> None:
    """0.8 of two cores are 40 % of the CPU."""
    (finding,) = find_caveats(busy(0.8, {"pid": 77, "name": "ffmpeg", "cores": 0.8}), rules=RULES)

    assert finding == (
        "unsteady: another process used 40 % of the CPU: `ffmpeg` (process 77); try again when it has ended"
    )


def test_the_hypervisor_is_named_when_it_is_the_culprit() -> None:
    """Time taken by other guests is not visible from inside."""
    (finding,) = find_caveats(busy(0.8, stolen=0.7), rules=RULES)

    assert "other guests of the hypervisor used 40 %" in finding


def test_advice_names_the_option() -> None:
    """Four times as long, for half of the width."""
    unsure = row()
    unsure["fit"] |= {"stopped": "time", "width": 0.08}

    assert "try `--max-time 4`" in find_caveats(unsure, rules=RULES)[0]


def test_drift_and_spread_are_told_with_their_size() -> None:
    """The second half 8 % slower, half of the windows 20 % apart."""
    shaky = row()
    shaky["fit"] |= {"drift": 0.08, "spread": 0.2}
    said = " ".join(find_caveats(shaky, rules=RULES))

    assert "1.080 times the time of the first" in said
    assert "more than 20%" in said


def test_what_does_not_grow_with_the_batch_is_launch_bound() -> None:
    """9 ms of 10 ms are there whatever the batch size."""
    limit, said = find_bottleneck(row(), fixed_s=0.009)

    assert limit == "host"
    assert said.startswith("launch-bound: 90%")
    assert find_bottleneck(row(), fixed_s=0.001) == ("device", "")
    assert find_bottleneck(row(), fixed_s=None) == (None, "")


def test_a_loader_that_is_no_faster_than_fit_is_the_limit() -> None:
    """fit() takes 32 samples each 100 ms, so does the loader alone, and the step could take 3,556 a second."""
    slow = row(step={"median_s": 0.009})
    slow["fit"] |= {"median_s": 0.1}
    slow["pipeline"] = [{"workers": 1, "samples_per_s": 320.0, "cores": 0.1, "samples_per_s_per_core": 3200.0}]
    limit, said = find_bottleneck(slow, fixed_s=0.001)

    assert limit == "input"
    assert (
        said == "input-bound: the data arrives at 320 samples/s, the step could take 3556; "
        "make the loader faster, or cache its output"
    )
    slow["pipeline"][0]["samples_per_s"] = 4000.0
    assert find_bottleneck(slow, fixed_s=0.001)[0] == "device"


def test_a_real_busy_process_is_found() -> None:
    """A child that spins is ours or another's, depending on whose pids are given."""
    spin = [sys.executable, "-c", "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"]
    other = subprocess.Popen(spin)
    try:
        watches = LoadMonitor([]), LoadMonitor([os.getpid()])
        end = os.times().elapsed + 1.0
        while os.times().elapsed < end:
            pass
        theirs, ours = (watch.stop() for watch in watches)
    finally:
        other.kill()
        other.wait()

    assert theirs["own_cores"] == 0.0
    assert theirs["other_cores"] > 0.3
    assert theirs["most"]
    assert ours["own_cores"] > 0.1  # on a machine that is busy anyway, two that spin get less than one core each
    assert ours["other_cores"] < theirs["other_cores"] - 0.5 * ours["own_cores"]
    assert theirs["other_share"] == pytest.approx(theirs["other_cores"] / theirs["cores"])


def test_what_the_caller_runs_beside_a_profile_is_not_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child of the process that asks for a profile, as in a notebook, keeps a core busy: it is another's.

    All processes are listed, since other tests may keep more of them busy than a profile names.
    """
    monkeypatch.setattr(background_load, "MAX_REPORTED", 1000)
    model = tmp_path / "tiny.py"
    model.write_text(
        "import keras\n"
        "def tiny():\n"
        "    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])\n"
        "    model.compile('sgd', 'mse')\n"
        "    return model\n"
    )
    rules = MeasurementRules(window_s=0.05, warm_up_s=0.2, least_s=0.2, most_s=0.5)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        found = profile(
            ProfileRequest(
                model=f"{model}:tiny",
                batch_sizes=(32,),
                backend="jax",
                device="cpu",
                rules=rules,
                brief=True,
                several=ProcessLimits(fewest=1, most=1),
            )
        )
    finally:
        busy.kill()
        busy.wait()

    assert busy.pid in {one["pid"] for one in found["rows"][0]["load"]["most"]}
