"""Time of a profile: whether another process may start, and how long the rest takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

QUICK_ANSWER_S = 60.0  # until the answer, without `--precise`
QUICK_WINDOWS_S = 6.0  # of windows for a configuration, without `--precise`
PRECISE_WINDOWS_S = 20.0  # of windows for a configuration, with `--precise`
FIRST_GUESS_S = 12.0  # of a process before one has ended: imports, compilation, warm-up, windows
TRACE_S = 6.0  # of the trace at the end


@dataclass(slots=True, kw_only=True)
class Schedule:
    """Start of a profile, its time limit, and the durations of its processes.

    Args:
        began_s: Start on a monotonic clock [s].
        answer_s: Time after which no process starts that would end later; None for no limit. A first process of
            each configuration always starts [s].
        fewest: Wanted processes of each configuration [-].
        took_s: Durations of the processes so far [s].
    """

    began_s: float
    answer_s: float | None
    fewest: int
    took_s: list[float] = field(default_factory=list)

    @property
    def process_s(self) -> float:
        """Expected duration of the next process: the mean so far, or a guess [s]."""
        return sum(self.took_s) / len(self.took_s) if self.took_s else FIRST_GUESS_S

    def has_time(self, now_s: float) -> bool:
        """Return whether another process, and the trace after it, are expected to end within the limit."""
        if self.answer_s is None:
            return True
        return now_s - self.began_s + self.process_s + TRACE_S <= self.answer_s

    def left_s(self, now_s: float, processes: Sequence[int]) -> float:
        """Return the expected time until the answer [s].

        Args:
            now_s: Now on the same clock, at the start of a process [s].
            processes: Processes of each configuration that have ended, 0 for one that has not started [-].
        """
        missing = sum(max(self.fewest - count, 0) for count in processes)
        left_s = max(missing, 1) * self.process_s
        if self.answer_s is not None:
            first = max(sum(1 for count in processes if count == 0), 1) * self.process_s
            left_s = min(left_s, max(self.answer_s - TRACE_S - (now_s - self.began_s), first))
        return left_s + TRACE_S
