"""Teardown: end machines until the cloud confirms their end, then remove their other resources.

A machine on record is ended and queried by its recorded id, whatever its tags are. A machine that is not visible
is not yet gone: while its creation is in doubt, it is polled for the cloud's visibility time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from ...errors import GpuplanError
from .api_call import RETRIED, Call, CloudError, ErrorKind, StepOutputs
from .cloud_adapter import CloudMachine, MachineRef
from .history import AttemptHistory
from .retry import CallRunner

Answer = TypeVar("Answer")
Look = Callable[[], list[CloudMachine]]

CLOCK_TICK_S = 0.001  # shorter waits count as over: a sum of floats may never reach them


class Teardown:
    """Ends machines and removes their resources.

    Args:
        runner: Call runner of the run.
        owner: Owner whose machines may be ended by their tags; machines on record belong to their plan's owner.
    """

    def __init__(self, runner: CallRunner, *, owner: str) -> None:
        self.runner = runner
        self.owner = owner

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

    def end_machine(self, machine: CloudMachine, *, number: int) -> None:
        """End a machine that was found by its tags, if it belongs to the owner."""
        if machine.owner != self.owner:
            raise GpuplanError(
                f"{machine.id} belongs to `{machine.owner}`, not to `{self.owner}`: not ended",
                hint=f"if it is yours: `gpuplan stop {machine.id} --owner {machine.owner or 'ID'}`",
            )
        self._end(machine.ref, started_at=machine.started_at, number=number)

    def find(self, past: AttemptHistory) -> CloudMachine | None:
        """Return an attempt's machine while it costs money.

        None when its cloud says that it has ended, or has not shown it within the visibility time. A machine on
        record is queried by its id, one whose id was never received by its tags.
        """
        ref, number = past.ref, past.attempt.number
        if ref is None:
            return next(iter(self._until_shown(lambda: self._tagged(past), past)), None)
        for machine in self._until_shown(lambda: self._seen(ref, number=number), past):
            return None if machine.state == "ended" else machine
        return None

    def _end_machine(self, past: AttemptHistory) -> float | None:
        """End the machine of an attempt; return its life, None without a machine [s]."""
        refs, started_at = [past.ref] if past.ref else [], past.machine_started_at
        if not refs:
            refs = [one.ref for one in self._until_shown(lambda: self._tagged(past), past)]
        for ref in refs:
            self._end(ref, started_at=started_at, number=past.attempt.number)
        return self._lived_s(started_at) if refs else None

    def _end(self, ref: MachineRef, *, started_at: datetime | None, number: int) -> None:
        """End one machine and wait until its cloud confirms the end.

        Args:
            ref: The machine.
            started_at: Its start by the cloud's clock; None: unknown.
            number: Number of its attempt.
        """
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
        """Return the remaining time in which a machine whose creation is in doubt may still become visible [s].

        Args:
            started_at: Its start by the cloud's clock; None: unknown.
            since: Local time of the first request for it [s].
        """
        waited_s = self.runner.clock.monotonic() - since
        known_s = max(waited_s, self._lived_s(started_at) or 0.0)
        remaining_s = self.runner.adapter.visibility_s - known_s
        return remaining_s if remaining_s > CLOCK_TICK_S else 0.0

    def _lived_s(self, started_at: datetime | None) -> float | None:
        """Return the time since a machine's start by the cloud's clock; None: unknown [s]."""
        now = self.runner.adapter.cloud_time()
        return (now - started_at).total_seconds() if now and started_at else None

    def _tagged(self, past: AttemptHistory) -> list[CloudMachine]:
        """Return the machines that carry an attempt's tags and its plan's owner."""
        attempt, request = past.attempt, past.plan.request
        wanted = (request.run, attempt.number, request.owner)
        return [
            one
            for one in self._listed([attempt.candidate.region], number=attempt.number)
            if (one.run, one.attempt, one.owner) == wanted
        ]

    def _seen(self, ref: MachineRef, *, number: int) -> list[CloudMachine]:
        """Return the current description of a machine as a list; empty when it is unknown."""
        look = self.runner.adapter.look
        machine = self._answered(lambda: look(ref), what=f"look at {ref.id}", number=number)
        return [] if machine is None else [machine]

    def _listed(self, regions: list[str], *, number: int) -> tuple[CloudMachine, ...]:
        """Return the machines of regions; raise the error of a place that does not answer."""

        def ask() -> tuple[CloudMachine, ...]:
            listing = self.runner.adapter.machines(regions)
            for fault in listing.failed.values():
                raise fault
            return listing.machines

        return self._answered(ask, what="listing", number=number)

    def _answered(self, ask: Callable[[], Answer], *, what: str, number: int) -> Answer:
        """Return an answer, with retries."""
        runner = self.runner
        for tries in range(1, runner.backoff.tries + 1):
            try:
                return ask()
            except CloudError as fault:
                if fault.kind not in RETRIED or tries == runner.backoff.tries:
                    raise
                runner.notify("retry", f"{what}: {fault}", number=number, kind=fault.kind, code=fault.code)
                runner.clock.sleep(runner.backoff.delay_s(tries))
        raise AssertionError("unreachable: the last try raises")

    def _remove_resources(self, past: AttemptHistory) -> None:
        """Undo every call that may have made something, in reverse order."""
        known: dict[str, Mapping[str, Any]] = {**past.kept}
        for call in reversed(past.attempt.calls):
            if call.makes == "machine" or not call.undo or call.step not in past.intended:
                continue
            left = known.get(call.step) or self.runner.find_existing(
                call, known, number=past.attempt.number, absent=(ErrorKind.ABSENT, ErrorKind.INVALID)
            )
            for undo in call.undo:
                with suppress(KeyError):  # it was never made
                    self.send_unless_absent(
                        undo, {**known, call.step: left or {}}, number=past.attempt.number
                    )
            self.runner.notify("removed", call.step, number=past.attempt.number, step=call.step)

    def send_unless_absent(self, call: Call, known: StepOutputs, *, number: int) -> None:
        """Send a call that removes something; a missing thing counts as removed."""
        try:
            self.runner.settle_quietly(call, known, number=number)
        except CloudError as fault:
            if fault.kind is not ErrorKind.ABSENT:
                raise
