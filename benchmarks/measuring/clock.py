"""Timing of a step: rule-based warm-up, then windows of many steps with one synchronization each.

Nothing here knows a framework or a real clock, so the rules can be tested with a fake one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Rules", "Timing", "WarmUp", "settled", "spread_of", "summary", "time_steps", "warm_up"]

Action = Callable[[], None]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """When a measurement starts, how much of it there is, and when it is doubted.

    Args:
        settle_steps: Warm-up ends once this many steps in a row, each synchronized, agree [-].
        settle_within: Largest distance of those from their median, as a share of it [-].
        warm_up_steps: Warm-up ends after this many steps even if they never agree [-].
        warm_up_s: ... or after this long, the first step not counted [s].
        window_s: Length of a window; a step that takes longer is a window of its own [s].
        windows: Fewest windows [-].
        windows_most: More windows follow, up to this many, while the spread is above ``spread_wanted`` [-].
        spread_wanted: Distance between the quartiles of the windows over their median [-].
        spread_doubtful: A spread, or a drift from the first to the second half, that makes a finding [-].
    """

    settle_steps: int = 3
    settle_within: float = 0.10
    warm_up_steps: int = 40
    warm_up_s: float = 4.0
    window_s: float = 0.2
    windows: int = 8
    windows_most: int = 16
    spread_wanted: float = 0.03
    spread_doubtful: float = 0.05

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """Warm-up that is not counted.

    Args:
        steps_s: Each step, synchronized: the first holds what remained of start-up [s].
        settled: Whether the last steps agreed; False when a bound ended the warm-up.
    """

    steps_s: tuple[float, ...]
    settled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Raw samples: the time of a step, averaged within each window.

    Args:
        warm_up: What came before.
        steps_per_window: Steps between two synchronizations [-].
        windows_s: Time of a step in each window, in the order in which they ran [s].
    """

    warm_up: WarmUp
    steps_per_window: int
    windows_s: tuple[float, ...]


def time_steps(
    step: Action, synchronize: Action, *, rules: Rules, clock: Clock, warm: Action = lambda: None
) -> Timing:
    """Warm up, then time windows.

    Args:
        step: Starts one step; need not wait for it.
        synchronize: Returns once every step that was started has ended.
        rules: See `Rules`.
        clock: Seconds, monotonic.
        warm: Called once, when the windows begin.
    """
    warmed = warm_up(step, synchronize, rules=rules, clock=clock)
    single_s = statistics.median(warmed.steps_s[-rules.settle_steps :])
    pilot = steps_in(
        rules.window_s, step_s=single_s
    )  # steps that overlap may be quicker: size windows by them
    pilot_s = _window(step, synchronize, steps=pilot, clock=clock)
    steps = steps_in(rules.window_s, step_s=pilot_s)
    warm()
    windows: list[float] = []
    while len(windows) < rules.windows or (
        len(windows) < rules.windows_most and spread_of(windows) > rules.spread_wanted
    ):
        windows.append(_window(step, synchronize, steps=steps, clock=clock))
    return Timing(warm_up=warmed, steps_per_window=steps, windows_s=tuple(windows))


def warm_up(step: Action, synchronize: Action, *, rules: Rules, clock: Clock) -> WarmUp:
    """Run synchronized steps until the last ones agree, or a bound is reached."""
    steps_s: list[float] = []
    while True:
        steps_s.append(_window(step, synchronize, steps=1, clock=clock))
        if settled(steps_s, rules=rules):
            return WarmUp(steps_s=tuple(steps_s), settled=True)
        enough = len(steps_s) >= rules.settle_steps and sum(steps_s[1:]) >= rules.warm_up_s
        if enough or len(steps_s) >= rules.warm_up_steps:
            return WarmUp(steps_s=tuple(steps_s), settled=False)


def settled(steps_s: Sequence[float], *, rules: Rules) -> bool:
    """Return whether the last steps lie near their median.

    Example:
        >>> settled([9.0, 1.0, 1.04, 1.0], rules=Rules()), settled([9.0, 1.0, 1.0], rules=Rules())
        (True, False)
    """
    last = steps_s[-rules.settle_steps :]
    if len(last) < rules.settle_steps:
        return False
    middle = statistics.median(last)
    return all(abs(value - middle) <= rules.settle_within * middle for value in last)


def steps_in(window_s: float, *, step_s: float) -> int:
    """Return the number of steps per window, at least one.

    Example:
        >>> steps_in(0.2, step_s=0.03), steps_in(0.2, step_s=1.5)
        (7, 1)
    """
    return max(1, math.ceil(window_s / max(step_s, 1e-9)))


def _window(step: Action, synchronize: Action, *, steps: int, clock: Clock) -> float:
    """Return the time of one of several steps between two synchronizations [s]."""
    synchronize()
    start = clock()
    for _ in range(steps):
        step()
    synchronize()
    return (clock() - start) / steps


def spread_of(values: Sequence[float]) -> float:
    """Return the distance between the quartiles over the median [-]; infinite for fewer than two values.

    Example:
        >>> round(spread_of([1.0, 1.0, 1.1, 1.1, 1.2]), 3)
        0.136
    """
    if len(values) < 2:
        return math.inf
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle


def summary(timing: Timing, *, rules: Rules) -> dict[str, Any]:
    """Return the median, its surroundings, the raw samples and what is doubtful, in milliseconds."""
    windows_ms = [1e3 * value for value in timing.windows_s]
    low, middle, high = statistics.quantiles(windows_ms, n=4)
    return {
        "step_ms": statistics.median(windows_ms),
        "step_ms_quartiles": [low, middle, high],
        "step_ms_range": [min(windows_ms), max(windows_ms)],
        "steps_per_window": timing.steps_per_window,
        "windows_ms": windows_ms,
        "warm_up": {
            "steps_ms": [1e3 * value for value in timing.warm_up.steps_s],
            "settled": timing.warm_up.settled,
        },
        "findings": findings(timing, rules=rules),
    }


def findings(timing: Timing, *, rules: Rules) -> list[str]:
    """Return the caveats of a measurement, each with a remedy."""
    found = []
    if not timing.warm_up.settled:
        found.append("the steps of the warm-up did not settle: give it longer, or look for another program")
    spread = spread_of(timing.windows_s)
    if spread > rules.spread_doubtful:
        found.append(f"the windows' quartiles are {spread:.1%} apart: run it again with the device to itself")
    half = len(timing.windows_s) // 2
    first, second = (statistics.median(part) for part in (timing.windows_s[:half], timing.windows_s[half:]))
    if abs(second / first - 1) > rules.spread_doubtful:
        found.append(f"the second half ran at {second / first:.3f} of the first's time: clocks or heat moved")
    return found
