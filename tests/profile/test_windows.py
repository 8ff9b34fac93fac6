"""When a measurement starts and stops, with a clock that the tests move."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable, Iterator

import pytest
from gpuplan.profile.windows import MeasurementRules, Meter, time_windows

RULES = MeasurementRules(window_s=0.1, warm_up_s=2.0, least_s=1.0, most_s=5.0)


class FakeDevice:
    """A clock that moves when a step is waited for."""

    def __init__(self, step_s: Callable[[int], float]) -> None:
        self.now_s, self.started, self.ended, self.step_s, self.waits = 0.0, 0, 0, step_s, 0

    def step(self) -> None:
        self.started += 1

    def synchronize(self) -> None:
        self.waits += 1
        while self.ended < self.started:
            self.now_s += self.step_s(self.ended)
            self.ended += 1

    def clock(self) -> float:
        return self.now_s


def measured(step_s: Callable[[int], float], rules: MeasurementRules = RULES) -> tuple[Meter, FakeDevice]:
    meter, device = Meter(rules), FakeDevice(step_s)
    time_windows(device.step, device.synchronize, meter=meter, clock=device.clock)
    return meter, device


def test_steady_steps_are_measured_exactly_and_quickly() -> None:
    """10 ms a step: settled at once, converged after the shortest time, one synchronization at each end."""
    meter, device = measured(lambda _: 0.01)

    assert meter.settled is True
    assert meter.why == "converged"
    assert meter.summary().median_s == pytest.approx(0.01)
    assert sum(meter.counts) * 0.01 == pytest.approx(1.0, rel=0.15)
    windows = len(meter.warm) + len(meter.steps_s)
    assert 0 <= device.waits - 2 * (1 + windows) <= 4  # one or two that turned out too short


def test_what_compiles_or_warms_up_does_not_count() -> None:
    """Ten slow steps at the start leave no trace in the median or the mean."""
    meter, _ = measured(lambda step: 0.05 if step < 10 else 0.01)

    assert meter.settled is True
    assert meter.summary().median_s == pytest.approx(0.01)
    assert meter.summary().mean_s == pytest.approx(0.01)


def test_a_restless_machine_ends_the_warm_up_and_the_measurement_by_time() -> None:
    """Steps that triple every few windows never settle: said so, and the interval stays wide."""
    meter, _ = measured(lambda step: 0.01 if (step // 15) % 2 else 0.03)

    assert meter.settled is False
    assert meter.why == "time"
    assert (meter.summary().width or 0.0) > RULES.width
    counted_s = [step_s * count for step_s, count in zip(meter.steps_s, meter.counts, strict=True)]
    assert sum(counted_s[:-1]) < RULES.most_s <= sum(counted_s)  # the window that passed the limit is the last


def test_steps_longer_than_the_budget_still_give_an_interval() -> None:
    """Six steps of 4 s are 24 s against a budget of 5 s: without them there would be no interval at all."""
    meter, _ = measured(lambda _: 4.0)

    assert len(meter.steps_s) == 6
    assert meter.summary().width == 0.0
    assert meter.why == "converged"


def test_several_steps_a_call_are_counted() -> None:
    """`steps_per_execution=5`: a call of 50 ms is five steps of 10 ms."""
    meter, device = Meter(RULES), FakeDevice(lambda _: 0.05)
    time_windows(device.step, device.synchronize, meter=meter, clock=device.clock, steps_per_call=5)

    assert meter.summary().median_s == pytest.approx(0.01)


def _ends(times: Iterator[float], meter: Meter) -> None:
    for now_s in times:
        meter.ended(now_s)


def test_nothing_between_a_pause_and_the_next_step_counts() -> None:
    """Two epochs of 10 ms steps with 60 s of validation between them."""
    meter = Meter(RULES)
    _ends((0.01 * i for i in range(1, 200)), meter)
    meter.pause()
    _ends((62.0 + 0.01 * i for i in range(1, 200)), meter)

    assert max(meter.warm + meter.steps_s) == pytest.approx(0.01)
    assert meter.why == "converged"


def test_warm_up_must_settle_before_it_counts() -> None:
    """Every window is either warm-up or counts."""
    meter = Meter(RULES)
    closed = sum(meter.ended(0.01 * i) for i in range(1, 100))

    assert closed == len(meter.warm) + len(meter.steps_s)
    assert len(meter.warm) == RULES.settle_windows


def test_slow_steps_end_no_window_early() -> None:
    """Steps of 10 ms, every fifth or so of 100 ms: windows that ended by the clock would say 40 ms and more.

    Their mean would count a window of one slow step as much as one of ten fast steps.
    """
    draw = random.Random(0)
    steps_s = [0.1 if draw.random() < 0.2 else 0.01 for _ in range(5000)]
    meter = Meter(MeasurementRules(window_s=0.1, least_s=100.0, most_s=100.0))
    _ends(itertools.accumulate(steps_s), meter)

    truth_s = statistics.fmean(steps_s)
    assert statistics.fmean(meter.steps_s) == pytest.approx(truth_s, rel=0.05)


def test_epochs_shorter_than_a_window_are_measured_whole() -> None:
    """Four steps of 10 ms an epoch never fill 100 ms: each epoch is a window, without its first step."""
    meter = Meter(RULES)
    for epoch in range(100):
        _ends((epoch + 0.01 * i for i in range(4)), meter)
        meter.pause()

    assert meter.summary().median_s == pytest.approx(0.01)
    assert set(meter.counts) == {3}


@pytest.mark.parametrize("steps", [7, 50, 64])
def test_every_step_of_an_epoch_counts(steps: int) -> None:
    """Early steps take twice as long as late ones; 100 ms fill half an epoch, or one and a bit, or less than one.

    Were what is left at an epoch's end dropped, the early steps would speak for all.
    """
    times_s = [0.006 if step < steps / 2 else 0.003 for step in range(steps)]
    meter = Meter(MeasurementRules(window_s=0.1, least_s=5.0, most_s=5.0, warm_up_s=1.0))
    for epoch in range(100):
        _ends((10.0 * epoch + end_s for end_s in itertools.accumulate([0.0, *times_s])), meter)
        meter.pause()

    assert meter.summary().mean_s == pytest.approx(statistics.fmean(times_s), rel=0.01)


@pytest.mark.parametrize(
    ("rest", "counts", "is_window"), [(4, [10, 14], False), (5, [10, 10, 5], True), (0, [10, 10], False)]
)
def test_a_rest_of_half_a_window_is_one_and_less_joins_the_last(
    rest: int, counts: list[int], is_window: bool
) -> None:
    """By hand: windows of ten steps of 10 ms, twice, and then a few steps of 20 ms until the pause."""
    meter = Meter(MeasurementRules(window_s=0.098, settle_windows=6, least_s=100.0, most_s=100.0))
    ends = itertools.accumulate([0.0, *[0.01] * (6 * 10 + 20), *[0.02] * rest])
    _ends(ends, meter)
    assert (meter.settled, meter.counts) == (True, [10, 10])

    assert meter.pause() is is_window
    assert meter.counts == counts
    last = {0: 0.01, 4: (10 * 0.01 + 4 * 0.02) / 14, 5: 0.02}[rest]
    assert meter.steps_s == pytest.approx([*[0.01] * (len(counts) - 1), last])


def test_a_short_epoch_is_a_window_of_its_own() -> None:
    """Three steps between two pauses, far from the ten of a window: they are all that there are."""
    meter = Meter(MeasurementRules(window_s=0.098))
    _ends(itertools.accumulate([0.0, *[0.01] * 10]), meter)
    meter.pause()
    _ends(itertools.accumulate([10.0, *[0.01] * 3]), meter)

    assert meter.pause() is True
    assert meter.warm == pytest.approx([0.01, 0.01])
    assert meter.pause() is False


def test_windows_are_of_one_length() -> None:
    """49 steps of 4 ms between two pauses: 25 and 24 of them, not 25 and then what is left of 26."""
    meter = Meter(RULES)
    for epoch in range(30):
        _ends((10.0 * epoch + 0.00385 * i for i in range(50)), meter)
        meter.pause()

    assert set(meter.counts) == {24, 25}


def test_an_epoch_has_as_many_steps_as_were_taken_since_the_last_pause() -> None:
    """By hand: 30 steps of 10 ms an epoch are three windows of ten; 31 steps would be 11, 11 and 9."""
    meter = Meter(MeasurementRules(window_s=0.098, least_s=100.0, most_s=100.0))
    for epoch in range(6):
        _ends((10.0 * epoch + 0.01 * i for i in range(31)), meter)
        meter.pause()

    assert meter.counts == [10] * 12  # the first six are the warm-up


def test_halves_that_differ_by_four_percent_have_not_settled() -> None:
    """The usual rules: medians of three windows each within 3 % end the warm-up, and not before."""
    apart, alike = (Meter(MeasurementRules(window_s=0.098)) for _ in range(2))
    for meter, growth in ((apart, 1.04), (alike, 1.02)):
        _ends(itertools.accumulate([0.0, *[0.01] * 30, *[0.01 * growth] * 30]), meter)
        assert len(meter.warm) == 6

    assert (apart.settled, alike.settled) == (None, True)


def test_processes_share_the_time_and_each_measures_long_enough() -> None:
    """By hand: three of 21 s have 7 s each, 2 s at least; three of 3 s have one second each, and all of it."""
    long, short = (MeasurementRules.for_each_process(processes=3, together_s=seconds) for seconds in (21.0, 3.0))
    assert (long.most_s, long.least_s, long.warm_up_s) == (7.0, 2.0, 4.0)
    assert (short.most_s, short.least_s, short.warm_up_s) == (1.0, 1.0, 1.0)
