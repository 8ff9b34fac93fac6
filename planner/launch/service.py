"""Operations behind the commands: launch or continue a run, stop, reap. Each locks the runs that it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from ..errors import CredentialsError, GpuplanError, UsageError
from .clouds import LAUNCHABLE, create_adapter
from .core.api_call import CloudError
from .core.clock import BackoffPolicy, Clock
from .core.cloud_adapter import Adapter, CloudMachine, Leftover, RunOutcome
from .core.error_messages import Failures, explain_errors, explain_teardown_errors, list_machines
from .core.history import AttemptHistory, History
from .core.launch_plan import EventName, LaunchEvent, LaunchPlan
from .core.ledger import Ledger, RunLog
from .core.request import build_safe_name
from .core.retry import CallRunner
from .engine import Application, Teardown
from .reports import describe_end, find_report, keep_report, read_report

LONGEST_NAME = 100  # of a run in a tag, as a name of a folder


@dataclass(slots=True, kw_only=True)
class Launcher:
    """Launches, stops and reaps; `notify` receives each event."""

    ledger: Ledger
    state_dir: Path  # folder of the adapters' state on this computer
    clock: Clock
    notify: Callable[[LaunchEvent], None]
    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)
    owner: str | None = None  # owner whose machines are ended by their tags; None: the ledger's owner
    _adapters: dict[str, Adapter] = field(default_factory=dict)

    @property
    def acting(self) -> str:
        """Owner whose machines are ended by their tags."""
        return self.owner or self.ledger.owner

    def adapter(self, provider: str) -> Adapter:
        """Return the adapter of a provider, created once."""
        if provider not in self._adapters:
            self._adapters[provider] = create_adapter(provider, state_dir=self.state_dir, clock=self.clock)
        return self._adapters[provider]

    def providers_to_ask(self, names: Sequence[str], *, cloud: bool) -> dict[str, str]:
        """Return the providers to query for machines, each with an empty text, or why it cannot be queried.

        These are the named ones, or all here; a provider with an open run in the ledger can always be queried.

        Raises:
            UsageError: A named provider is not supported.
            CredentialsError: A named provider cannot be queried from here.
        """
        if names:
            return {self._require_reachable(name): "" for name in names}
        histories = self.ledger.histories(Failures())
        needed = {one.provider for history in histories for one in history.open_attempts()}
        remote = {name: self.adapter(name).missing() for name in LAUNCHABLE if self.adapter(name).remote and cloud}
        here = {name: "" for name in LAUNCHABLE if not self.adapter(name).remote}
        return here | {name: "" if name in needed else why for name, why in remote.items()}

    def _require_reachable(self, name: str) -> str:
        """Return a provider's name; CredentialsError if it cannot be queried."""
        adapter = self.adapter(name)
        if adapter.remote and (why := adapter.missing()):
            problem, _, way = why.partition(": ")
            raise CredentialsError(f"cannot query {adapter.provider}: {problem}", hint=way or None)
        return adapter.provider

    def launch(self, plan: LaunchPlan) -> AttemptHistory:
        """Apply a plan, or continue the plan that was begun for its run.

        Raises:
            GpuplanError: See `Application.apply`; also when the run has changed since, or its record is damaged.
        """
        log = self.ledger.open_run(plan.run)
        with log.held():
            history = log.require_whole()
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
            return Application(plan, self.runner(log, plan.request.provider)).apply()

    def refresh(self, run: str) -> bool:
        """Close the attempt of a run if its machine is gone; return whether there was anything to check."""
        history = self.ledger.peek(run)
        current = history.current()
        if history.finished or current is None or not current.has("up"):
            return False
        if current.is_over and current.has("noted"):
            return False
        log = self.ledger.open_run(run)
        with log.held():
            self._refresh(log)
        return True

    def report(self, past: AttemptHistory) -> RunOutcome | None:
        """Return the last report of an attempt: on record, in its bucket, or on its console; else None."""
        return read_report(past, self.adapter(past.provider))

    def watch(self, run: str) -> RunOutcome | None:
        """Return the last report of a run's machine, or None; one that says how it ended is recorded."""
        past = self.ledger.peek(run).current()
        report = self.report(past) if past else None
        if past and report and report.status != "running" and find_report(past.records) is None:
            log = self.ledger.open_run(run)
            with log.held():
                keep_report(log, past, report)
        return report

    def find_failed_runs(self, runs: Iterable[History], asked: Sequence[str], failures: Failures) -> list[str]:
        """Describe the open runs whose machine failed before training; without asking, those on record."""
        found = []
        for history in runs:
            for past in history.open_attempts():
                with failures.collect(past.run):
                    report = self.watch(past.run) if past.provider in asked else find_report(past.records)
                    if report is not None and report.failed:
                        found.append(": ".join(describe_end(past.run, report)))
        return found

    def tell(self, event: EventName, message: str, past: AttemptHistory) -> None:
        """Send an event of an attempt."""
        number, run = past.attempt.number, past.run
        self.notify(LaunchEvent(at=self.clock.now(), event=event, run=run, attempt=number, message=message))

    def to_stop(
        self, ids: Sequence[str], *, providers: Sequence[str], regions: Sequence[str] | None, failures: Failures
    ) -> dict[str, CloudMachine | None]:
        """Return the runs and machines that ids name; without ids, all open runs and machines with our tags.

        Args:
            providers, regions: Those to query; empty or None: all that can be queried.
            failures: Collects errors of providers that do not answer and of records that cannot be read.

        Returns:
            Names of runs, each with None, and ids of machines that are not in the ledger.

        Raises:
            UsageError: An id is unknown to the ledger and the clouds.
        """
        histories = {one.run: one for one in self.ledger.histories(failures)}
        runs = {run: history.open_attempts() for run, history in histories.items()}
        by_id = {one.machine_id: one.run for one in chain(*runs.values()) if one.machine_id}
        known = {run for run, history in histories.items() if history.attempts() or history.problems}
        named = {name: by_id.get(name, name) for name in ids if name in {*by_id} | known}
        found: dict[str, CloudMachine | None] = dict.fromkeys(named.values())
        if ids and len(named) == len(set(ids)) and not any(histories[run].lost_attempts() for run in found):
            return found
        wanted, hits = set(ids), set(named)
        for provider, why in self.providers_to_ask(providers, cloud=True).items():
            for machine in () if why else list_machines(self.adapter(provider), regions, failures):
                past = _find_past(machine, chain(*runs.values()))
                name = machine.id if past is None else past.run
                hit = {machine.id, machine.run, name} & wanted
                if hit or (not ids and machine.owner == self.acting):
                    found[name] = machine if past is None else None
                    hits |= hit
        for name in ids:
            if name not in hits:
                failures.raise_any()
                ends = [f"`gpuplan stop {run}`" for run, attempts in runs.items() if attempts]
                hint = f"type {' or '.join(ends)}" if ends else "see `gpuplan ps --cloud`"
                raise UsageError(f"unknown run or machine `{name}`", hint=hint)
        if not ids:
            mine = (run for run, opened in runs.items() if any(self.owner in {None, one.owner} for one in opened))
            found |= dict.fromkeys(mine)
        return found

    def stop(self, name: str, machine: CloudMachine | None) -> None:
        """End a run, or a machine that is not in the ledger and whose tags name the owner, for good."""
        if machine is None:
            self.stop_run(name)
            return
        self._end_by_tags(machine, finished="stopped by its tags")
        failures, of = Failures(), (machine.run, machine.attempt)
        remove_leftovers(self, machine.provider, regions=[machine.region], failures=failures, of=of)
        failures.raise_any()

    def stop_run(self, run: str) -> None:
        """End a run for good: its machine and all its resources."""
        log, failures = self.ledger.run(run), Failures()
        with log.held(to_end=True):
            for past in log.history().open_attempts():
                with suppress(GpuplanError):  # which must not keep the machine alive
                    report = self.report(past)
                    keep_report(log, past, report)
                    if report is not None and report.failed:
                        self.tell("failed", ": ".join(describe_end(run, report)), past)
                with failures.collect(str(past.attempt.number)):
                    self._end(log, past, why="stopped")
            failures.raise_any()
            if not log.history().lost_attempts():
                log.record("finished", why="stopped")

    def reap(self, providers: Sequence[str], *, regions: Sequence[str] | None) -> list[CloudMachine]:
        """End machines past their cap and remove what ended machines left; return the machines ended.

        A machine on record is found by its id and has the cap on record, whatever its tags say.
        Errors of a provider are raised at the end, after the other providers.
        """
        ended: list[CloudMachine] = []
        failures = Failures()
        histories = self.ledger.histories(failures)
        opened = [one for history in histories for one in history.open_attempts()]
        for machine in chain(*[list_machines(self.adapter(name), regions, failures) for name in providers]):
            ours = machine.owner == self.acting and _find_past(machine, opened) is None
            if ours and is_past_cap(machine):
                with failures.collect(machine.id):
                    self._end_by_tags(machine)
                    ended.append(machine)
        causes = {name: error.__cause__ for name, error in failures.errors.items()}
        silent = {name for name in providers if isinstance(causes.get(name), CloudError)}
        for run in dict.fromkeys(one.run for one in opened):
            with failures.collect(run):
                asked = {self.adapter(one.provider).provider for one in opened if one.run == run}
                if asked & (set(providers) - silent):
                    log = self.ledger.run(run)
                    with log.held(to_end=True):
                        self._refresh(log, reaped=ended)
        for provider in [name for name in providers if name not in failures.errors]:
            remove_leftovers(self, provider, regions=regions, failures=failures)
        failures.raise_any()
        return ended

    def runner(self, log: RunLog, provider: str) -> CallRunner:
        """Return the call runner of a run."""
        return CallRunner(self.adapter(provider), log, self.clock, self.backoff, self.notify)

    def _refresh(self, log: RunLog, *, reaped: list[CloudMachine] | None = None) -> None:
        """Close the attempts whose machines are gone, and record the result of the last one.

        With `reaped`, machines past their cap are ended, and added to it.
        """
        failures = Failures()
        for past in log.history().open_attempts():
            with failures.collect(str(past.attempt.number)), explain_teardown_errors(past):
                found = None
                if past.may_have_machine and not past.has("ending"):
                    found = Teardown(self.runner(log, past.provider)).find(past)
                if found is None:
                    self._end(log, past, why="its machine is gone" if past.machine_id else "it never came up")
                elif reaped is not None and is_past_cap(past.correct(found)):
                    self._end(log, past, why="past its cap")
                    reaped.append(found)
                elif reaped is not None and (changed := past.find_changed_tags(found)):
                    message = f"the tags of {found.id} differ from its record, which counts: {', '.join(changed)}"
                    self.tell("left", message, past)
        failures.raise_any()
        history = log.history()
        last = history.current()
        if history.finished or last is None or not last.is_over or last.has("noted") or not last.recorded_plan:
            return
        report = self.report(last)  # until it can be read, the next command tries again
        keep_report(log, last, report)
        if report and report.status in {"done", "failed"}:
            log.record("finished", why=report.status, outcome=report.model_dump(mode="json"))
        log.record("noted", attempt=last.attempt.number)

    def _end(self, log: RunLog, past: AttemptHistory, *, why: str) -> None:
        """End an attempt."""
        with explain_teardown_errors(past):
            Teardown(self.runner(log, past.provider)).end_attempt(past, why=why)

    def _end_by_tags(self, machine: CloudMachine, *, finished: str = "") -> None:
        """End a machine that is not in the ledger, in the journal of its run.

        In one of its own when the ledger knows attempts of that run: then the machine is not one of theirs.
        """
        run = machine.run
        if not run or build_safe_name(run)[:LONGEST_NAME] != run or self.ledger.peek(run).attempts():
            run = build_safe_name(machine.id)
        log = self.ledger.open_run(run)
        way = f"its cap is {machine.cap_at:%Y-%m-%d %H:%M} UTC" if machine.cap_at else "its tags have no cap"
        with log.held(to_end=True):
            with explain_errors(machine.provider, what=f"to end {machine.id}", otherwise=way):
                Teardown(self.runner(log, machine.provider)).end_machine(machine, owner=self.acting)
            if finished:
                log.record("finished", why=finished)


