"""Apply a plan: send its calls in order and leave no untracked resource. The only code that costs money.

An interrupted plan is continued by the same plan: a call that is done is not sent again, one of unknown outcome is
sent with the same token. The resources of an unavailable candidate are removed before the next one is tried. While
it is unknown whether a machine exists, no other is requested.
"""

from __future__ import annotations

from typing import Any

from ...errors import CredentialsError, GpuplanError, NoAnswerError
from ..prepare.error_messages import build_access_error, describe_retry, explain_teardown_errors
from .api_call import Call, CloudError, ErrorKind, StepOutputs
from .cloud_adapter import CloudMachine
from .history import AttemptHistory
from .launch_plan import Attempt, LaunchPlan
from .retry import CallRunner
from .teardown import Teardown

_NEXT_CANDIDATE = {ErrorKind.CAPACITY, ErrorKind.QUOTA, ErrorKind.SPENT_TOKEN}


def apply(plan: LaunchPlan, runner: CallRunner) -> AttemptHistory:
    """Apply a plan and return the attempt that succeeded.

    Args:
        plan: The plan that `--dry-run` prints.
        runner: Call runner of the run, for the plan's provider.

    Raises:
        NoAnswerError: No candidate is available.
        CredentialsError: The provider denied access; the message names what exists and how to end it by hand.
        GpuplanError: Refused for another reason (resources are removed), or the outcome is unknown.
    """
    return _Run(plan, runner).go()


class _Run:
    """Application of one plan."""

    def __init__(self, plan: LaunchPlan, runner: CallRunner) -> None:
        self.plan = plan
        self.runner = runner
        self.teardown = Teardown(runner, owner=plan.request.owner)

    def go(self) -> AttemptHistory:
        """Try the attempts in order."""
        self.runner.log.save_plan(self.plan)
        refusals: list[CloudError] = []
        skipped_scopes: set[str] = set()
        for attempt in self.plan.attempts:
            past = self._past(attempt)
            if past.is_over or {"account", f"region {attempt.candidate.region}"} & skipped_scopes:
                continue
            if past.is_ending or (past.begun and past.machine_refused):  # a crash during its clean-up
                with explain_teardown_errors(past):
                    self.teardown.end_attempt(past, why="cleaned up after an interruption")
                continue
            try:
                self._bring_up(attempt, past)
            except CloudError as fault:
                refusals.append(fault)
                self._give_up(attempt, fault)
                if fault.kind is ErrorKind.QUOTA:
                    region = f"region {attempt.candidate.region}"
                    skipped_scopes.add("account" if fault.scope == "account" else region)
            else:
                return self._past(attempt)
        raise _nothing_to_be_had(refusals)

    def _bring_up(self, attempt: Attempt, past: AttemptHistory) -> None:
        """Send the remaining calls of an attempt."""
        runner, number = self.runner, attempt.number
        runner.notify("attempt", _described(attempt), number=number)
        known = dict(past.kept)
        for call in attempt.calls:
            if call.step in known:
                continue
            runner.notify("sending", f"{call.service}.{call.operation}", number=number, step=call.step)
            kept = known[call.step] = self._settled(attempt, call, known)
            done = f"{call.step}: {kept['id']}" if kept.get("id") else call.step
            runner.notify("done", done, number=number, step=call.step, **kept)
            if call.arms:
                runner.notify("armed", call.arms, number=number, step=call.step)
        runner.log.record("up", attempt=number)
        runner.notify("up", f"run {self.plan.run} is up", number=number)

    def _settled(self, attempt: Attempt, call: Call, known: StepOutputs) -> dict[str, Any]:
        """Send one call; when it is unknown whether it made a machine, look for the machine."""
        try:
            return self.runner.settle(call, known, number=attempt.number)
        except CloudError as fault:
            if call.makes != "machine" or fault.kind is not ErrorKind.UNKNOWN:
                raise
            machine = self.teardown.find(self._past(attempt))
            if machine is None:
                raise GpuplanError(
                    f"unknown whether the {attempt.candidate.instance_type} of run `{self.plan.run}` started: "
                    f"{fault}",
                    hint=f"repeat the command, it uses the same token; `gpuplan stop {self.plan.run}` ends it",
                ) from fault
            return self._adopted(attempt, call, machine)

    def _adopted(self, attempt: Attempt, call: Call, machine: CloudMachine) -> dict[str, Any]:
        """Record a machine that was found by its tags as the result of a call without an answer."""
        kept = {"id": machine.id, "started": machine.started_at.isoformat()}
        self.runner.log.record("done", attempt=attempt.number, step=call.step, kept=kept)
        self.runner.notify(
            "adopted", f"found {machine.id} by its tags", number=attempt.number, step=call.step
        )
        return kept

    def _give_up(self, attempt: Attempt, fault: CloudError) -> None:
        """Remove the resources of an attempt, then raise unless another candidate may succeed."""
        runner = self.runner
        runner.notify("refused", str(fault), number=attempt.number, kind=fault.kind, code=fault.code)
        past = self._past(attempt)
        if fault.kind is ErrorKind.CREDENTIALS and not self._is_let_in(past):
            raise build_access_error(past, fault) from fault
        with explain_teardown_errors(past):
            self.teardown.end_attempt(past, why=str(fault))
        if fault.kind not in _NEXT_CANDIDATE:
            error = CredentialsError if fault.kind is ErrorKind.CREDENTIALS else GpuplanError
            raise error(
                f"{self.plan.request.provider} refused: {fault}",
                hint=f"its resources were removed; {describe_retry(fault)} the command",
            ) from fault

    def _is_let_in(self, past: AttemptHistory) -> bool:
        """Whether the account can read the machine, and can therefore end one whose cap cannot be armed."""
        if past.ref is None:
            return False
        try:
            self.runner.adapter.look(past.ref)
        except CloudError:
            return False
        return True

    def _past(self, attempt: Attempt) -> AttemptHistory:
        """Return the recorded history of an attempt."""
        attempts = self.runner.log.history().attempts()
        return next(one for one in reversed(attempts) if one.attempt.number == attempt.number)


def _described(attempt: Attempt) -> str:
    """Describe the machine of an attempt and its sharding in one line."""
    one = attempt.candidate
    place = attempt.zone or one.region
    machine = f"{one.instance_type} in {place}, {one.purchase.replace('_', ' ')}, ${one.usd_per_hour}/h"
    return "; ".join(filter(None, (machine, one.describe_layout())))


def _nothing_to_be_had(refusals: list[CloudError]) -> GpuplanError:
    """Return the error of a plan whose attempts have all failed."""
    if not refusals:
        return GpuplanError(
            "all attempts of this plan have ended",
            hint="`gpuplan launch plan.json` plans a new attempt",
        )
    last = refusals[-1]
    hint = "choose another offer, `--rank N`, or try more, `GPUPLAN_FALLBACKS=6`"
    if last.kind is ErrorKind.QUOTA:
        hint = f"request a higher quota from the provider ({last.code}), or choose another region"
    return NoAnswerError(
        f"none of {len(refusals)} candidates is available; the last answer was {last}", hint=hint
    )
