"""Effort of a measurement: processes and time of each configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ..limits import MAX_DURATION_S, MAX_PROCESSES, require_count, require_positive
from ..records import Flag, Frozen

if TYPE_CHECKING:
    from .statistics import ProcessLimits
    from .windows import MeasurementRules

QUICK_ANSWER_S = 60.0  # until the answer, without `--precise`
QUICK_WINDOWS_S = 6.0  # of windows for a configuration, without `--precise`
PRECISE_WINDOWS_S = 20.0  # of windows for a configuration, with `--precise`


class MeasuringEffort(Frozen):
    """Processes and time of each measurement, as the user states them."""

    processes: Annotated[
        int | None, Flag("Processes that measure each configuration. Default: up to 3, with --precise up to 6.")
    ] = None
    max_time: Annotated[
        float | None, Flag("Time limit of windows, twice per configuration [s]. Default: 6, or 20.")
    ] = None
    precise: Annotated[bool, Flag("Measure for minutes: 3 to 6 processes, until they agree to 2 %.")] = False

    def process_limits(self) -> ProcessLimits:
        """Return the limits on the number of processes; UsageError for fewer than one."""
        from .statistics import ProcessLimits

        if self.processes is None:
            return ProcessLimits()
        require_count(self.processes, what="--processes", example="5", most=MAX_PROCESSES)
        return ProcessLimits(fewest=self.processes, most=self.processes)

    def rules(self) -> MeasurementRules:
        """Build the stop rules of each process; UsageError for a time limit of 0."""
        from .windows import MeasurementRules

        if self.max_time is not None:
            require_positive(self.max_time, what="--max-time", example="20", most=MAX_DURATION_S)
        return MeasurementRules.for_each_process(
            processes=self.process_limits().fewest,
            together_s=self.max_time or (PRECISE_WINDOWS_S if self.precise else QUICK_WINDOWS_S),
        )

    def answer_s(self) -> float | None:
        """Return the time after which an answer is wanted; None where processes or time are given [s]."""
        given = self.precise or self.processes is not None or self.max_time is not None
        return None if given else QUICK_ANSWER_S
