"""Timeline of a run on a machine: training steps, and everything else that takes machine time.

Each phase names its basis in a sentence. With no charges and assumptions (``NO_TERMS``), a run consists of its
training steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import mul
from typing import TYPE_CHECKING

from ..records import Frozen
from ..units import GB, MEGA, SECONDS_PER_HOUR, ZERO, Interval
from .cost_terms import HOURS_PER_DAY, Bounds, CostTerms
from .money import compute_price_nano

if TYPE_CHECKING:
    from ..offers.costs import HostKind
    from ..workload.model import Workload
    from .device_estimate import DeviceEstimate
    from .preemption import PreemptionForecast
    from .question import OfferContext


DAYS_PER_WEEK = 7
SECONDS_PER_MONTH = 30.0 * 86_400.0
USUAL_HOURS_A_DAY = 8.0  # for which a user keeps a notebook open, if not stated [h]


class Access(Frozen):
    """Terms on which a machine is had."""

    hours_a_day: float = HOURS_PER_DAY  # hours a day that the machine can run: 24 if unattended [h]
    hours_a_week: float | None = None  # weekly quota; None without one [h]
    chance: float | None = None  # of getting the accelerator on request; None if unknown, treated as certain [-]
    session_s: float | None = None  # longest session; None for no limit [s]
    hands_on_min: float = 0.0  # the user's time to start a session and fetch its results [min]
    attention_share: float = 0.0  # share of the machine hours during which the user watches [-]
    pack_nano: int = 0  # smallest pack of units that can be bought; 0 for none [1e-9 USD]
    month_nano: int = 0  # subscription of a month; 0 for none [1e-9 USD]

    def compute_wall_s(self, machine_s: float) -> float:
        """Return the calendar time that some machine time takes; the same if it runs day and night [s]."""
        if self.hours_a_day >= HOURS_PER_DAY and self.hours_a_week is None and self.chance is None:
            return machine_s
        return SECONDS_PER_HOUR * self.calendar_hours(machine_s / SECONDS_PER_HOUR)

    def own_hours(self, *, sessions: int, machine_h: float) -> float:
        """Return the user's hours: attempts x hands-on time + attention share x machine hours [h].

        An uncertain accelerator takes sessions / chance attempts.

        Example:
            >>> Access(hands_on_min=5.0, attention_share=0.05).own_hours(sessions=3, machine_h=30.0)
            1.75
        """
        attempts = math.ceil(sessions / (self.chance or 1.0))
        return attempts * self.hands_on_min / 60.0 + self.attention_share * machine_h

    def calendar_hours(self, machine_h: float) -> float:
        """Return the calendar time that some machine hours take [h].

        Days are filled one after the other; work beyond the weekly quota waits for the next week. An uncertain
        accelerator takes 1 / chance attempts, so the calendar time is divided by the chance.

        Example:
            >>> Access(hours_a_day=4.0).calendar_hours(10.0)   # two full days and two hours of the third
            50.0
            >>> Access(hours_a_week=30.0).calendar_hours(60.0)  # a week, and 30 hours
            198.0
        """
        hours, waited = machine_h, 0.0
        if self.hours_a_week is not None:
            quota = min(self.hours_a_week, DAYS_PER_WEEK * self.hours_a_day)
            weeks = max(0, math.ceil(hours / quota) - 1)
            hours -= weeks * quota
            waited = weeks * DAYS_PER_WEEK * HOURS_PER_DAY
        nights = max(0, math.ceil(hours / self.hours_a_day) - 1) if self.hours_a_day < HOURS_PER_DAY else 0
        elapsed = waited + nights * (HOURS_PER_DAY - self.hours_a_day) + hours
        return elapsed if self.chance is None else elapsed / self.chance


ALWAYS = Access()


def build_access(selected: OfferContext, terms: CostTerms) -> Access:
    """Return the terms on which an offer is had, with the user's own hours, units and subscriptions."""
    place, limits = selected.place, selected.limits
    hands_on = terms.bounds("hands_on_min", place) or (0.0, 0.0, 0.0)
    if limits is None:
        return Access(hands_on_min=hands_on[1])
    weekly = limits.weekly_quota_hours
    if weekly is not None:
        weekly = terms.given("notebook_hours_a_week") or weekly
    daily = HOURS_PER_DAY if limits.background else terms.given("notebook_hours_a_day") or USUAL_HOURS_A_DAY
    usual = terms.bounds("free_hours_a_day", place)
    if limits.free and usual is not None and usual[1] > 0 and weekly is None:
        daily = min(daily, usual[1])
    attention = terms.bounds("attention_share", place) or (0.0, 0.0, 0.0)
    is_paid = limits.plan in terms.notebook_plans
    session_h = limits.session_hours_max
    return Access(
        hours_a_day=daily,
        hours_a_week=weekly,
        chance=None if limits.guaranteed else terms.given("chance"),
        session_s=None if session_h is None else SECONDS_PER_HOUR * min(session_h, daily),
        hands_on_min=hands_on[1],
        attention_share=0.0 if limits.background else attention[1],
        pack_nano=0 if is_paid or limits.pack_usd is None else compute_price_nano(limits.pack_usd),
        month_nano=0 if is_paid or limits.usd_per_month is None else compute_price_nano(limits.usd_per_month),
    )


