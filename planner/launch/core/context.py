"""Ledger, adapters and clock of a command, and the closing of attempts whose machines are gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..prepare.error_messages import explain_errors, explain_teardown_errors
from .clock import BackoffPolicy, Clock
from .cloud_adapter import Adapter, CloudMachine, RunOutcome
from .events import LaunchEvent
from .history import AttemptHistory
from .ledger import Ledger, RunLog
from .providers import create_adapter
from .request import LaunchRequest
from .retry import CallRunner
from .teardown import Teardown

__all__ = ["LaunchContext", "is_past_cap"]


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

    def _refresh(self, log: RunLog, *, reap: bool = False) -> None:
        """Close the attempts whose machines are gone, and record the result of the last one.

        Args:
            log: Journal of the run.
            reap: Whether to end machines past their cap, too.
        """
        for past in self._open(log):
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
        outcome = self.outcome(past.plan.request)
        if outcome and outcome.attempt == past.attempt.number and outcome.status in {"done", "failed"}:
            log.record("finished", why=outcome.status, outcome=outcome.model_dump(mode="json"))
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
            self.teardown(log, machine.provider, owner=self.acting).end_machine(
                machine, number=machine.attempt
            )

    def open_attempts(self) -> set[tuple[str, int, str]]:
        """Return run, attempt and owner of all open attempts on record."""
        return {
            (log.run, one.attempt.number, one.plan.request.owner)
            for log in self.ledger.runs()
            for one in self._open(log)
        }

    def _open(self, log: RunLog) -> list[AttemptHistory]:
        """Return the open attempts of a run: begun and not over."""
        return [one for one in log.history().attempts() if one.begun and not one.is_over]

    def teardown(self, log: RunLog, provider: str, *, owner: str) -> Teardown:
        """Return the teardown of a run."""
        runner = CallRunner(
            adapter=self.adapter(provider),
            log=log,
            clock=self.clock,
            backoff=self.backoff,
            notify=self.notify,
        )
        return Teardown(runner, owner=owner)


def is_past_cap(machine: CloudMachine) -> bool:
    """Whether a machine is past its cap, by its cloud's clock."""
    return machine.cap_at is not None and machine.seen_at > machine.cap_at
