"""What several processes say together, and when they are enough."""

from __future__ import annotations

import random
from typing import Any

import pytest
from gpuplan.profile.background_load import combine_loads
from gpuplan.profile.document import find_caveats
from gpuplan.profile.statistics import (
    ProcessLimits,
    compute_process_spread,
    compute_processes_interval,
    is_enough,
    pool_timings,
)
from gpuplan.profile.windows import MeasurementRules, Meter
from gpuplan.profile_schema import LoadRecord

RULES = MeasurementRules(most_s=1.0, least_s=0.5)


def timing(step_s: float, *, seed: int = 0, noise: float = 0.002) -> dict[str, Any]:
    """What a process measures whose steps take about so long."""
    meter, draw, now_s = Meter(RULES), random.Random(seed), 0.0
    while not meter.done:
        now_s += step_s * (1.0 + noise * draw.uniform(-1.0, 1.0))
        meter.ended(now_s)
    return meter.to_json()


def test_one_process_is_what_it_measured() -> None:
    """Nothing is added to its interval, for nothing is known of others."""
    alone = timing(0.01)
    found = pool_timings([alone], width=0.02)

    assert found == alone | {"process_medians_s": [alone["median_s"]]}
    assert compute_process_spread(found) == 0.0


def test_the_interval_is_as_wide_as_processes_lie_apart() -> None:
    """Each is sure to a fraction of a percent, but they are 4 % apart: the middle is known to 5 % either way."""
    each = [timing(step_s, seed=i) for i, step_s in enumerate((0.0098, 0.0100, 0.0102))]
    found = pool_timings(each, width=0.02)

    assert all(one["width"] < 0.004 for one in each)
    assert found["median_s"] == pytest.approx(0.0100, rel=0.002)
    assert found["low_s"] / found["median_s"] == pytest.approx(0.951, abs=0.003)
    assert found["high_s"] / found["median_s"] == pytest.approx(1.051, abs=0.003)
    assert found["stopped"] == "time"
    assert len(found["windows_s"]) == sum(found["windows_per_process"])
    assert compute_process_spread(found) == pytest.approx(0.02, abs=0.001)


def test_the_interval_holds_the_middle_of_all_processes_as_often_as_it_says() -> None:
    """Four processes at a time of many whose steps vary by 3 %: 95 % of the intervals hold the middle of all."""
    draw, held, times = random.Random(1), 0, 4000
    for _ in range(times):
        medians_s = [draw.lognormvariate(0.0, 0.03) for _ in range(4)]
        low, high = compute_processes_interval(medians_s)
        middle = (medians_s[0] * medians_s[1] * medians_s[2] * medians_s[3]) ** 0.25
        held += low * middle <= 1.0 <= high * middle

    assert held / times == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(
    ("steps_s", "took_s", "enough"),
    [
        ((0.01, 0.01), 1.0, False),  # the fewest come first
        ((0.01, 0.01, 0.01), 1.0, True),  # they agree
        ((0.01, 0.0104, 0.0096), 1.0, False),  # they do not
        ((0.01, 0.0104, 0.0096), 50.0, True),  # but it takes too long
        ((0.01, 0.0104, 0.0096, 0.01), 1.0, False),
        ((0.01, 0.0104, 0.0096, 0.01, 0.0104), 1.0, True),  # the most
    ],
)
def test_processes_follow_until_they_agree_or_it_takes_too_long(
    steps_s: tuple[float, ...], took_s: float, enough: bool
) -> None:
    """Three at least, five at most."""
    found = pool_timings([timing(step_s) for step_s in steps_s], width=0.02)
    several = ProcessLimits(fewest=3, most=5, whole_s=45.0)

    assert is_enough(found, several=several, processes=len(steps_s), took_s=took_s, most_s=1e9) is enough
    assert is_enough(found, several=several, processes=len(steps_s), took_s=took_s, most_s=0.0) is (
        len(steps_s) > 2
    )


