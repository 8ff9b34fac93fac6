"""Apply: run a plan's calls in order, and leave nothing behind that nobody knows of. The only thing that
costs money.

What was begun is finished by the same plan: a call that is done is not sent again, one whose outcome is
unknown is sent with the same token. A candidate that is not to be had is cleared away before the next one is
tried. While it is unknown whether a machine exists, no other is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import CredentialsError, GpuplanError, NoAnswerError
from ..prepare.error_messages import build_access_error, describe_retry, ending
from .api_call import Call
from .clock import BackoffPolicy, Clock
from .cloud_adapter import Adapter, CloudMachine
from .errors import CloudError, ErrorKind
from .events import LaunchEvent
from .history import AttemptHistory
from .launch_plan import Attempt, LaunchPlan
from .ledger import RunLog
from .retry import CallRunner
from .teardown import Teardown

__all__ = ["apply"]

_NEXT_CANDIDATE = {ErrorKind.CAPACITY, ErrorKind.QUOTA, ErrorKind.SPENT_TOKEN}


def apply(
    plan: LaunchPlan,
    *,
    adapter: Adapter,
    log: RunLog,
    clock: Clock,
    backoff: BackoffPolicy | None = None,
    notify: Callable[[LaunchEvent], None],
) -> AttemptHistory:
    """Run a plan and return the attempt that came up.

    Args:
        plan: Exactly what `--dry-run` printed.
        adapter: Of the plan's provider.
        log: The run's journal; to be held by the caller.
        clock, pace: Time.
        tell: Takes each event as it happens.

    Raises:
        NoAnswerError: No candidate is to be had.
        CredentialsError: The provider does not let us; what exists is named, with the way to end it by hand.
        GpuplanError: Refused for another reason (what was made is removed), or nobody can say what exists.
    """
    sender = CallRunner(
        adapter=adapter, log=log, clock=clock, backoff=backoff or BackoffPolicy(), notify=notify
    )
    return _Run(plan, sender).go()


class _Run:
    """One plan being applied."""

    def __init__(self, plan: LaunchPlan, sender: CallRunner) -> None:
        self.plan = plan
        self.sender = sender
        self.ender = Teardown(sender, owner=plan.request.owner)

    def go(self) -> AttemptHistory:
        """Try one attempt after the other."""
        self.sender.log.save_plan(self.plan)
        refusals: list[CloudError] = []
        skipped_scopes: set[str] = set()
        for attempt in self.plan.attempts:
            past = self._past(attempt)
            if past.is_over or {"account", f"region {attempt.candidate.region}"} & skipped_scopes:
                continue
            if past.is_ending or (past.begun and past.machine_refused):  # a crash while it was cleared away
                with ending(past):
                    self.ender.end_attempt(past, why="cleared away after an interruption")
                continue
            try:
                self._bring_up(attempt, past)
            except CloudError as fault:
                refusals.append(fault)
                self._give_up(attempt, fault)
                if fault.kind is ErrorKind.QUOTA:
                    scope = fault.scope
                    skipped_scopes.add(
                        "account" if scope == "account" else f"region {attempt.candidate.region}"
                    )
            else:
                return self._past(attempt)
        raise _nothing_to_be_had(refusals)

    def _bring_up(self, attempt: Attempt, past: AttemptHistory) -> None:
        """Send the calls of an attempt that are not done yet."""
        sender, number = self.sender, attempt.number
        sender.notify("attempt", _described(attempt), number=number)
        known: dict[str, Mapping[str, Any]] = dict(past.kept)
        for call in attempt.calls:
            if call.step in known:
                continue
            sender.notify("sending", f"{call.service}.{call.operation}", number=number, step=call.step)
            known[call.step] = self._settled(attempt, call, known)
            kept = known[call.step]
            sender.notify("done", _outcome(call, kept), number=number, step=call.step, **kept)
            if call.arms:
                sender.notify("armed", call.arms, number=number, step=call.step)
        sender.log.record("up", attempt=number)
        sender.notify("up", f"run {self.plan.run} is up", number=number)

    def _settled(
        self, attempt: Attempt, call: Call, known: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Send one call; when nobody can say whether it made a machine, look for the machine."""
        try:
            return self.sender.settle(call, known, number=attempt.number)
        except CloudError as fault:
            if call.makes != "machine" or fault.kind is not ErrorKind.UNKNOWN:
                raise
            machine = self.ender.find(self._past(attempt))
            if machine is None:
                raise self._unsettled(attempt, fault) from fault
            return self._adopted(attempt, call, machine)

    def _adopted(self, attempt: Attempt, call: Call, machine: CloudMachine) -> dict[str, Any]:
        """Take a machine that was found by its tags for the answer that never came."""
        kept = {"id": machine.id, "started": machine.started_at.isoformat()}
        self.sender.log.record("done", attempt=attempt.number, step=call.step, kept=kept)
        self.sender.notify(
            "adopted", f"found {machine.id} by its tags", number=attempt.number, step=call.step
        )
        return kept

    def _give_up(self, attempt: Attempt, fault: CloudError) -> None:
        """Clear away what an attempt made, then raise unless another candidate may do."""
        sender = self.sender
        sender.notify("refused", str(fault), number=attempt.number, kind=fault.kind, code=fault.code)
        past = self._past(attempt)
        if fault.kind is ErrorKind.CREDENTIALS and not self._is_let_in(past):
            raise build_access_error(past, fault) from fault
        with ending(past):
            self.ender.end_attempt(past, why=str(fault))
        if fault.kind not in _NEXT_CANDIDATE:
            error = CredentialsError if fault.kind is ErrorKind.CREDENTIALS else GpuplanError
            raise error(
                f"{self.plan.request.provider} refused: {fault}",
                hint=f"what had been made for it is removed; {describe_retry(fault)} the same command",
            ) from fault

    def _is_let_in(self, past: AttemptHistory) -> bool:
        """Whether only one call is not allowed: then a machine that may not be given its caps can be ended."""
        if past.ref is None:
            return False
        try:
            self.sender.adapter.look(past.ref)
        except CloudError:
            return False
        return True

    def _past(self, attempt: Attempt) -> AttemptHistory:
        """Return what is on record of an attempt."""
        attempts = self.sender.log.history().attempts()
        return next(one for one in reversed(attempts) if one.attempt.number == attempt.number)

    def _unsettled(self, attempt: Attempt, fault: CloudError) -> GpuplanError:
        """Return the error of an outcome that nobody knows."""
        return GpuplanError(
            f"nobody can say whether the {attempt.candidate.instance_type} of {self.plan.run} started: {fault}",
            hint=f"the same command goes on with the same token; `gpuplan stop {self.plan.run}` ends it",
        )


def _described(attempt: Attempt) -> str:
    """Return what is about to be tried."""
    one = attempt.candidate
    place = attempt.zone or one.region
    return f"{one.instance_type} in {place}, {one.purchase.replace('_', ' ')}, ${one.usd_per_hour}/h"


def _outcome(call: Call, kept: Mapping[str, Any]) -> str:
    """Return what a call brought, in a line."""
    return f"{call.step}: {kept['id']}" if kept.get("id") else call.step


def _nothing_to_be_had(refusals: list[CloudError]) -> GpuplanError:
    """Return the error of a plan that came to its end."""
    if not refusals:
        return GpuplanError(
            "every attempt of this plan is over",
            hint="plan anew: `gpuplan launch plan.json` makes a new attempt",
        )
    last = refusals[-1]
    hint = "ask for another offer: `--rank N`, `--fallbacks N`"
    if last.kind is ErrorKind.QUOTA:
        hint = f"ask the provider to raise the quota that it names ({last.code}), or take another region"
    return NoAnswerError(
        f"none of {len(refusals)} candidates is to be had; the last answer was {last}", hint=hint
    )
