"""Ledger, adapters and clock of a command; clean-up of attempts and of resources other than machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .clouds import create_adapter
from .core.clock import BackoffPolicy, Clock
from .core.cloud_adapter import Adapter, CloudMachine, Leftover, RunOutcome
from .core.error_messages import Failures, explain_errors, explain_teardown_errors
from .core.history import AttemptHistory
from .core.launch_plan import EventName, LaunchEvent
from .core.ledger import Ledger, RunLog
from .core.request import LaunchRequest, build_safe_name
from .core.retry import CallRunner
from .engine import Teardown
from .reports import keep_report, read_report


@dataclass(slots=True, kw_only=True)
class LaunchContext:
    """Ledger, adapters, clock and event sink of a command.

    Args:
        ledger: All runs.
        state_dir: Folder of the adapters' state on this computer.
        clock, backoff: Clock and retry policy.
        notify: Receives each event.
        owner: Owner whose machines are ended by their tags; None: the ledger's owner.
    """

    ledger: Ledger
    state_dir: Path
    clock: Clock
    notify: Callable[[LaunchEvent], None]
    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)
    owner: str | None = None
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

    def outcome(self, request: LaunchRequest) -> RunOutcome | None:
        """Return the result of an ended run; None when there is none to read."""
        with explain_errors(
            request.provider,
            what=f"for the result of run `{request.run}`",
            otherwise="the result is in its bucket",
        ):
            return self.adapter(request.provider).outcome(request)

    def report(self, past: AttemptHistory) -> RunOutcome | None:
        """Return the last report of an attempt: on record, in its bucket, or on its console; else None."""
        return read_report(past, outcome=self.outcome, adapter=self.adapter(past.plan.request.provider))

    def tell(self, event: EventName, message: str, past: AttemptHistory) -> None:
        """Send an event of an attempt."""
        number, run = past.attempt.number, past.plan.run
        self.notify(LaunchEvent(at=self.clock.now(), event=event, run=run, attempt=number, message=message))

    def _refresh(self, log: RunLog, *, reap: bool = False) -> None:
        """Close the attempts whose machines are gone, and record the result of the last one."""
        for past in log.history().open_attempts():
            with explain_teardown_errors(past):
                found = None if past.is_ending else self._find(log, past)
            if found is None:
                self._end(log, past, why="its machine is gone" if past.machine_id else "it never came up")
            elif reap and is_past_cap(found):
                self._end(log, past, why="past its cap")
        history = log.history()
        current = history.current()
        if not history.finished and current is not None and current.is_over and not current.is_noted:
            self._note_outcome(log, current)

    def _note_outcome(self, log: RunLog, past: AttemptHistory) -> None:
        """Record the result of an attempt; until it can be read, the next command tries again."""
        report = self.report(past)
        keep_report(log, past, report)
        if report and report.status in {"done", "failed"}:
            log.record("finished", why=report.status, outcome=report.model_dump(mode="json"))
        log.record("noted", attempt=past.attempt.number)

    def _find(self, log: RunLog, past: AttemptHistory) -> CloudMachine | None:
        """Return an attempt's machine, or None."""
        if not past.may_have_machine:
            return None
        return self.teardown(log, past.plan.request.provider, owner=past.plan.request.owner).find(past)

    def _end(self, log: RunLog, past: AttemptHistory, *, why: str) -> None:
        """End an attempt."""
        with explain_teardown_errors(past):
            self.teardown(log, past.plan.request.provider, owner=past.plan.request.owner).end_attempt(
                past, why=why
            )

    def _end_by_tags(self, log: RunLog, machine: CloudMachine) -> None:
        """End a machine that is not in the ledger."""
        way = f"its cap is {machine.cap_at:%Y-%m-%d %H:%M} UTC" if machine.cap_at else "its tags have no cap"
        with explain_errors(machine.provider, what=f"to end {machine.id}", otherwise=way):
            self.teardown(log, machine.provider, owner=self.acting).end_machine(machine, number=machine.attempt)

    def runner(self, log: RunLog, provider: str) -> CallRunner:
        """Return the call runner of a run."""
        adapter, clock = self.adapter(provider), self.clock
        return CallRunner(adapter=adapter, log=log, clock=clock, backoff=self.backoff, notify=self.notify)

    def teardown(self, log: RunLog, provider: str, *, owner: str) -> Teardown:
        """Return the teardown of a run."""
        return Teardown(self.runner(log, provider), owner=owner)


def is_past_cap(machine: CloudMachine) -> bool:
    """Whether a machine is past its cap, by its cloud's clock."""
    return machine.cap_at is not None and machine.seen_at > machine.cap_at


def remove_leftovers(
    context: LaunchContext,
    provider: str,
    *,
    regions: Sequence[str] | None,
    failures: Failures,
    of: tuple[str, int] | None = None,
) -> list[Leftover]:
    """Remove an owner's leftover resources at a provider and return them.

    Args:
        context: Ledger, adapters and owner.
        provider: Provider to query.
        regions: Regions to query; None: all that the account can use.
        failures: Collects errors of places that do not answer and of resources that cannot be removed.
        of: Run and attempt; None: all.

    Nothing is removed unless every place has answered: a resource whose machine cannot be seen may be in use.
    Resources are listed first, then machines, then the ledger is read: what a concurrent launch makes is either
    not listed or on record.
    """
    adapter, complete = context.adapter(provider), True
    with (
        failures.collect(f"{provider} leftovers"),
        explain_errors(provider, what="for leftovers", otherwise=_LATER),
    ):
        found, failed = adapter.leftovers(regions)
        listing = adapter.machines(regions)
        for place, fault in {**failed, **listing.failed}.items():
            complete = False
            failures.add(provider, place, fault, what="for leftovers", otherwise=_LATER)
        in_use = {(one.run, one.attempt, one.owner) for one in listing.machines} | {
            (log.run, one.attempt.number, one.plan.request.owner)
            for log in context.ledger.runs()
            for one in log.history().open_attempts()
        }
        removed = []
        for one in found if complete else ():
            is_wanted = of in {None, (one.run, one.attempt)} and one.owner == context.acting
            if is_wanted and (one.run, one.attempt, one.owner) not in in_use:
                with failures.collect(f"{provider} {one.id}"):
                    _remove(context, provider, one)
                    removed.append(one)
        return removed
    return []


_LATER = "the next `gpuplan reap` tries again"


def _remove(context: LaunchContext, provider: str, left: Leftover) -> None:
    """Remove one resource; a missing one counts as removed."""
    log = context.ledger.open_run(build_safe_name(left.run) or build_safe_name(left.id))
    with log.held(), explain_errors(provider, what=f"to remove the {left.kind} {left.id}", otherwise=_LATER):
        teardown = context.teardown(log, provider, owner=context.acting)
        for call in left.undo:
            teardown.send_unless_absent(call, {}, number=left.attempt)
        teardown.runner.notify("removed", f"{left.kind} {left.id}", number=left.attempt)
        if not log.history().plans:
            log.record("finished", why="removed by its tags")
