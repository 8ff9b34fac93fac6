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
    assert meter.summary()["median_s"] == pytest.approx(0.01)
    assert sum(meter.counts) * 0.01 == pytest.approx(1.0, rel=0.15)
    windows = len(meter.warm) + len(meter.steps_s)
    assert 0 <= device.waits - 2 * (1 + windows) <= 4  # one or two that turned out too short


def test_what_compiles_or_warms_up_does_not_count() -> None:
    """Ten slow steps at the start leave no trace in the median or the mean."""
    meter, _ = measured(lambda step: 0.05 if step < 10 else 0.01)

    assert meter.settled is True
    assert meter.summary()["median_s"] == pytest.approx(0.01)
    assert meter.summary()["mean_s"] == pytest.approx(0.01)


def test_a_restless_machine_ends_the_warm_up_and_the_measurement_by_time() -> None:
    """Steps that triple every few windows never settle: said so, and the interval stays wide."""
    meter, _ = measured(lambda step: 0.01 if (step // 15) % 2 else 0.03)

    assert meter.settled is False
    assert meter.why == "time"
    assert (meter.summary()["width"] or 0.0) > RULES.width
    counted_s = [step_s * count for step_s, count in zip(meter.steps_s, meter.counts, strict=True)]
    assert sum(counted_s[:-1]) < RULES.most_s <= sum(counted_s)  # the window that passed the limit is the last


def test_steps_longer_than_the_budget_still_give_an_interval() -> None:
    """Six steps of 4 s are 24 s against a budget of 5 s: without them there would be no interval at all."""
    meter, _ = measured(lambda _: 4.0)

    assert len(meter.steps_s) == 6
    assert meter.summary()["width"] == 0.0
    assert meter.why == "converged"


def test_several_steps_a_call_are_counted() -> None:
    """`steps_per_execution=5`: a call of 50 ms is five steps of 10 ms."""
    meter, device = Meter(RULES), FakeDevice(lambda _: 0.05)
    time_windows(device.step, device.synchronize, meter=meter, clock=device.clock, steps_per_call=5)

    assert meter.summary()["median_s"] == pytest.approx(0.01)


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

    assert meter.summary()["median_s"] == pytest.approx(0.01)
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

    assert meter.summary()["mean_s"] == pytest.approx(statistics.fmean(times_s), rel=0.01)


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


def test_the_first_epoch_has_no_step_before_its_own() -> None:
    """By hand: 30 steps of 10 ms an epoch are three windows of ten, also in the second; 31 would be 10, 11, 9."""
    meter = Meter(MeasurementRules(window_s=0.098, settle_windows=2, least_s=100.0, most_s=100.0))
    for epoch in range(2):
        _ends((10.0 * epoch + 0.01 * i for i in range(31)), meter)
        meter.pause()

    assert (len(meter.warm), meter.counts) == (2, [10] * 4)


def _run_to_the_end(rules: MeasurementRules, *steps_s: float) -> Meter:
    """Return a finished meter of steps that repeat; their times are binary fractions, so that sums are exact."""
    meter = Meter(rules)
    for now_s in itertools.accumulate(itertools.chain([0.0], itertools.cycle(steps_s))):
        meter.ended(now_s)
        if meter.done:
            return meter
    raise AssertionError


@pytest.mark.parametrize(
    ("limits", "windows"),
    [
        ({"fewest": 10, "least_s": 1.0, "most_s": 9.0}, 10),
        ({"fewest": 10, "least_s": 6.0, "most_s": 9.0}, 12),  # 12 x 0.5 s
        ({"fewest": 10, "least_s": 1.0, "most_s": 4.0}, 8),  # 8 x 0.5 s, whatever the fewest are
        ({"fewest": 2, "least_s": 1.0, "most_s": 1.0}, 6),  # fewer have no interval
    ],
)
def test_windows_end_as_soon_as_a_limit_is_reached(limits: dict[str, float], windows: int) -> None:
    """By hand: windows of one step of 0.5 s, the first two of which are the warm-up."""
    rules = MeasurementRules(window_s=0.5, settle_windows=2, **limits)  # type: ignore[arg-type]
    meter = _run_to_the_end(rules, 0.5)

    assert (len(meter.warm), len(meter.steps_s), meter.why) == (2, windows, "converged")


@pytest.mark.parametrize(
    ("other_s", "width", "why"),
    [(1 + 1 / 64, 0.02, "converged"), (1 + 1 / 32, 0.02, "time"), (1.25, 0.25 / 1.125, "converged")],
)
def test_a_median_is_known_when_its_interval_is_no_wider_than_allowed(
    other_s: float, width: float, why: str
) -> None:
    """By hand: of six windows of 1 s and 1 + x s by turns, the interval is x wide, the median 1 + x/2.

    That is 1.6 %, 3.1 % and exactly what is allowed.
    """
    rules = MeasurementRules(settle_windows=2, settle_within=1.0, width=width, least_s=1.0, most_s=6.0)

    assert _run_to_the_end(rules, 1.0, other_s).why == why


@pytest.mark.parametrize(
    ("steps_s", "warm", "settled", "counted", "why"),
    [
        ((1 / 8,), 6, True, 16, "converged"),  # 2 s at least
        ((1 / 4,), 6, True, 10, "converged"),  # ten windows at least
        ((5 / 2,), 6, True, 8, "converged"),  # 20 s at most
        ((1 / 4, 3 / 4), 8, False, 40, "time"),  # 4 s of warm-up, 20 s of windows
        ((1, 1 + 1 / 32), 6, False, 20, "time"),  # they differ by 3.1 %: neither settled, nor sure to 2 %
    ],
)
def test_the_usual_rules_by_hand(
    steps_s: tuple[float, ...], warm: int, settled: bool, counted: int, why: str
) -> None:
    """Windows of one step: it takes at least 0.1 s. Six of them must agree within 3 % to end the warm-up."""
    meter = _run_to_the_end(MeasurementRules(), *steps_s)

    assert (len(meter.warm), meter.settled, len(meter.steps_s), meter.why) == (warm, settled, counted, why)


def test_a_window_takes_a_tenth_of_a_second() -> None:
    """By hand: 0.1 s are 6.4 steps of 1/64 s, so 6; the first window ends after the 7th."""
    meter = _run_to_the_end(MeasurementRules(), 1 / 64)

    assert set(meter.counts) == {6}


def test_a_process_without_counted_windows_has_no_median() -> None:
    """The warm-up is told, and that the measurement was stopped."""
    meter = Meter(MeasurementRules(window_s=0.5))
    assert [meter.ended(now_s) for now_s in (0.0, 0.25, 0.5)] == [False, False, True]

    assert not meter.done
    assert meter.to_json() == {
        "median_s": None, "windows_s": [], "steps_per_window": [],
        "warm_up": {"windows_s": [0.25], "settled": None}, "stopped": "stopped",
    }  # fmt: skip


def test_a_clock_that_stands_still_ends_no_window() -> None:
    """A second step at the same time takes none, which no window may say."""
    meter = Meter(MeasurementRules(window_s=0.5))
    assert [meter.ended(now_s) for now_s in (0.0, 0.5, 0.5)] == [False, True, False]

    assert meter.pause() is False
    assert meter.warm == [0.5]


def test_a_step_too_short_for_the_clock_is_taken_for_a_tenth_of_a_microsecond() -> None:
    """By hand: 1.05 x 0.1 ms of such steps are 1,050; then each takes 1 s and fills a window."""
    meter, device = measured(lambda step: float(step > 0), MeasurementRules(window_s=1e-4))
    windows = len(meter.warm) + len(meter.steps_s)

    assert device.started == 1 + 1050 + (windows - 1)


def test_a_rest_of_two_steps_is_spread_over_the_windows() -> None:
    """By hand: 50 steps of 6 ms in three windows of about 0.1 s are 17, 17 and 16, not 16, 16 and 18."""
    meter = Meter(RULES)
    for epoch in range(30):
        _ends((10.0 * epoch + 0.006 * i for i in range(51)), meter)
        meter.pause()

    assert set(meter.counts) == {16, 17}
