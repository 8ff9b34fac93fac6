"""Which processes a profile of a minute starts, and what it says is left: by hand."""

from __future__ import annotations

import pytest
from gpuplan.profile.run import FIRST_GUESS_S, TRACE_S, Schedule
from gpuplan.render.profile import ProgressFormatter


def schedule(answer_s: float | None, *took_s: float) -> Schedule:
    return Schedule(began_s=100.0, answer_s=answer_s, fewest=3, took_s=list(took_s))


def test_a_process_starts_only_if_it_and_the_trace_end_in_time() -> None:
    """Two of 20 s are over after 40 s: a third would end at 60 s, and the trace after it."""
    assert not schedule(60.0, 20.0, 20.0).has_time(140.0)
    assert schedule(60.0 + TRACE_S, 20.0, 20.0).has_time(140.0)
    assert schedule(None, 20.0, 20.0).has_time(1e6)


def test_time_left_follows_from_processes_so_far() -> None:
    """Three each of two configurations, one of 5 s ended: five more; the limit caps them."""
    assert schedule(None).left_s(100.0, [0, 0]) == pytest.approx(6 * FIRST_GUESS_S + TRACE_S)
    assert schedule(None, 5.0).left_s(105.0, [1, 0]) == pytest.approx(5 * 5.0 + TRACE_S)
    assert schedule(30.0, 5.0).left_s(105.0, [1, 0]) == pytest.approx(25.0)


def test_a_first_process_of_each_configuration_is_counted_beyond_the_limit() -> None:
    assert schedule(60.0, 50.0).left_s(150.0, [1, 0]) == pytest.approx(50.0 + TRACE_S)


def test_the_line_counts_down() -> None:
    now = 0.0
    shown = ProgressFormatter(clock=lambda: now)
    begin = {"event": "begin", "batch_size": 8, "precision": None, "process": 1}

    assert "left" not in shown.line(begin)
    shown.line({"event": "left", "left_s": 42.0})
    assert shown.line(begin).endswith("building the model · about 45 s left")
    now = 30.0
    assert shown.line(begin).endswith("about 15 s left")
    now = 50.0
    assert shown.line(begin).endswith("nearly done")
