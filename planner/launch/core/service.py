"""What the commands do: launch a run (or go on with it), stop, reap. Each holds the runs that it works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import UsageError
from ..prepare.error_messages import Failures, list_machines
from .cloud_adapter import CloudMachine
from .context import LaunchContext, is_past_cap
from .engine import apply
from .history import AttemptHistory
from .launch_plan import LaunchPlan
from .ledger import RunLog
from .leftovers import remove_leftovers
from .providers import LAUNCHABLE
from .resource_names import safe_name

__all__ = ["Launcher", "StopTarget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTarget:
    """A run of the ledger, or a machine that the ledger does not know."""

    run: str = ""
    machine: CloudMachine | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return self.machine.id if self.machine else self.run


@dataclass(slots=True, kw_only=True)
class Launcher(LaunchContext):
    """What launches, stops and reaps."""

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
    ) -> list[StopTarget]:
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
        found = {name: StopTarget(run=by_id.get(name, name)) for name in ids if name in {*by_id, *runs}}
        if ids and len(found) == len(set(ids)):
            return list(found.values())
        wanted, named = set(ids), set(found)
        for provider in self.providers_to_ask(providers, cloud=True):
            for machine in list_machines(self.adapter(provider), regions, failures):
                hit = {machine.id, machine.run} & wanted
                if not hit and (ids or machine.owner != self.acting):
                    continue
                known = any(one.made(machine) for one in runs.get(machine.run, ()))
                target = StopTarget(run=machine.run) if known else StopTarget(machine=machine)
                found[target.name] = target
                named |= hit
        for name in ids:
            if name not in named:
                failures.raise_any()
                raise UsageError(f"nothing is known of `{name}`", hint="see `gpuplan ps --cloud`")
        if not ids:
            found |= {run: StopTarget(run=run) for run, opened in runs.items() if self._may_stop(opened)}
        return list(found.values())

    def stop(self, target: StopTarget) -> None:
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
                plan, adapter=self.adapter(plan.request.provider), log=log, clock=self.clock, backoff=self.backoff,
                notify=self.notify,
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

    def stop_machine(self, machine: CloudMachine) -> None:
        """End a machine that the ledger does not know, if its tags say that it is ours."""
        log = self._log_of(machine)
        with log.held():
            self._end_by_tags(log, machine)
            log.record("finished", why="stopped by its tags")
        failures = Failures()
        remove_leftovers(
            self,
            machine.provider,
            regions=[machine.region],
            failures=failures,
            of=(machine.run, machine.attempt),
        )
        failures.raise_any()

    def reap(self, providers: list[str], *, regions: list[str] | None) -> list[CloudMachine]:
        """End whatever is past its cap and clean up after whatever is gone; returns what was ended.

        Args:
            providers: Whom to ask. One that fails is told of at the end; the others are asked all the same.
            regions: Where; None: wherever the account can have machines.
        """
        ended: list[CloudMachine] = []
        failures = Failures()
        for machine in self._past_cap(providers, regions, failures):
            with failures.kept(machine.run):
                self._reap_machine(machine)
                ended.append(machine)
        for log in self.ledger.runs():
            request = next((one.plan.request for one in self._open(log)), None)
            if request is not None and request.provider in set(providers) - failures.errors.keys():
                with failures.kept(log.run), log.held():
                    self._refresh(log, reap=True)
        for provider in set(providers) - failures.errors.keys():
            remove_leftovers(self, provider, regions=regions, failures=failures)
        failures.raise_any()
        return ended

    def _past_cap(
        self, providers: Sequence[str], regions: Sequence[str] | None, failures: Failures
    ) -> list[CloudMachine]:
        """Return our machines that should have been told to end."""
        found: list[CloudMachine] = []
        for provider in providers:
            found += list_machines(self.adapter(provider), regions, failures)
        return [one for one in found if is_past_cap(one) and self._is_ours(one)]

    def _is_ours(self, machine: CloudMachine) -> bool:
        """Whether a machine may be ended: it is this installation's, or on record here."""
        past = self._past_of(machine)
        return machine.owner == self.acting or (past is not None and self._may_stop([past]))

    def _may_stop(self, opened: Sequence[AttemptHistory]) -> bool:
        """Whether open attempts of a run are to be ended: all on record, or those of the owner that was named."""
        return any(self.owner in {None, one.plan.request.owner} for one in opened)

    def _past_of(self, machine: CloudMachine) -> AttemptHistory | None:
        """Return the open attempt that made a machine; None when the ledger has none."""
        runs = {log.run: log for log in self.ledger.runs()}
        opened = self._open(runs[machine.run]) if machine.run in runs else []
        return next((one for one in opened if one.made(machine)), None)

    def _log_of(self, machine: CloudMachine) -> RunLog:
        """Return where the end of a machine is written that the ledger does not know.

        Its run's journal, for that run is over then; one of its own when the ledger has plans of that run, for
        then it is another machine than theirs.
        """
        run = machine.run
        if run and safe_name(run) == run and not self.ledger.peek(run).plans:
            return self.ledger.open_run(run)
        return self.ledger.open_run(safe_name(machine.id))

    def _reap_machine(self, machine: CloudMachine) -> None:
        """End a machine that is past its cap, by its run's record when there is one."""
        past = self._past_of(machine)
        log = self._log_of(machine) if past is None else self.ledger.run(past.plan.run)
        with log.held():
            if past is None:
                self._end_by_tags(log, machine)
            else:
                self._end(log, past, why="past its cap")


def _next_numbers(current: AttemptHistory) -> set[int]:
    """Return the first attempts of plans that may be applied now: the begun plan's own, or the next one."""
    if current.is_over:
        return {current.attempt.number + 1}
    return {current.plan.request.attempt}
