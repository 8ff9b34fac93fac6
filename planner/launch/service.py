"""What the commands do: launch a run (or go on with it), stop, reap. Each holds the runs that it works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError
from .adapter import Adapter, Machine, Outcome
from .blueprint import LaunchPlan
from .clock import Clock, Pace
from .ending import Ender
from .engine import apply
from .events import LaunchEvent
from .history import AttemptHistory
from .ledger import Ledger, RunLog
from .providers import LAUNCHABLE, adapter_of
from .refusals import Failures, asking, ending, machines_of
from .request import LaunchRequest
from .sending import Sender

__all__ = ["Launcher", "Target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A run of the ledger, or a machine that the ledger does not know."""

    run: str = ""
    machine: Machine | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return self.machine.id if self.machine else self.run


@dataclass(slots=True, kw_only=True)
class Launcher:
    """The ledger, the clock, and whoever listens.

    Args:
        ledger: All runs.
        state_dir: Where providers may keep what they must remember on this computer.
        clock, pace: Time.
        tell: Takes each event as it happens.
    """

    ledger: Ledger
    state_dir: Path
    clock: Clock
    tell: Callable[[LaunchEvent], None]
    pace: Pace = field(default_factory=Pace)
    _adapters: dict[str, Adapter] = field(default_factory=dict)

    def adapter(self, provider: str) -> Adapter:
        """Return the adapter of a provider, the same each time."""
        if provider not in self._adapters:
            self._adapters[provider] = adapter_of(provider, state_dir=self.state_dir, clock=self.clock)
        return self._adapters[provider]

    def outcome(self, request: LaunchRequest) -> Outcome | None:
        """Return what a run left behind when it ended; None when it left nothing that can be read."""
        with asking(request.provider, what=f"how run `{request.run}` ended", otherwise="its bucket has it"):
            return self.adapter(request.provider).outcome(request)

    def providers_to_ask(self, names: Sequence[str], *, cloud: bool) -> list[str]:
        """Return whom to ask for machines: those that were named, or all that can be asked from here.

        A provider that the ledger has an open run with is always among all.
        """
        if names:
            return [self.adapter(name).provider for name in names]
        needed = {one.plan.request.provider for log in self.ledger.runs() for one in self._open(log)}
        asked = []
        for name in LAUNCHABLE:
            adapter = self.adapter(name)
            if not adapter.remote or (cloud and (name in needed or not adapter.missing())):
                asked.append(name)
        return asked

    def to_stop(
        self,
        ids: Sequence[str],
        *,
        providers: Sequence[str],
        regions: Sequence[str] | None,
        failures: Failures,
    ) -> list[Target]:
        """Return what ids name; without ids, every open run and every machine with our tags.

        Args:
            ids: Of runs or machines.
            providers: Whom to ask; none: all that can be asked.
            regions: Where; None: wherever the account can have machines.
            failures: Takes the errors of providers that do not answer, while others may have what is to be ended.

        Raises:
            UsageError: Neither the ledger nor a cloud knows one of the ids.
        """
        runs = {log.run: self._open(log) for log in self.ledger.runs()}
        by_id = {one.machine_id: run for run, opened in runs.items() for one in opened if one.machine_id}
        found = {name: Target(run=by_id.get(name, name)) for name in ids if name in {*by_id, *runs}}
        if ids and len(found) == len(set(ids)):
            return list(found.values())
        for provider in self.providers_to_ask(providers, cloud=True):
            with failures.kept(provider):
                for machine in machines_of(self.adapter(provider), regions):
                    if (not ids and machine.owner == self.ledger.owner) or {machine.id, machine.run} & set(
                        ids
                    ):
                        target = Target(run=machine.run) if runs.get(machine.run) else Target(machine=machine)
                        found[machine.id if machine.id in ids else machine.run] = target
        for name in ids:
            if name not in found:
                failures.raise_any()
                raise UsageError(f"nothing is known of `{name}`", hint="see `gpuplan ps --cloud`")
        if not ids:
            found |= {run: Target(run=run) for run, opened in runs.items() if opened}
        return list(found.values())

    def stop(self, target: Target) -> None:
        """End what was named, for good."""
        if target.machine is not None:
            self.stop_machine(target.machine)
        else:
            self.stop_run(target.run)

    def launch(self, plan: LaunchPlan) -> AttemptHistory:
        """Apply a plan, or go on with what was begun for its run.

        Raises:
            GpuplanError: See `engine.apply`; also when the run has moved on since the plan was made.
        """
        log = self.ledger.open_run(plan.run)
        with log.held():
            history = log.history()
            current = history.current()
            if history.finished or (current and plan.request.attempt not in _next_numbers(current)):
                raise UsageError(
                    f"run `{plan.run}` has moved on since this plan was made (it is {history.state})",
                    hint="plan anew: the same command with the estimate's `plan.json`",
                )
            if current is not None and not current.is_over:
                plan = current.plan  # what was begun is finished by the same object
            return apply(
                plan, adapter=self.adapter(plan.request.provider), log=log, clock=self.clock, pace=self.pace,
                tell=self.tell,
            )  # fmt: skip

    def refresh(self, run: str) -> bool:
        """If a run's machine is gone, close its attempt; returns whether there was anything to look at."""
        history = self.ledger.peek(run)
        current = history.current()
        if history.finished or current is None or not current.is_up or (current.is_over and current.is_noted):
            return False
        log = self.ledger.open_run(run)
        with log.held():
            self._refresh(log)
        return True

    def stop_run(self, run: str, *, why: str = "stopped") -> None:
        """End a run for good: its machine, and all that belongs to it."""
        log = self.ledger.run(run)
        with log.held():
            for past in self._open(log):
                self._end(log, past, why=why)
            log.record("finished", why=why)

    def stop_machine(self, machine: Machine) -> None:
        """End a machine that the ledger does not know, if its tags say that it is ours."""
        log = self.ledger.open_run(machine.run or machine.id)
        with log.held():
            self._end_by_tags(log, machine)
            log.record("finished", why="stopped by its tags")

    def reap(self, providers: list[str], *, regions: list[str] | None) -> list[Machine]:
        """End whatever is past its cap and clean up after whatever is gone; returns what was ended.

        Args:
            providers: Whom to ask. One that fails is told of at the end; the others are asked all the same.
            regions: Where; None: wherever the account can have machines.
        """
        ended: list[Machine] = []
        failures = Failures()
        for machine in self._past_cap(providers, regions, failures):
            with failures.kept(machine.run):
                self._reap_machine(machine)
                ended.append(machine)
        for log in self.ledger.runs():
            request = next((one.plan.request for one in self._open(log)), None)
            if request is not None and request.provider in set(providers) - failures.errors.keys():
                with failures.kept(log.run), log.held():
                    self._refresh(log)
        failures.raise_any()
        return ended

    def _past_cap(
        self, providers: Sequence[str], regions: Sequence[str] | None, failures: Failures
    ) -> list[Machine]:
        """Return our machines that should have been told to end."""
        found: list[Machine] = []
        for provider in providers:
            with failures.kept(provider):
                found += machines_of(self.adapter(provider), regions)
        return [one for one in found if one.owner == self.ledger.owner and _is_past_cap(one)]

    def _reap_machine(self, machine: Machine) -> None:
        """End a machine that is past its cap, by its run's record when there is one."""
        log = self.ledger.open_run(machine.run or machine.id)
        with log.held():
            past = next((one for one in self._open(log) if one.attempt.number == machine.attempt), None)
            if past is None:
                self._end_by_tags(log, machine)
            else:
                self._end(log, past, why="past its cap")

    def _refresh(self, log: RunLog) -> None:
        """Close the attempts whose machines are gone, and note how the last one ended."""
        for past in self._open(log):
            with ending(past):
                found = None if past.is_ending else self._find(log, past)
            if found is None:
                self._end(log, past, why="its machine is gone" if past.machine_id else "it never came up")
        history = log.history()
        current = history.current()
        if not history.finished and current is not None and current.is_over and not current.is_noted:
            self._note_outcome(log, current)

    def _note_outcome(self, log: RunLog, past: AttemptHistory) -> None:
        """Write down how an attempt ended; until it could be read, the next command looks for it again."""
        outcome = self.outcome(past.plan.request)
        if outcome and outcome.attempt == past.attempt.number and outcome.status in {"done", "failed"}:
            log.record("finished", why=outcome.status, outcome=outcome.model_dump(mode="json"))
        log.record("noted", attempt=past.attempt.number)

    def _find(self, log: RunLog, past: AttemptHistory) -> Machine | None:
        """Return an attempt's machine; None when there is none, or never can have been."""
        if not past.may_have_machine:
            return None
        return self._ender(log, past.plan.request.provider).find_created(past)

    def _end(self, log: RunLog, past: AttemptHistory, *, why: str) -> None:
        """End an attempt."""
        with ending(past):
            self._ender(log, past.plan.request.provider).end_attempt(past, why=why)

    def _end_by_tags(self, log: RunLog, machine: Machine) -> None:
        """End a machine that the ledger does not know."""
        way = f"its cap is {machine.cap_at:%Y-%m-%d %H:%M} UTC" if machine.cap_at else "its tags name no cap"
        with asking(machine.provider, what=f"to end {machine.id}", otherwise=way):
            self._ender(log, machine.provider).end_machine(machine, number=machine.attempt)

    def _open(self, log: RunLog) -> list[AttemptHistory]:
        """Return the attempts of a run of which something may exist."""
        return [one for one in log.history().attempts() if one.begun and not one.is_over]

    def _ender(self, log: RunLog, provider: str) -> Ender:
        """Return what ends the machines of a run."""
        sender = Sender(
            adapter=self.adapter(provider), log=log, clock=self.clock, pace=self.pace, tell=self.tell
        )
        return Ender(sender, owner=self.ledger.owner)


def _next_numbers(current: AttemptHistory) -> set[int]:
    """Return the first attempts of plans that may be applied now: the begun plan's own, or the next one."""
    if current.is_over:
        return {current.attempt.number + 1}
    return {current.plan.request.attempt}


def _is_past_cap(machine: Machine) -> bool:
    """Whether a machine should have been told to end, by its cloud's clock."""
    return machine.cap_at is not None and machine.seen_at > machine.cap_at