TRAINING, EVALUATION, REWORK = "training", "evaluation", "rework and restarts"
NOTHING = (0.0, 0.0, 0.0)
LEAST_USEFUL_SHARE = 0.05  # useful share of a session that preparation nearly fills [-]
# Share of the forward pass in a training step without operation data: the backward pass takes twice as long. [-]
FORWARD_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class TimelinePhase:
    """Phase of a run on its machine: its item in the bill, its duration [s], and the basis of that."""

    item: str
    time_s: Interval
    because: str


@dataclass(frozen=True)
class Timeline:
    """Phases of a run in order."""

    phases: tuple[TimelinePhase, ...]  # phases in order
    total_s: Interval  # billed time of one run; the durations of all phases are taken as fully correlated [s]
    # Time of all runs, one after the other, with the waits after preemptions and between sessions [s]
    wall_s: Interval
    sessions: int = 1  # number of sessions of all runs, on machines with a session limit [-]


class TimelineBuilder:
    """Builder of timelines of a workload on offers; phases that do not depend on the offer are computed once."""

    def __init__(self, workload: Workload, terms: CostTerms) -> None:
        self.workload, self.terms = workload, terms
        self._around: dict[HostKind, tuple[tuple[TimelinePhase, ...], Interval, list[TimelinePhase]]] = {}

    @cached_property
    def forward_shares(self) -> tuple[float, ...]:
        """Share of the forward pass in the FLOPs of a training step, by phase [-]."""
        return tuple(compute_forward_share(one) for one in self.workload.phases)

    @cached_property
    def checkpoint_bytes(self) -> float:
        """Size of a checkpoint: weights, state and optimizer [bytes]."""
        memory, given = self.workload.memory, self.terms.given("checkpoint_gb")
        kept = memory.parameter_bytes + memory.optimizer_bytes + memory.state_bytes
        return kept if given is None else given * GB

    def build(
        self,
        device_estimate: DeviceEstimate,
        *,
        place: HostKind,
        access: Access = ALWAYS,
        forecast: PreemptionForecast | None = None,
        runs: int = 1,
    ) -> Timeline | None:
        """Return the timeline of the run on some devices; None if its step time is unknown."""
        train_time_s = device_estimate.train_time_s
        if train_time_s is None:
            return None
        phases = device_estimate.phases or (device_estimate,)
        work = [
            TimelinePhase(TRAINING, train_time_s, ", then ".join(map(_format_steps, phases))),
            *self._list_passes(phases),
            *self._checkpoints(train_time_s, forecast),
        ]
        before, ready_s, idle = self._prepare(place)
        work_s = sum(phase.time_s.mid for phase in work)
        sessions = count_sessions(work_s, preparation_s=ready_s.mid, session_s=access.session_s)
        lost, waits_s = [], 0.0
        if sessions > 1 and self.terms.costs is not None:
            pause = self.terms.bounds("checkpoint_every_s", "any") or NOTHING
            lost_s = Interval(low=0.0, mid=pause[1] / 2, high=max(pause) / 2)
            why = f"{sessions} sessions: each but the first restarts and repeats half a checkpoint interval "
            why += "on average"
            lost = [TimelinePhase(REWORK, (ready_s + lost_s).scaled(sessions - 1), why)]
        if forecast is not None:
            why = f"preempted {forecast.moments.preemptions:.2g} times on average, mean lifetime "
            why += f"{forecast.hazard.up_hours:.3g} h ({forecast.hazard.basis})"
            lost = [TimelinePhase(REWORK, train_time_s.scaled(forecast.rework_share), why)]
            waits_s = runs * (train_time_s.mid * forecast.waiting_share)
        own = (*work, *lost, *idle)
        total_s = sum((phase.time_s for phase in own), ready_s)
        ends = (total_s.low, total_s.mid, total_s.high)
        low, mid, high = (access.compute_wall_s(runs * one) + waits_s for one in ends)
        return Timeline((*before, *own), total_s, Interval(low=low, mid=mid, high=high), runs * sessions)

    def _prepare(self, place: HostKind) -> tuple[tuple[TimelinePhase, ...], Interval, list[TimelinePhase]]:
        """Return the phases before the first step on a kind of host, their sum [s], and those after the last."""
        if self.terms.costs is None:
            return (), ZERO, []
        if place not in self._around:
            phases = [*self._assume("boot", "boot_s", place), *self._assume("driver and image", "setup_s", place)]
            rate, size_gb = self.terms.bounds("download_mb_per_s", place), self.terms.given("dataset_gb")
            if rate is not None and size_gb is not None and min(rate) > 0:
                because = f"{size_gb:.3g} GB, as given; {self.terms.because('download_mb_per_s', place)}"
                download_s = _interval(size_gb * GB / (r * MEGA) for r in rate)
                phases.append(TimelinePhase("data download", download_s, because))
            phases.append(self._compilation())
            idle = self._assume("idle tail", "idle_tail_s", place)
            self._around[place] = tuple(phases), sum((phase.time_s for phase in phases), ZERO), idle
        return self._around[place]

    def _assume(self, item: str, key: str, place: HostKind) -> list[TimelinePhase]:
        """Return a phase of an assumed duration; none without an assumption."""
        bounds = self.terms.bounds(key, place)
        return [] if bounds is None else [TimelinePhase(item, _interval(bounds), self.terms.because(key, place))]

    def _compilation(self) -> TimelinePhase:
        """Return start-up and compilation: a constant plus a time per product and convolution of the step."""
        given, each_key = self.terms.given("compile_s"), "compile_s_per_contraction"
        if given is not None:
            return TimelinePhase("compile", _interval((given,) * 3), f"compile_s = {given:g}, as given")
        base, each = (self.terms.bounds(key, "any") or NOTHING for key in ("compile_base_s", each_key))
        programs = (one for one in self.workload.phases if one.compiled)
        count = sum(one.programs * sum(1 for op in one.ops if op.m) for one in programs)
        because = f"{count} products and convolutions; {self.terms.because(each_key, 'any')}"
        return TimelinePhase("compile", _interval(b + count * e for b, e in zip(base, each, strict=True)), because)

    def _list_passes(self, phases: Sequence[DeviceEstimate]) -> list[TimelinePhase]:
        """Return the passes over the validation data, one per epoch, and those of `evaluate()` and `predict()`."""
        given = self.terms.given("validation_samples")
        found: dict[str, list[TimelinePhase]] = {"validation": [], EVALUATION: []}
        for workload, share, one in zip(self.workload.phases, self.forward_shares, phases, strict=False):
            if one.step_time_s is None:
                continue
            passes: list[tuple[str, float, int, str]] = []
            samples, epochs = workload.validation_samples if given is None else given, workload.epochs
            if samples and epochs is not None and workload.mode != "infer":
                each = f"{samples:,.0f} samples after each of {epochs} epochs"
                passes.append(("validation", samples, epochs, each))
            for own in workload.passes:
                times = f" {own.calls:,} times" if own.calls > 1 else ""
                passes.append(
                    (EVALUATION, own.samples, own.calls, f"{own.kind}() of {own.samples:,} samples{times}")
                )
            for item, size, count, because in passes:
                steps = math.ceil(size / one.run.global_batch_size) * count
                why = f"{because}, {share:.0%} of a training step"
                found[item].append(TimelinePhase(item, one.step_time_s.scaled(steps * share), why))
        return [
            TimelinePhase(item, sum((one.time_s for one in each), ZERO), "; ".join(p.because for p in each))
            for item, each in found.items()
            if each
        ]

    def _checkpoints(self, train_time_s: Interval, forecast: PreemptionForecast | None) -> list[TimelinePhase]:
        """Return the time for which training waits for checkpoints, including the final one."""
        if forecast is not None:
            time_s, save_s = train_time_s.scaled(forecast.checkpoint_share), forecast.run.save_s
            because = f"one of {save_s:.2g} s after every {forecast.interval_s / 60:.3g} min of work"
            return [TimelinePhase("checkpoints", time_s, because)]
        if self.terms.costs is None:
            return []
        every, each_s, of_each = self._checkpoint_terms
        times = (train_time_s.low, train_time_s.mid, train_time_s.high)
        saves = [
            1 + (math.floor(time / pause) if pause > 0 else 0) for time, pause in zip(times, every, strict=True)
        ]
        waits_s = _interval(map(mul, saves, each_s))
        return [TimelinePhase("checkpoints", waits_s, f"{saves[1]} {of_each}")]

    @cached_property
    def _checkpoint_terms(self) -> tuple[Bounds, list[float], str]:
        """Time between checkpoints and of each, at the three bounds [s], and what each is."""
        never, size = (math.inf,) * 3, self.checkpoint_bytes
        every, rate = (
            self.terms.bounds(key, "any") or never for key in ("checkpoint_every_s", "checkpoint_mb_per_s")
        )
        each_s = [size / (r * MEGA) if r else 0.0 for r in reversed(rate)]
        return every, each_s, f"of {size / GB:.2g} GB; {self.terms.because('checkpoint_every_s', 'any')}"


