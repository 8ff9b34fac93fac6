"""Start and stop rules of a measurement, independent of framework and clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, cast

from ..profile_schema import Timing, WindowStatistics
from ..records import Frozen
from .statistics import MIN_WINDOWS, is_settled, summarize


class MeasurementRules(Frozen):
    """Rules for the end of warm-up, the length of a window, and sufficient precision of the median."""

    # target length of a window; its number of steps follows from the previous window, so that equal windows fill
    # an epoch. The first window ends with the first step after this time [s]
    window_s: float = 0.1
    settle_windows: int = 6  # number of consecutive windows whose halves must agree to end the warm-up [-]
    settle_within: float = 0.03  # largest relative difference of their medians [-]
    warm_up_s: float = 4.0  # time after which warm-up ends without agreement, given enough windows [s]
    width: float = 0.02  # sufficient width of the 95 % interval of the median, relative to the median [-]
    fewest: int = 10  # minimum number of counted windows [-]
    least_s: float = 2.0  # minimum total time of counted windows [s]
    most_s: float = 20.0  # maximum total time of counted windows, unless there are too few of them [s]

    @classmethod
    def for_each_process(cls, *, processes: int, together_s: float) -> MeasurementRules:
        """Return the rules for each of several processes whose windows have some time together [s]."""
        most_s, usual = together_s / processes, cls()
        return cls(most_s=most_s, least_s=min(usual.least_s, most_s), warm_up_s=min(usual.warm_up_s, most_s))


@dataclass(slots=True)
class Meter:
    """Grouping of step times into windows, with a stop criterion.

    Pass the end time of each step (or few steps) to `ended`, and call `pause` before anything else (an
    epoch's end, validation), whose time belongs to no window. Every step between two pauses belongs to a
    window, except the first, so that slow early steps of an epoch count as much as fast late ones.
    """

    rules: MeasurementRules  # measurement rules
    warm: list[float] = field(default_factory=list)  # mean step times of warm-up windows [s]
    steps_s: list[float] = field(default_factory=list)  # mean step times of counted windows [s]
    counts: list[int] = field(default_factory=list)  # numbers of steps in counted windows [-]
    settled: bool | None = None  # whether the warm-up ended by agreement; None during warm-up
    why: Literal["converged", "time"] | None = None  # reason for stopping; None until then
    _since_s: float | None = None
    _last_s: float = 0.0  # end of the last step
    _steps: int = 0  # steps in the current window
    _run: int = 0  # steps since the last pause
    _stretch: int = 0  # steps between the previous two pauses; 0 initially
    _planned: int = 0  # steps per window; 0 before the first
    _counted: bool = False  # whether a window since the last pause was counted
    _warmed_s: float = 0.0
    _measured_s: float = 0.0

    def pause(self) -> bool:
        """End the current window (a short one joins the previous); return whether there is a new one."""
        if self._since_s is None:
            return False
        elapsed_s, self._stretch = self._last_s - self._since_s, self._run
        long = elapsed_s > 0.0 and 2 * self._steps >= min(self._planned, self._run)
        if long:
            self._close(elapsed_s)
        elif self._steps and self._counted:
            steps = self.counts[-1] + self._steps
            self.steps_s[-1] = (self.steps_s[-1] * self.counts[-1] + elapsed_s) / steps
            self.counts[-1] = steps
            self._measured_s += elapsed_s
        self._since_s, self._steps, self._run, self._counted = None, 0, 0, False
        return long

    def ended(self, now_s: float, steps: int = 1) -> bool:
        """Record the end of steps since the last call [-]; return whether a window was completed."""
        self._last_s = now_s
        if self._since_s is None:
            self._since_s = now_s
            return False
        self._steps, self._run = self._steps + steps, self._run + steps
        elapsed_s = now_s - self._since_s
        # The number of steps is fixed beforehand: windows limited by time would contain fewer steps when steps are
        # slow, giving slow steps too much weight.
        is_full = self._steps >= self._planned if self._planned else elapsed_s >= self.rules.window_s
        if elapsed_s <= 0.0 or not is_full:
            return False
        self._close(elapsed_s)
        self._since_s, self._steps = now_s, 0
        return True

    def _close(self, elapsed_s: float) -> None:
        step_s, rules = elapsed_s / self._steps, self.rules
        self._planned = max(1, round(rules.window_s / step_s))
        if self._stretch:  # equal windows fill the interval between pauses
            self._planned = math.ceil(self._stretch / max(1, round(self._stretch / self._planned)))
        if self.settled is not None:
            self.steps_s.append(step_s)
            self.counts.append(self._steps)
            self._measured_s += elapsed_s
            self._counted = True
            self.why = self.why or self._enough()
            return
        self.warm.append(step_s)
        self._warmed_s += elapsed_s
        if is_settled(self.warm, last=rules.settle_windows, within=rules.settle_within):
            self.settled = True
        elif self._warmed_s >= rules.warm_up_s and len(self.warm) >= rules.settle_windows:
            self.settled = False

    def _enough(self) -> Literal["converged", "time"] | None:
        rules, count = self.rules, len(self.steps_s)
        late = self._measured_s >= rules.most_s
        if count < MIN_WINDOWS or self._measured_s < rules.least_s or (count < rules.fewest and not late):
            return None
        width = self.summary()["width"]
        if width is not None and width <= rules.width:
            return "converged"
        return "time" if late else None

    @property
    def done(self) -> bool:
        """Whether the measurement is complete."""
        return self.why is not None

    def summary(self) -> WindowStatistics:
        """Return the statistics of the counted windows, of which there must be at least one."""
        return summarize(self.steps_s, self.counts)

    def to_json(self) -> Timing:
        """Return summary, raw samples and stop reason as plain JSON types."""
        timing = {
            **(self.summary() if self.steps_s else {"median_s": None}),
            "windows_s": self.steps_s,
            "steps_per_window": self.counts,
            "warm_up": {"windows_s": self.warm, "settled": self.settled},
            "stopped": self.why or "stopped",
        }
        return cast("Timing", timing)


def time_windows(
    step: Callable[[], None],
    synchronize: Callable[[], None],
    *,
    meter: Meter,
    clock: Callable[[], float] = time.perf_counter,
    steps_per_call: int = 1,
    on_window: Callable[[Meter], None] = lambda meter: None,
) -> None:
    """Run steps in windows, synchronizing the device at each end, until the meter is done.

    Args:
        step: Starts one step or several, possibly without waiting for them.
        synchronize: Waits for all started steps.
        meter: Meter of the windows.
        clock: Monotonic clock [s].
        steps_per_call: Steps run by one call of ``step`` [-].
        on_window: Callback after each window, not timed.
    """

    def run(calls: int) -> tuple[float, float]:
        synchronize()
        start_s = clock()
        for _ in range(calls):
            step()
        synchronize()
        return start_s, clock()

    calls = 1
    start_s, end_s = run(calls)
    while not meter.done:
        single_s = max((end_s - start_s) / calls, 1e-7)
        calls = max(1, round(1.05 * meter.rules.window_s / single_s))
        start_s, end_s = run(calls)
        meter.ended(start_s)
        if meter.ended(end_s, calls * steps_per_call) or meter.pause():
            on_window(meter)
        meter.pause()
