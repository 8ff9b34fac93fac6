"""The time on the machine, part by part: what a run does beside its training steps, and for how long.

Each part carries the sentence that it rests on. Where nothing is charged or assumed (``NO_TERMS``), the training
steps are the whole run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ...units import GB, MEGA, Interval
from ..cost_terms import Bounds, CostTerms
from ..execution.workload_sizes import checkpoint_bytes, dataset_gb, forward_share, session_count

if TYPE_CHECKING:
    from ...offers.costs import HostKind
    from ...workload.model import Workload
    from ..result.device_estimate import DeviceEstimate
    from ..spot.preemption import PreemptionForecast

__all__ = ["REWORK", "TRAINING", "Timeline", "TimelineBuilder", "TimelinePhase"]

TRAINING, REWORK = "training", "rework and restarts"
FORWARD_SHARE = (
    1 / 3
)  # of a training step, where the table of operations does not say: backward is twice forward
NOTHING = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class TimelinePhase:
    """One part of the time on the machine.

    Args:
        item: What it is called in the bill.
        time_s: How long it takes [s].
        because: What the time rests on.
    """

    item: str
    time_s: Interval
    because: str


@dataclass(frozen=True)
class Timeline:
    """All parts of a run, in their order.

    Args:
        phases: The parts.
        total_s: The charged time; all parts are early or late together [s].
        sessions: How many times a machine is taken, of those that end by themselves [-].
        waits_s: Time without a machine, after one was taken back [s].
    """

    phases: tuple[TimelinePhase, ...]
    total_s: Interval
    sessions: int = 1
    waits_s: float = 0.0

    @cached_property
    def wall_s(self) -> Interval:
        """Time on the clock, waits included [s]."""
        return self.total_s.plus(self.waits_s) if self.waits_s else self.total_s

    def time_s(self, item: str) -> Interval:
        """Return the time of a part, nothing when the run has none [s]."""
        found = (phase.time_s for phase in self.phases if phase.item == item)
        return next(found, Interval(low=0.0, mid=0.0, high=0.0))


class TimelineBuilder:
    """Builds timelines of a workload on offers; parts that do not depend on the offer are computed once.

    Args:
        workload: What runs.
        terms: What is assumed.
    """

    def __init__(self, workload: Workload, terms: CostTerms) -> None:
        self.workload = workload
        self.terms = terms
        self._before: dict[HostKind, tuple[TimelinePhase, ...]] = {}
        self._after: dict[HostKind, tuple[TimelinePhase, ...]] = {}

    @cached_property
    def forward_share(self) -> float:
        """Share of a training step's arithmetic that is the forward pass [-]."""
        return forward_share(self.workload)

    @cached_property
    def checkpoint_bytes(self) -> float:
        """Size of a checkpoint [bytes]."""
        return checkpoint_bytes(self.workload, self.terms)

    @cached_property
    def compilation(self) -> TimelinePhase:
        """Start and compilation."""
        return _compilation(self.workload, self.terms)

    def preparation(self, place: HostKind) -> tuple[TimelinePhase, ...]:
        """Return the phases before the first step at a place."""
        if self.terms.costs is None:
            return ()
        if place not in self._before:
            self._before[place] = (*_arrival(self.workload, place, self.terms), self.compilation)
        return self._before[place]

    def tail(self, place: HostKind) -> tuple[TimelinePhase, ...]:
        """Return the phases after the last step at a place."""
        if place not in self._after:
            self._after[place] = tuple(_from_assumption("idle tail", "idle_tail_s", place, self.terms))
        return self._after[place]

    def schedule(
        self,
        projection: DeviceEstimate,
        *,
        place: HostKind,
        session_s: float | None = None,
        outlook: PreemptionForecast | None = None,
    ) -> Timeline | None:
        """Return the parts of the run on some devices; None when the time of its steps is unknown.

        Args:
            projection: The time of its steps.
            place: Decides what is assumed.
            session_s: Longest time that the machine is held in one piece; None: no limit [s].
            outlook: What interruptions do; None: nothing is known of them, or there are none.
        """
        train_time_s = projection.train_time_s
        if train_time_s is None:
            return None
        steps = f"{projection.run.steps:,} steps" if projection.run.steps else "steps"
        each = -(-projection.run.global_batch_size // projection.run.replicas)
        training = TimelinePhase(TRAINING, train_time_s, f"{steps} of {each} samples a device")
        before = self.preparation(place)
        work = [training, *self._validation(projection), *self._checkpoints(train_time_s, outlook)]
        ready_s, work_s = sum(p.time_s.mid for p in before), sum(p.time_s.mid for p in work)
        sessions = session_count(work_s, preparation_s=ready_s, session_s=session_s)
        lost = _interrupted(train_time_s, outlook) if outlook else _restarts(before, sessions, self.terms)
        parts = (*before, *work, *lost, *self.tail(place))
        waits_s = train_time_s.mid * outlook.waiting_share if outlook else 0.0
        return Timeline(parts, _sum(parts), sessions, waits_s)

    def _validation(self, projection: DeviceEstimate) -> list[TimelinePhase]:
        """Return the passes over the validation data: one after every epoch; none when none is known."""
        workload, step_s = self.workload, projection.step_time_s
        samples = self.terms.given("validation_samples")
        if samples is None:
            samples = workload.validation_samples
        if not samples or step_s is None or workload.epochs is None or workload.mode == "infer":
            return []
        steps = math.ceil(samples / projection.run.global_batch_size) * workload.epochs
        share = self.forward_share
        because = (
            f"{samples:,.0f} samples after each of {workload.epochs} epochs, {share:.0%} of a training step"
        )
        return [TimelinePhase("validation", step_s.scaled(steps * share), because)]

    def _checkpoints(self, train_time_s: Interval, outlook: PreemptionForecast | None) -> list[TimelinePhase]:
        """Return the time that training waits for checkpoints, the last one included."""
        if outlook is not None:
            because = (
                f"one of {outlook.run.save_s:.2g} s after every {outlook.interval_s / 60:.3g} min of work"
            )
            return [TimelinePhase("checkpoints", train_time_s.scaled(outlook.checkpoint_share), because)]
        if self.terms.costs is None:
            return []
        every, each_s, because = self._checkpointing
        runs = (train_time_s.low, train_time_s.mid, train_time_s.high)
        saves = [
            1 + (math.floor(t / pause) if pause > 0 else 0) for t, pause in zip(runs, every, strict=True)
        ]
        times = [n * one_s for n, one_s in zip(saves, each_s, strict=True)]
        return [
            TimelinePhase("checkpoints", _interval((times[0], times[1], times[2])), f"{saves[1]} {because}")
        ]

    @cached_property
    def _checkpointing(self) -> tuple[Bounds, Bounds, str]:
        """The pause between two checkpoints, the time of one, and what both rest on [s], [s]."""
        every = self.terms.bounds("checkpoint_every_s", "any") or (math.inf,) * 3
        rate = self.terms.bounds("checkpoint_mb_per_s", "any") or (math.inf,) * 3
        size = self.checkpoint_bytes
        fast, usual, slow = (size / (r * MEGA) if r else 0.0 for r in reversed(rate))
        because = f"of {size / GB:.2g} GB; {self.terms.because('checkpoint_every_s', 'any')}"
        return every, (fast, usual, slow), because


def _arrival(workload: Workload, place: HostKind, terms: CostTerms) -> list[TimelinePhase]:
    """Return the phases before compilation."""
    return [
        *_from_assumption("boot", "boot_s", place, terms),
        *_from_assumption("driver and image", "setup_s", place, terms),
        *_download(workload, place, terms),
    ]


def _from_assumption(item: str, key: str, place: HostKind, terms: CostTerms) -> list[TimelinePhase]:
    """Return a part that is one assumed time; none where nothing is assumed."""
    bounds = terms.bounds(key, place)
    return [] if bounds is None else [TimelinePhase(item, _interval(bounds), terms.because(key, place))]


def _download(workload: Workload, place: HostKind, terms: CostTerms) -> list[TimelinePhase]:
    """Return the download of the data: size over rate."""
    rate, size = terms.bounds("download_mb_per_s", place), dataset_gb(workload, terms)
    if rate is None or size is None or min(rate) <= 0:
        return []
    fast, usual, slow = (gb * GB / (r * MEGA) for gb, r in zip(size, reversed(rate), strict=True))
    what = "as given" if terms.given("dataset_gb") is not None else terms.because("dataset_share", "any")
    because = f"{size[1]:.3g} GB, {what}; {terms.because('download_mb_per_s', place)}"
    return [TimelinePhase("data download", _interval((fast, usual, slow)), because)]


def _compilation(workload: Workload, terms: CostTerms) -> TimelinePhase:
    """Return start and compilation: a base and a share of every product and convolution of the step."""
    given = terms.given("compile_s")
    if given is not None:
        return TimelinePhase("compile", _interval((given, given, given)), f"compile_s = {given:g}, as given")
    base = terms.bounds("compile_base_s", "any") or NOTHING
    each = terms.bounds("compile_s_per_contraction", "any") or NOTHING
    count = sum(1 for op in workload.ops if op.m) if workload.compiled else 0
    low, mid, high = (b + count * e for b, e in zip(base, each, strict=True))
    because = f"{count} products and convolutions; {terms.because('compile_s_per_contraction', 'any')}"
    return TimelinePhase("compile", _interval((low, mid, high)), because)


def _restarts(before: Sequence[TimelinePhase], sessions: int, terms: CostTerms) -> list[TimelinePhase]:
    """Return the overhead of restarted sessions: preparation and lost work of every session but the first."""
    if sessions == 1 or terms.costs is None:
        return []
    pause = terms.bounds("checkpoint_every_s", "any") or NOTHING
    lost = Interval(low=0.0, mid=pause[1] / 2, high=max(pause) / 2)
    again = _sum([*before, TimelinePhase(REWORK, lost, "")])
    because = f"{sessions} sessions: each but the first starts again, half a checkpoint behind"
    return [TimelinePhase(REWORK, again.scaled(sessions - 1), because)]


def _interrupted(train_time_s: Interval, outlook: PreemptionForecast) -> list[TimelinePhase]:
    """Return the charged time of lost work and new starts on machines that are taken back."""
    count, hazard = outlook.moments.preemptions, outlook.hazard
    because = f"taken back {count:.2g} times on average, lives of {hazard.up_hours:.3g} h ({hazard.basis})"
    return [TimelinePhase(REWORK, train_time_s.scaled(outlook.rework_share), because)]


def _interval(bounds: Bounds) -> Interval:
    """Return three numbers as an interval, in order whatever the user gave."""
    low, mid, high = sorted(bounds)
    return Interval(low=low, mid=mid, high=high)


def _sum(phases: Sequence[TimelinePhase]) -> Interval:
    """Return the sum of all parts, bound by bound [s]."""
    low = mid = high = 0.0
    for phase in phases:
        low, mid, high = low + phase.time_s.low, mid + phase.time_s.mid, high + phase.time_s.high
    return Interval(low=low, mid=mid, high=high)
