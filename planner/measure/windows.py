"""When a measurement starts, and when it is enough. Knows no framework and no real clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .statistics import FEWEST_WINDOWS, Summary, settled, summarize

__all__ = ["Meter", "Rules", "Why", "time_windows"]

Why = Literal["converged", "time"]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """When warm-up ends, how long a window is, and when the median is known well enough.

    Args:
        window_s: A window holds as many steps as take about this long, going by the window before, and windows of
            one length fill an epoch; the first one ends with the first step that ends after it [s].
        settle_windows: Warm-up ends when the two halves of so many windows in a row agree [-].
        settle_within: ... in the median, by this share of it [-].
        warm_up_s: Warm-up ends after this long even if they never agree, and after so many windows [s].
        width: Width of the 95 % interval of the median, over the median, that is good enough [-].
        fewest: Fewest windows that count [-].
        least_s: The windows that count last at least this long together [s].
        most_s: ... and at most this long, but for the fewest windows [s].
    """

    window_s: float = 0.1
    settle_windows: int = 6
    settle_within: float = 0.03
    warm_up_s: float = 4.0
    width: float = 0.02
    fewest: int = 10
    least_s: float = 2.0
    most_s: float = 20.0

    @classmethod
    def of_each(cls, *, processes: int, together_s: float) -> Rules:
        """Return when each of several processes stops, so that the windows of all take no longer than allowed.

        Args:
            processes: That measure the same [-].
            together_s: What their windows may take, all of them [s].
        """
        most_s, usual = together_s / processes, cls()
        return cls(most_s=most_s, least_s=min(usual.least_s, most_s), warm_up_s=min(usual.warm_up_s, most_s))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


@dataclass(slots=True)
class Meter:
    """Turns the ends of steps into windows, and says when to stop.

    Feed it the time at which each step (or few steps) has ended; call `pause` wherever something else than steps
    comes next (an epoch's end, validation): what lies between is in no window. Every step between two pauses is in
    one, but for the first: where an epoch's early steps take longer than its late ones, all of them count.

    Args:
        rules: See `Rules`.
        warm: Windows before anything counted: time of a step [s].
        steps_s: Time of a step in each window that counts [s].
        counts: Steps in each window that counts [-].
        settled: Whether the warm-up ended by agreement; None while it lasts.
        why: Why it stopped; None while it goes on.
    """

    rules: Rules
    warm: list[float] = field(default_factory=list)
    steps_s: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    settled: bool | None = None
    why: Why | None = None
    _since_s: float | None = None
    _last_s: float = 0.0  # when the last step ended
    _steps: int = 0  # of the window under way
    _run: int = 0  # steps since the last pause
    _stretch: int = 0  # steps between the two pauses before; 0 before
    _planned: int = 0  # steps of a window; 0 before the first
    _counted: bool = False  # whether a window since the last pause counts
    _warmed_s: float = 0.0
    _measured_s: float = 0.0

    def pause(self) -> bool:
        """End the window under way (a short rest joins the one before); return whether there is a new one."""
        if self._since_s is None:
            return False
        elapsed_s, self._stretch = self._last_s - self._since_s, self._run
        long = elapsed_s > 0.0 and 2 * self._steps >= min(self._planned, self._run)
        if long:
            self._close(elapsed_s)
        elif self._steps and self._counted:
            self._extend(elapsed_s)
        self._since_s, self._steps, self._run, self._counted = None, 0, 0, False
        return long

    def ended(self, now_s: float, steps: int = 1) -> bool:
        """Take note that steps have ended; return whether that closed a window.

        Args:
            now_s: When [s].
            steps: How many, since the last call [-].
        """
        self._last_s = now_s
        if self._since_s is None:
            self._since_s = now_s
            return False
        self._steps, self._run = self._steps + steps, self._run + steps
        elapsed_s = now_s - self._since_s
        if elapsed_s <= 0.0 or not self._is_full(elapsed_s):
            return False
        self._close(elapsed_s)
        self._since_s, self._steps = now_s, 0
        return True

    def _is_full(self, elapsed_s: float) -> bool:
        """Return whether the steps of the window are enough.

        Their number is chosen before, not by the clock: windows that ended when time is up would end early just
        when steps were slow, and count those few as much as the many of a fast one.
        """
        if self._planned:
            return self._steps >= self._planned
        return elapsed_s >= self.rules.window_s

    def _close(self, elapsed_s: float) -> None:
        step_s = elapsed_s / self._steps
        self._planned = self._plan(step_s)
        if self.settled is None:
            self._warm(step_s, elapsed_s)
            return
        self.steps_s.append(step_s)
        self.counts.append(self._steps)
        self._measured_s += elapsed_s
        self._counted = True
        if self.why is None:
            self.why = self._enough()

    def _extend(self, elapsed_s: float) -> None:
        steps = self.counts[-1] + self._steps
        self.steps_s[-1] = (self.steps_s[-1] * self.counts[-1] + elapsed_s) / steps
        self.counts[-1] = steps
        self._measured_s += elapsed_s

    def _plan(self, step_s: float) -> int:
        """Return how many steps the next window holds: windows of one length fill what lies between pauses."""
        wanted = max(1, round(self.rules.window_s / step_s))
        if not self._stretch:
            return wanted
        return math.ceil(self._stretch / max(1, round(self._stretch / wanted)))

    def _warm(self, step_s: float, elapsed_s: float) -> None:
        rules = self.rules
        self.warm.append(step_s)
        self._warmed_s += elapsed_s
        if settled(self.warm, last=rules.settle_windows, within=rules.settle_within):
            self.settled = True
        elif self._warmed_s >= rules.warm_up_s and len(self.warm) >= rules.settle_windows:
            self.settled = False

    def _enough(self) -> Why | None:
        rules, count = self.rules, len(self.steps_s)
        if count < max(rules.fewest, FEWEST_WINDOWS) and self._measured_s < rules.most_s:
            return None
        if count < FEWEST_WINDOWS:
            return None
        if self._measured_s < rules.least_s:
            return None
        width = self.summary().width
        if width is not None and width <= rules.width:
            return "converged"
        return "time" if self._measured_s >= rules.most_s else None

    @property
    def done(self) -> bool:
        """Whether there is nothing left to measure."""
        return self.why is not None

    def summary(self) -> Summary:
        """Return what the windows that count say; there must be one."""
        return summarize(self.steps_s, self.counts)

    def to_json(self) -> dict[str, Any]:
        """Return the summary, the raw samples and how it went, as plain JSON types."""
        return {
            **(self.summary().to_json() if self.steps_s else {"median_s": None}),
            "windows_s": self.steps_s,
            "steps_per_window": self.counts,
            "warm_up": {"windows_s": self.warm, "settled": self.settled},
            "stopped": self.why or "stopped",
        }


def time_windows(
    step: Callable[[], None],
    synchronize: Callable[[], None],
    *,
    meter: Meter,
    clock: Clock,
    steps_per_call: int = 1,
    on_window: Callable[[Meter], None] = lambda meter: None,
) -> None:
    """Run steps in windows, the device synchronized at each end, until the meter has enough.

    Args:
        step: Starts one step; need not wait for it.
        synchronize: Returns once every step that was started has ended.
        meter: Takes the windows.
        clock: Seconds, monotonic.
        steps_per_call: Steps that one call of ``step`` runs [-].
        on_window: Called after each window, outside of any.
    """  # fmt: skip
    synchronize()
    start_s = clock()
    step()
    synchronize()
    single_s = max(clock() - start_s, 1e-7)
    while not meter.done:
        calls = max(1, round(1.05 * meter.rules.window_s / single_s))
        synchronize()
        start_s = clock()
        for _ in range(calls):
            step()
        synchronize()
        end_s = clock()
        meter.ended(start_s, 0)
        single_s = max((end_s - start_s) / calls, 1e-7)
        if meter.ended(end_s, calls * steps_per_call) or meter.pause():
            on_window(meter)
        meter.pause()
