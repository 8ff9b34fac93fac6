"""Step times from the ends of batches, their comparison with the plan, and the facts of a running `fit`."""

from __future__ import annotations

import inspect
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

WARM_UP_STEPS = 5  # compilation and allocation
KEPT_STEPS = 10_000
REPORT_S = 5.0


class StepClock:
    """Times between ends of consecutive batches, without saving, validation and warm-up.

    Args:
        on_step: Receives the step times so far [s].
        report: Called at the end of a batch, at most every `REPORT_S`.
    """

    def __init__(
        self,
        on_step: Callable[[list[float]], None] = lambda times_s: None,
        report: Callable[[StepClock], None] = lambda clock: None,
    ) -> None:
        self.times_s: list[float] = []
        self.steps = 0
        self.train_s = 0.0
        self.facts: dict[str, Any] = {}
        self._on_step, self._report = on_step, report
        self._reported = -math.inf
        self._last: tuple[int, float] | None = None
        self._seen = 0
        self._began: float | None = None

    def pause(self) -> None:
        """Exclude the time until the next end of a batch; the first call marks the beginning of training."""
        self._last = None
        if self._began is None:
            self._began = time.perf_counter()

    def step(self, steps: int) -> None:
        """Record the end of one or several batches; `steps` are those of the whole run so far [-]."""
        now = time.perf_counter()
        self._seen += 1
        self.steps += 1 if self._last is None else steps - self._last[0]
        self.train_s = now - (now if self._began is None else self._began)
        if self._last is not None and self._seen > WARM_UP_STEPS and len(self.times_s) < KEPT_STEPS:
            self.times_s.append((now - self._last[1]) / max(1, steps - self._last[0]))
            self._on_step(self.times_s)
        self._last = (steps, now)
        if now - self._reported >= REPORT_S:
            self._reported = now
            self._report(self)

    def to_json(self) -> dict[str, Any]:
        """Return step count, training time, step times and facts; the loss as text: it may be no number."""
        times, loss = self.times_s, self.facts.get("loss")
        return {
            "steps": self.steps,
            "train_s": self.train_s,
            "timed_steps": len(times),
            "step_s": statistics.median(times) if times else None,
            "step_s_quartiles": statistics.quantiles(times, n=4) if len(times) > 1 else None,
            **self.facts,
            "loss": None if loss is None else f"{float(loss):.4g}",
        }


def check_step_times(times_s: list[float], *, low_s: float, high_s: float, factor: float) -> str:
    """Describe step times outside the planned interval; empty if they are within.

    Args:
        low_s, high_s: Planned interval [s].
        factor: Tolerated factor outside the interval [-].

    Example:
        >>> check_step_times([0.3] * 50, low_s=0.1, high_s=0.12, factor=2.0)
        'a step takes 0.3 s, 2.5 times the upper end of the plan (0.12 s)'
        >>> check_step_times([0.2] * 50, low_s=0.1, high_s=0.12, factor=2.0)
        ''
    """
    median_s = statistics.median(times_s)
    if median_s > high_s * factor:
        times = median_s / high_s
        return f"a step takes {median_s:.3g} s, {times:.3g} times the upper end of the plan ({high_s:.3g} s)"
    if median_s < low_s / factor:
        times = low_s / median_s
        return f"a step takes {median_s:.3g} s, {times:.3g} times less than the lower end ({low_s:.3g} s)"
    return ""


def find_epoch_iterator() -> Any:
    """Return the `EpochIterator` of the calling `fit()`, or None.

    Keras does not pass it to callbacks, so it is read from the calling frames.
    """
    frame = inspect.currentframe()
    while frame is not None:
        iterator = frame.f_locals.get("epoch_iterator")
        if hasattr(iterator, "data_adapter"):
            return iterator
        frame = frame.f_back
    return None


def find_batch_size() -> int | None:
    """Return the batch size of the calling `fit()`."""
    size = getattr(getattr(find_epoch_iterator(), "data_adapter", None), "batch_size", None)
    return int(size) if size else None
