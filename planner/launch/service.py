"""Operations behind the commands: launch or continue a run, stop, reap. Each locks the runs that it changes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from ..errors import CredentialsError, GpuplanError, UsageError
from .clouds import LAUNCHABLE
from .context import LaunchContext, is_past_cap, remove_leftovers
from .core.cloud_adapter import CloudMachine, RunOutcome
from .core.error_messages import Failures, list_machines
from .core.history import AttemptHistory
from .core.launch_plan import LaunchPlan
from .core.ledger import RunLog
from .core.request import build_safe_name
from .engine import apply
from .reports import describe_end, find_report, keep_report


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTarget:
    """A run of the ledger, or a machine that is not in the ledger."""

    run: str = ""
    machine: CloudMachine | None = None

    @property
    def name(self) -> str:
        """Id of the machine, or name of the run."""
        return self.machine.id if self.machine else self.run


@dataclass(slots=True, kw_only=True)
class Launcher(LaunchContext):
    """Launches, stops and reaps."""

    def providers_to_ask(self, names: Sequence[str], *, cloud: bool) -> list[str]:
        """Return the providers to query for machines: the named ones, or all that can be queried here.

        A provider with an open run in the ledger is always among all.

        Raises:
            UsageError: A named provider is not supported.
            CredentialsError: A named provider cannot be queried from here.
        """
        if names:
            return [self._require_reachable(name) for name in names]
        needed = {one.plan.request.provider for log in self.ledger.runs() for one in log.history().open_attempts()}
        asked = []
        for name in LAUNCHABLE:
            adapter = self.adapter(name)
            if not adapter.remote or (cloud and (name in needed or not adapter.missing())):
                asked.append(name)
        return asked

    def _require_reachable(self, name: str) -> str:
        """Return a provider's name; CredentialsError if it cannot be queried."""
        adapter = self.adapter(name)
        if adapter.remote and (why := adapter.missing()):
            problem, _, way = why.partition(": ")
            raise CredentialsError(f"cannot query {adapter.provider}: {problem}", hint=way or None)
        return adapter.provider

    def to_stop(
        self, ids: Sequence[str], *, providers: Sequence[str], regions: Sequence[str] | None, failures: Failures
    ) -> list[StopTarget]:
        """Return the runs and machines that ids name; without ids, all open runs and machines with our tags.

        Args:
            ids: Ids of runs or machines.
            providers: Providers to query; empty: all that can be queried.
            regions: Regions to query; None: all that the account can use.
            failures: Collects errors of providers that do not answer.

        Raises:
            UsageError: An id is unknown to the ledger and the clouds.
        """
        runs = {log.run: log.history().open_attempts() for log in self.ledger.runs()}
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
                raise UsageError(f"unknown run or machine `{name}`", hint="see `gpuplan ps --cloud`")
        if not ids:
            found |= {run: StopTarget(run=run) for run, opened in runs.items() if self._may_stop(opened)}
        return list(found.values())

    def stop(self, target: StopTarget) -> None:
        """End a run or a machine for good."""
        if target.machine is not None:
            self.stop_machine(target.machine)
        else:
            self.stop_run(target.run)

    def launch(self, plan: LaunchPlan) -> AttemptHistory:
        """Apply a plan, or continue the plan that was begun for its run.

        Raises:
            GpuplanError: See `engine.apply`; also when the run has changed since the plan was made.
        """
        log = self.ledger.open_run(plan.run)
        with log.held():
            history = log.history()
            current = history.current()
            expected = plan.request.attempt
            if current is not None:
                expected = current.attempt.number + 1 if current.is_over else current.plan.request.attempt
            if history.finished or plan.request.attempt != expected:
                raise UsageError(
                    f"run `{plan.run}` has changed since this plan was made (it is {history.state})",
                    hint="plan again: the same command with the estimate's `plan.json`",
                )
            if current is not None and not current.is_over:
                plan = current.plan  # an interrupted launch is continued by the same plan
            return apply(plan, self.runner(log, plan.request.provider))

    def refresh(self, run: str) -> bool:
        """Close the attempt of a run if its machine is gone; return whether there was anything to check."""
        history = self.ledger.peek(run)
        current = history.current()
        if history.finished or current is None or not current.is_up or (current.is_over and current.is_noted):
            return False
        log = self.ledger.open_run(run)
        with log.held():
            self._refresh(log)
        return True

    def watch(self, run: str) -> RunOutcome | None:
        """Return the last report of a run's machine, or None; one that says how it ended is recorded."""
        past = self.ledger.peek(run).current()
        report = self.report(past) if past else None
        if past and report and report.status != "running" and find_report(past) is None:
            log = self.ledger.open_run(run)
            with log.held():
                keep_report(log, past, report)
        return report

    def find_failed_runs(self, asked: Sequence[str], failures: Failures) -> list[str]:
        """Describe the open runs whose machine failed before training; without asking, those on record."""
        found = []
        for log in self.ledger.runs():
            for past in log.history().open_attempts():
                with failures.collect(log.run):
                    is_asked = past.plan.request.provider in asked
                    report = self.watch(log.run) if is_asked else find_report(past)
                    if report is not None and report.failed:
                        found.append(": ".join(describe_end(log.run, report)))
        return found

    def stop_run(self, run: str, *, why: str = "stopped") -> None:
        """End a run for good: its machine and all its resources."""
        log = self.ledger.run(run)
        with log.held():
            for past in log.history().open_attempts():
                with suppress(GpuplanError):  # which must not keep the machine alive
                    report = self.report(past)
                    keep_report(log, past, report)
                    if report is not None and report.failed:
                        self.tell("failed", ": ".join(describe_end(run, report)), past)
                self._end(log, past, why=why)
            log.record("finished", why=why)

    def stop_machine(self, machine: CloudMachine) -> None:
        """End a machine that is not in the ledger, if its tags name the owner."""
        log = self._log_of(machine)
        with log.held():
            self._end_by_tags(log, machine)
            log.record("finished", why="stopped by its tags")
        failures = Failures()
        of = (machine.run, machine.attempt)
        remove_leftovers(self, machine.provider, regions=[machine.region], failures=failures, of=of)
        failures.raise_any()

    def reap(self, providers: list[str], *, regions: list[str] | None) -> list[CloudMachine]:
        """End machines past their cap and remove what ended machines left; return the machines ended.

        Args:
            providers: Providers to query. Errors are raised at the end, after the other providers.
            regions: Regions to query; None: all that the account can use.
        """
        ended: list[CloudMachine] = []
        failures = Failures()
        listed = [one for name in providers for one in list_machines(self.adapter(name), regions, failures)]
        for machine in [one for one in listed if is_past_cap(one) and self._is_ours(one)]:
            with failures.collect(machine.run):
                self._reap_machine(machine)
                ended.append(machine)
        for log in self.ledger.runs():
            request = next((one.plan.request for one in log.history().open_attempts()), None)
            if request is not None and request.provider in set(providers) - failures.errors.keys():
                with failures.collect(log.run), log.held():
                    self._refresh(log, reap=True)
        for provider in set(providers) - failures.errors.keys():
            remove_leftovers(self, provider, regions=regions, failures=failures)
        failures.raise_any()
        return ended

    def _is_ours(self, machine: CloudMachine) -> bool:
        """Whether a machine may be ended: it belongs to this installation, or is on record."""
        past = self._past_of(machine)
        return machine.owner == self.acting or (past is not None and self._may_stop([past]))

    def _may_stop(self, opened: Sequence[AttemptHistory]) -> bool:
        """Whether open attempts may be ended: all on record, or those of the named owner."""
        return any(self.owner in {None, one.plan.request.owner} for one in opened)

    def _past_of(self, machine: CloudMachine) -> AttemptHistory | None:
        """Return the open attempt that made a machine, or None."""
        opened = [log.history().open_attempts() for log in self.ledger.runs() if log.run == machine.run]
        return next((one for one in chain(*opened) if one.made(machine)), None)

    def _log_of(self, machine: CloudMachine) -> RunLog:
        """Return the journal for the end of a machine that is not in the ledger.

        The journal of its run, or a separate one when the ledger has plans of that run: then the machine is not
        one of theirs.
        """
        run = machine.run
        if run and build_safe_name(run) == run and not self.ledger.peek(run).plans:
            return self.ledger.open_run(run)
        return self.ledger.open_run(build_safe_name(machine.id))

    def _reap_machine(self, machine: CloudMachine) -> None:
        """End a machine past its cap, by the record of its run if there is one."""
        past = self._past_of(machine)
        log = self._log_of(machine) if past is None else self.ledger.run(past.plan.run)
        with log.held():
            if past is None:
                self._end_by_tags(log, machine)
            else:
                self._end(log, past, why="past its cap")