def count_sessions(work_s: float, *, preparation_s: float, session_s: float | None) -> int:
    """Return the number of sessions of some work: ceil(work / (session - preparation)) [-].

    At least 5 % of the longest session are left for work; None for no limit.

    Example:
        >>> count_sessions(90_000.0, preparation_s=3_200.0, session_s=12 * 3600.0)
        3
    """
    if session_s is None or work_s + preparation_s <= session_s:
        return 1
    return math.ceil(work_s / max(session_s - preparation_s, LEAST_USEFUL_SHARE * session_s))


def compute_forward_share(workload: Workload) -> float:
    """Return the share of the forward pass in the FLOPs of a training step [-]."""
    total = workload.flops_per_step
    forward = sum(op.flops * op.count for op in workload.ops if op.phase == "forward")
    return forward / total if 0 < forward < total else FORWARD_SHARE


def _format_steps(device_estimate: DeviceEstimate) -> str:
    """Describe the steps of a phase."""
    run = device_estimate.run
    steps = f"{run.steps:,} steps" if run.steps else "steps"
    return f"{steps} of {-(-run.global_batch_size // run.replicas)} samples a device"


def _interval(bounds: Iterable[float]) -> Interval:
    """Return three numbers as an interval, sorted because users may give them in any order."""
    low, mid, high = sorted(bounds)
    return Interval(low=low, mid=mid, high=high)