def is_past_cap(machine: CloudMachine) -> bool:
    """Whether a machine is past its cap, by its cloud's clock."""
    return machine.cap_at is not None and machine.seen_at > machine.cap_at


def _find_past(machine: CloudMachine, opened: Iterable[AttemptHistory]) -> AttemptHistory | None:
    """Return the open attempt that made a machine, or None."""
    return next((one for one in opened if one.made(machine)), None)


def remove_leftovers(
    launcher: Launcher,
    provider: str,
    *,
    regions: Sequence[str] | None,
    failures: Failures,
    of: tuple[str, int] | None = None,
) -> list[Leftover]:
    """Remove an owner's leftover resources at a provider, `of` a run and attempt or all; return them.

    Nothing is removed unless every place has answered: a resource whose machine cannot be seen may be in use.
    Resources are listed first, then machines, then the ledger is read: what a concurrent launch makes is either
    not listed or on record. Of a run with a lost attempt, nothing is removed.
    """
    adapter, unread = launcher.adapter(provider), Failures()
    with (
        failures.collect(f"{provider} leftovers"),
        explain_errors(provider, what="for leftovers", otherwise=_LATER),
    ):
        found, failed = adapter.leftovers(regions)
        listing = adapter.machines(regions)
        silent = {**failed, **listing.failed}
        for place, fault in silent.items():
            failures.add(provider, place, fault, what="for leftovers", otherwise=_LATER)
        histories = launcher.ledger.histories(unread)
        if silent or "ledger" in unread.errors:
            return []
        in_use = {(one.run, one.attempt, one.owner) for one in listing.machines}
        in_use |= {(one.run, one.attempt.number, one.owner) for run in histories for one in run.open_attempts()}
        lost = {history.run for history in histories if history.lost_attempts()}
        removed = []
        for one in found:
            is_wanted = of in {None, (one.run, one.attempt)} and one.owner == launcher.acting
            if is_wanted and one.run not in lost and (one.run, one.attempt, one.owner) not in in_use:
                with failures.collect(f"{provider} {one.id}"):
                    _remove(launcher, provider, one)
                    removed.append(one)
        return removed
    return []


_LATER = "the next `gpuplan reap` tries again"


def _remove(launcher: Launcher, provider: str, left: Leftover) -> None:
    """Remove one resource; a missing one counts as removed."""
    log = launcher.ledger.open_run(build_safe_name(left.run) or build_safe_name(left.id))
    with (
        log.held(to_end=True),
        explain_errors(provider, what=f"to remove the {left.kind} {left.id}", otherwise=_LATER),
    ):
        teardown = Teardown(launcher.runner(log, provider))
        for call in left.undo:
            teardown.send_unless_absent(call, {}, number=left.attempt)
        teardown.runner.notify("removed", f"{left.kind} {left.id}", number=left.attempt)
        if not log.history().attempts():
            log.record("finished", why="removed by its tags")
