"""The rules of timing, on a device whose every duration is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring.clock import Rules, spread_of, summary, time_steps, warm_up

RULES = Rules(window_s=0.2, windows=8, windows_most=16)


class FakeDevice:
    """Runs steps of given durations; like a real one it only lets time pass when somebody waits for it."""

    def __init__(self, durations_s: Iterator[float]) -> None:
        self.durations_s = durations_s
        self.now_s = 0.0
        self.queued_s = 0.0
        self.steps = 0
        self.waits = 0

    def step(self) -> None:
        self.queued_s += next(self.durations_s)
        self.steps += 1

    def synchronize(self) -> None:
        self.now_s += self.queued_s
        self.queued_s = 0.0
        self.waits += 1

    def clock(self) -> float:
        return self.now_s


def timed(
    device: FakeDevice, rules: Rules = RULES, warm: Callable[[], None] = lambda: None
) -> dict[str, object]:
    timing = time_steps(device.step, device.synchronize, rules=rules, clock=device.clock, warm=warm)
    return summary(timing, rules=rules)


def test_a_steady_step_takes_what_it_takes() -> None:
    """By hand: 10 ms a step, 20 steps a window of 0.2 s, eight windows, nothing doubtful; start-up left out."""
    device = FakeDevice(chain([7.0], repeat(0.010)))

    told = timed(device)

    assert told["step_ms"] == pytest.approx(10.0)
    assert told["steps_per_window"] in (20, 21)
    assert told["windows_ms"] == pytest.approx([10.0] * 8)
    assert told["findings"] == []
    assert told["warm_up"] == {"steps_ms": pytest.approx([7000.0, 10, 10, 10]), "settled": True}


def test_a_window_is_synchronized_at_its_ends_alone() -> None:
    """One wait before and one after: 4 warm-up steps, a pilot and 8 windows are 13 windows, so 26 waits."""
    device = FakeDevice(chain([7.0], repeat(0.010)))

    timed(device)

    assert device.waits == 2 * (4 + 1 + 8)
    assert device.steps > 8 * 20


def test_a_step_longer_than_a_window_is_a_window() -> None:
    """A step of three seconds is timed one at a time."""
    assert timed(FakeDevice(repeat(3.0)))["steps_per_window"] == 1


def test_warm_up_ends_when_three_steps_agree() -> None:
    """By hand: 5, 2, 1.05, 1, 1: the last three lie within a tenth of their median after the fifth."""
    device = FakeDevice(iter([5.0, 2.0, 1.05, 1.0, 1.0, 99.0]))

    warmed = warm_up(device.step, device.synchronize, rules=Rules(warm_up_s=60), clock=device.clock)

    assert warmed.steps_s == pytest.approx((5.0, 2.0, 1.05, 1.0, 1.0))
    assert warmed.settled


BOUNDS = [(Rules(warm_up_steps=12, warm_up_s=1e9), 12), (Rules(warm_up_s=9.0), 7)]


@pytest.mark.parametrize(("rules", "steps"), BOUNDS)
def test_a_warm_up_that_never_settles_is_bounded_and_told(rules: Rules, steps: int) -> None:
    """Steps of 1 s and 2 s in turn never agree: the count or the time ends it, and the row says so."""
    told = timed(FakeDevice(chain.from_iterable(repeat((1.0, 2.0)))), rules)

    assert len(told["warm_up"]["steps_ms"]) == steps  # type: ignore[index]
    assert any("did not settle" in finding for finding in told["findings"])  # type: ignore[attr-defined]


def test_noise_asks_for_more_windows_and_is_told() -> None:
    """Windows that alternate between 1 s and 1.5 s: sixteen instead of eight, and the spread is a finding."""
    told = timed(FakeDevice(chain(repeat(1.0, 4), chain.from_iterable(repeat((1.0, 1.5))))))

    assert len(told["windows_ms"]) == 16  # type: ignore[arg-type]
    assert any("quartiles" in finding for finding in told["findings"])  # type: ignore[attr-defined]


def test_a_device_that_slows_down_is_told() -> None:
    """Four windows at 1 s, four at 1.2 s: a drift, though each half is steady."""
    told = timed(FakeDevice(chain(repeat(1.0, 4 + 4), repeat(1.2))), Rules(windows=8, windows_most=8))

    assert any("second half ran at 1.2" in finding for finding in told["findings"])  # type: ignore[attr-defined]


def test_somebody_is_told_when_the_windows_begin() -> None:
    """Exactly once, after the warm-up and the pilot window."""
    device, seen = FakeDevice(repeat(0.1)), list[int]()

    timed(device, warm=lambda: seen.append(device.steps))

    assert seen == [3 + 2]


@given(st.lists(st.floats(0.01, 10), min_size=2, max_size=20), st.floats(0.1, 100))
def test_the_spread_has_no_unit(values: list[float], factor: float) -> None:
    """Windows that are all k times as long spread as much."""
    assert spread_of([factor * value for value in values]) == pytest.approx(spread_of(values), abs=1e-9)
