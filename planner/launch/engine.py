"""Apply a plan, and end machines: calls in order, and no untracked resource left."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from ..errors import GpuplanError, NoAnswerError
from .core.api_call import Call, CloudError, ErrorKind, StepOutputs
from .core.cloud_adapter import CloudMachine, MachineRef
from .core.error_messages import build_access_error, choose_error, describe_retry, explain_teardown_errors
from .core.history import AttemptHistory
from .core.launch_plan import Attempt, LaunchPlan
from .core.retry import CallRunner

Look = Callable[[], list[CloudMachine]]

CLOCK_TICK_S = 0.001  # shorter waits count as over: a sum of floats may never reach them


class Teardown:
    """Ends machines and removes their resources, by the call runner of a run."""

    def __init__(self, runner: CallRunner) -> None:
        self.runner = runner

    def end_attempt(self, past: AttemptHistory, *, why: str) -> None:
        """End an attempt's machine, wait for its end, remove its resources, and record the end.

        Raises:
            CloudError: The provider refuses or does not answer; the attempt stays open in the ledger.
            GpuplanError: The machine does not end in time.
        """
        runner, number = self.runner, past.attempt.number
        if past.is_over:
            return
        lived_s = None
        runner.log.record("ending", attempt=number, why=why)
        if past.may_have_machine:
            lived_s = self._end_machine(past)
        self._remove_resources(past)
        runner.log.record("ended", attempt=number, why=why, lived_s=lived_s)
        runner.notify("ended", f"all resources of attempt {number} are gone", number=number)

    def end_machine(self, machine: CloudMachine, *, owner: str) -> None:
        """End a machine that was found by its tags, if it belongs to the owner."""
        if machine.owner != owner:
            raise GpuplanError(
                f"{machine.id} belongs to `{machine.owner}`, not to `{owner}`: not ended",
                hint=f"if it is yours: `gpuplan stop {machine.id} --owner {machine.owner or 'ID'}`",
            )
        self._end(machine.ref, started_at=machine.started_at, number=machine.attempt)

    def find(self, past: AttemptHistory) -> CloudMachine | None:
        """Return an attempt's machine while it costs money.

        None when its cloud says that it has ended, or has not shown it within the visibility time. A machine on
        record is queried by its id, one whose id was never received by its tags.
        """
        ref, number = past.ref, past.attempt.number
        look = (lambda: self._seen(ref, number=number)) if ref else (lambda: self._tagged(past))
        return next((one for one in self._until_shown(look, past) if one.state != "ended"), None)

    def _end_machine(self, past: AttemptHistory) -> float | None:
        """End the machine of an attempt; return its life, None without a machine [s]."""
        refs, started_at = [past.ref] if past.ref else [], past.machine_started_at
        if not refs:
            refs = [one.ref for one in self._until_shown(lambda: self._tagged(past), past)]
        for ref in refs:
            self._end(ref, started_at=started_at, number=past.attempt.number)
        return self._lived_s(started_at) if refs else None

    def _end(self, ref: MachineRef, *, started_at: datetime | None, number: int) -> None:
        """End one machine and wait until its cloud confirms the end."""
        runner = self.runner
        runner.notify("ending", f"ending {ref.id}", number=number)
        since = runner.clock.monotonic()
        for looks in itertools.count():
            for call in runner.adapter.build_end_calls(ref) if looks == 0 else ():
                self.send_unless_absent(call, {}, number=number)
            seen = self._seen(ref, number=number)
            if [one.state for one in seen] == ["ended"] or (
                not seen and self._doubt_s(started_at, since=since) == 0.0
            ):
                return
            if runner.clock.monotonic() - since >= runner.backoff.ending_s:
                raise GpuplanError(
                    f"{ref.id} still exists {runner.backoff.ending_s:g} s after the request to end it",
                    hint=f"check the console of {runner.adapter.provider}; `gpuplan stop` repeats the request",
                )
            runner.clock.sleep(runner.backoff.poll_delay_s(looks))

    def _until_shown(self, look: Look, past: AttemptHistory) -> list[CloudMachine]:
        """Poll for machines until one is found or the visibility time is over; then the list is empty."""
        runner = self.runner
        since = runner.clock.monotonic()
        while True:
            found = look()
            doubt_s = self._doubt_s(past.machine_started_at, since=since)
            if found or doubt_s == 0.0:
                return found
            runner.clock.sleep(min(runner.backoff.poll_s, doubt_s))

    def _doubt_s(self, started_at: datetime | None, *, since: float) -> float:
        """Return the remaining time in which a machine whose creation is in doubt may still become visible [s]."""
        waited_s = self.runner.clock.monotonic() - since
        known_s = max(waited_s, self._lived_s(started_at) or 0.0)
        remaining_s = self.runner.adapter.visibility_s - known_s
        return remaining_s if remaining_s > CLOCK_TICK_S else 0.0

    def _lived_s(self, started_at: datetime | None) -> float | None:
        """Return the time since a machine's start by the cloud's clock; None: unknown [s]."""
        now = self.runner.adapter.cloud_time()
        return (now - started_at).total_seconds() if now and started_at else None

    def _tagged(self, past: AttemptHistory) -> list[CloudMachine]:
        """Return the machines that carry an attempt's tags and its plan's owner; a silent place is an error."""
        attempt = past.attempt

        def ask() -> tuple[CloudMachine, ...]:
            listing = self.runner.adapter.machines([attempt.candidate.region])
            for fault in listing.failed.values():
                raise fault
            return listing.machines

        wanted = (past.run, attempt.number, past.owner)
        listed = self.runner.retry(ask, what="listing", number=attempt.number)
        return [one for one in listed if (one.run, one.attempt, one.owner) == wanted]

    def _seen(self, ref: MachineRef, *, number: int) -> list[CloudMachine]:
        """Return the current description of a machine as a list; empty when it is unknown."""
        look = self.runner.adapter.look
        machine = self.runner.retry(lambda: look(ref), what=f"look at {ref.id}", number=number)
        return [] if machine is None else [machine]

    def _remove_resources(self, past: AttemptHistory) -> None:
        """Undo every call that may have made something, in reverse order."""
        known: dict[str, Mapping[str, Any]] = {**past.kept}
        for call in reversed(past.attempt.calls):
            if call.makes == "machine" or not call.undo or call.step not in past.intended:
                continue
            left = known.get(call.step)
            with suppress(KeyError):  # what it depends on is not on record
                left = left or self.runner.find_existing(
                    call, known, number=past.attempt.number, absent=(ErrorKind.ABSENT, ErrorKind.INVALID)
                )
            for undo in call.undo:
                with suppress(KeyError):  # it was never made
                    self.send_unless_absent(undo, {**known, call.step: left or {}}, number=past.attempt.number)
            self.runner.notify("removed", call.step, number=past.attempt.number, step=call.step)

    def send_unless_absent(self, call: Call, known: StepOutputs, *, number: int) -> None:
        """Send a call that removes something; a missing thing counts as removed."""
        try:
            self.runner.read_outputs(call, known, number=number)
        except CloudError as fault:
            if fault.kind is not ErrorKind.ABSENT:
                raise


_NEXT_CANDIDATE = {ErrorKind.CAPACITY, ErrorKind.QUOTA, ErrorKind.SPENT_TOKEN}


class Application:
    """Application of one plan, the one that `--dry-run` prints, by a call runner for its provider."""

    def __init__(self, plan: LaunchPlan, runner: CallRunner) -> None:
        self.plan = plan
        self.runner = runner
        self.teardown = Teardown(runner)

    def apply(self) -> AttemptHistory:
        """Try the attempts in order; return the one that succeeded.

        Raises:
            NoAnswerError: No candidate is available.
            CredentialsError: The provider denied access; the message names what exists and how to end it by hand.
            GpuplanError: Refused for another reason (resources are removed), or the outcome is unknown.
        """
        self.runner.log.save_plan(self.plan)
        refusals: list[CloudError] = []
        skipped_scopes: set[str] = set()
        last_begun = max((one.number for one in self.plan.attempts if self._past(one).begun), default=0)
        for attempt in self.plan.attempts:
            past = self._past(attempt)
            was_skipped = not past.begun and attempt.number < last_begun  # a quota refused it, and another came up
            if was_skipped or past.is_over or {"account", f"region {attempt.candidate.region}"} & skipped_scopes:
                continue
            if past.has("ending") or (past.begun and past.machine_refused):  # a crash during its clean-up
                with explain_teardown_errors(past):
                    self.teardown.end_attempt(past, why="cleaned up after an interruption")
                self._require_unspent(attempt)
                continue
            try:
                self._bring_up(attempt, past)
            except CloudError as fault:
                refusals.append(fault)
                self._give_up(attempt, fault)
                if past.begun or fault.kind is ErrorKind.SPENT_TOKEN:  # its machine may have lived until now
                    self._require_unspent(attempt)
                if fault.kind is ErrorKind.QUOTA:
                    region = f"region {attempt.candidate.region}"
                    skipped_scopes.add("account" if fault.scope == "account" else region)
            else:
                return self._past(attempt)
        raise _nothing_to_be_had(refusals)

    def _require_unspent(self, attempt: Attempt) -> None:
        """Raise GpuplanError when an ended attempt may have cost something: the plan pays for one machine."""
        if usd := self._past(attempt).cost_at_most_usd:
            raise GpuplanError(
                f"the machine of attempt {attempt.number} ended before it was ready, and may have cost ${usd:.2f}",
                hint="repeat the command: it plans the next attempt, and counts that",
            )

    def _bring_up(self, attempt: Attempt, past: AttemptHistory) -> None:
        """Send the remaining calls of an attempt."""
        runner, number = self.runner, attempt.number
        runner.notify("attempt", _described(attempt), number=number)
        if not past.begun:
            runner.log.begin(self.plan, attempt)
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
            kept = {"id": machine.id, "started": machine.started_at.isoformat()}
            self.runner.log.record("done", attempt=attempt.number, step=call.step, kept=kept)
            self.runner.notify("adopted", f"found {machine.id} by its tags", number=attempt.number, step=call.step)
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
            raise choose_error(fault)(
                f"{self.plan.request.provider} refused: {fault}",
                hint=f"its resources were removed; {describe_retry(fault)} the command",
            ) from fault

    def _is_let_in(self, past: AttemptHistory) -> bool:
        """Whether the account can read the machine, and can therefore end one whose cap cannot be armed."""
        with suppress(CloudError):
            if past.ref is not None:
                self.runner.adapter.look(past.ref)
                return True
        return False

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
            "all attempts of this plan have ended", hint="`gpuplan launch plan.json` plans a new attempt"
        )
    last = refusals[-1]
    hint = "choose another offer, `--rank N`, or try more, `GPUPLAN_FALLBACKS=6`"
    if last.kind is ErrorKind.QUOTA:
        hint = f"request a higher quota from the provider ({last.code}), or choose another region"
    return NoAnswerError(f"none of {len(refusals)} candidates is available; the last answer was {last}", hint=hint)