def test_processes_that_differ_are_a_finding_with_the_way_out() -> None:
    """Two live at 31 ms and one at 37: no number of windows would have shown it."""
    fit = pool_timings([timing(0.031), timing(0.037), timing(0.031)], width=0.02)
    row = {"batch_size": 32, "fit": fit, "step": None, "pipeline": None}
    said = find_caveats(row, rules=RULES)

    assert "unsteady: 3 processes took 31 to 37 ms per step: a run may take any time in this range" in said
    assert any(one.endswith("wide after 3 processes; try `--processes 6`") for one in said)


def test_the_load_of_several_processes_is_the_mean_over_their_time() -> None:
    """One of 1 s, half of a core taken by ffmpeg, and one of 3 s in peace."""
    calm: LoadRecord = {
        "wall_s": 3.0, "cores": 2, "own_cores": 1.0, "other_cores": 0.0, "stolen_cores": 0.0, "other_share": 0.0,
        "most": [],
    }  # fmt: skip
    busy = calm | {"wall_s": 1.0, "other_cores": 0.6, "most": [{"pid": 7, "name": "ffmpeg", "cores": 0.5}]}
    found = combine_loads([busy, calm])

    assert found is not None
    assert (found["wall_s"], found["own_cores"], found["other_cores"]) == (4.0, 1.0, pytest.approx(0.15))
    assert found["other_share"] == pytest.approx(0.075)
    assert found["most"] == [{"pid": 7, "name": "ffmpeg", "cores": pytest.approx(0.125)}]
    assert combine_loads([]) is None


def _windows(*steps_s: float, settled: bool | None = True) -> Any:
    """Return the timing of a process with the given windows of two steps."""
    meter = Meter(RULES, warm=[0.5], steps_s=list(steps_s), counts=[2] * len(steps_s), settled=settled)
    return meter.to_json()


@pytest.mark.parametrize(
    ("processes", "agree", "took_s", "most_s", "enough"),
    [
        (2, True, 99.0, 0.0, False), (3, True, 1.0, 99.0, True), (3, False, 1.0, 99.0, False),
        (3, False, 44.9, 99.0, False), (3, False, 45.0, 99.0, True),
        (3, False, 1.0, 3.0, True), (3, False, 1.0, 3.1, False),
        (5, False, 1.0, 99.0, False), (6, False, 1.0, 99.0, True),
    ],
)  # fmt: skip
def test_usually_three_to_six_processes_measure_for_45_s(
    processes: int, agree: bool, took_s: float, most_s: float, enough: bool
) -> None:
    """Limits are reached, not passed; two windows of two steps of 0.5 and 1 s take 3 s."""
    pooled = _windows(0.5, 1.0) | {"stopped": "converged" if agree else "time"}

    assert is_enough(
        pooled, several=ProcessLimits(), processes=processes, took_s=took_s, most_s=most_s
    ) is enough  # fmt: skip


def test_processes_that_agree_are_as_sure_as_their_windows() -> None:
    """By hand: medians of 2 s in both, so the interval is that of 12 windows, from the third to the tenth.

    12 values have 95 % between the ranks 3 and 10 (tail of 0, 1 and 2 of 12: 79 / 4096 = 1.9 %).
    """
    each = [_windows(1.0, 1.0, 1.5, 2.5, 3.0, 3.0, settled=settled) for settled in (True, False)]
    found = pool_timings(each, width=1.0)

    assert (found["median_s"], found["low_s"], found["high_s"]) == (2.0, 1.0, 3.0)
    assert (found["width"], found["stopped"]) == (1.0, "converged")
    assert (found["warm_up"]["windows_s"], found["warm_up"]["settled"]) == ([0.5, 0.5], False)
    assert (found["windows_per_process"], found["steps_per_window"]) == ([6, 6], [2] * 12)


def test_a_process_in_warm_up_leaves_open_whether_all_settled() -> None:
    """One without counted windows does not count; with none counted, the first is told."""
    open_, counted = _windows(1.0, settled=None), _windows(1.0)

    assert pool_timings([open_, counted], width=1.0)["warm_up"]["settled"] is None
    assert pool_timings([_windows(), counted], width=1.0)["process_medians_s"] == [1.0]
    assert pool_timings([_windows()], width=1.0) == _windows() | {"process_medians_s": []}
