"""Ending what was launched, until the cloud itself says that it is gone; then removing what it left.

A machine on record is ended and asked for by its recorded id, whatever its tags are. "Not visible" is not
"gone": a machine whose creation is in doubt is looked for until it must have shown up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ...errors import GpuplanError
from .api_call import Call, kept
from .cloud_adapter import CloudMachine, MachineRef
from .errors import RETRIED, CloudError, ErrorKind
from .history import AttemptHistory
from .retry import CallRunner

__all__ = ["Teardown"]

Answer = TypeVar("Answer")


class Teardown:
    """What ends machines and removes what belongs to them.

    Args:
        sender: Of the run.
        owner: Whose machines may be ended by their tags; those on record are their plan's owner's.
    """

    def __init__(self, sender: CallRunner, *, owner: str) -> None:
        self.sender = sender
        self.owner = owner

    def end_attempt(self, past: AttemptHistory, *, why: str) -> None:
        """End an attempt's machine, wait until it is gone, remove the rest, and write down that it is over.

        Raises:
            CloudError: The provider does not let us, or does not answer; the attempt stays open in the ledger.
            GpuplanError: The machine does not go away.
        """
        sender, number = self.sender, past.attempt.number
        if past.is_over:
            return
        lived_s = None
        sender.log.record("ending", attempt=number, why=why)
        if past.may_have_machine:
            lived_s = self._end_machine(past)
        self._remove_resources(past)
        sender.log.record("ended", attempt=number, why=why, lived_s=lived_s)
        sender.notify("ended", f"nothing of attempt {number} is left", number=number)

    def end_machine(self, machine: CloudMachine, *, number: int) -> None:
        """End a machine that was found by its tags, if it is the owner's."""
        if machine.owner != self.owner:
            raise GpuplanError(
                f"{machine.id} belongs to `{machine.owner}`, not to `{self.owner}`: it is left alone",
                hint=f"if it is yours: `gpuplan stop {machine.id} --owner {machine.owner or 'ID'}`",
            )
        lived_s = (machine.seen_at - machine.started_at).total_seconds()
        doubt_s = max(0.0, self.sender.adapter.visibility_s - lived_s)
        self._end(machine.ref, doubt_s=doubt_s, number=number)

    def find(self, past: AttemptHistory) -> CloudMachine | None:
        """Return an attempt's machine while it costs money.

        None when its cloud says that it has ended, or does not know it for as long as a machine may take to
        show up. A machine on record is asked for by its id; one whose answer never came by its tags.
        """
        ref, number = past.ref, past.attempt.number
        if ref is None:
            return next(iter(self._until_shown(lambda: self._tagged(past), past)), None)
        for machine in self._until_shown(lambda: self._seen(ref, number=number), past):
            return None if machine.state == "ended" else machine
        return None

    def _end_machine(self, past: AttemptHistory) -> float | None:
        """End whatever machine an attempt made; returns how long it lived, None if there was none [s]."""
        refs = (
            [past.ref]
            if past.ref
            else [one.ref for one in self._until_shown(lambda: self._tagged(past), past)]
        )
        if not refs:
            return None
        for ref in refs:
            self._end(ref, doubt_s=self._doubt_s(past), number=past.attempt.number)
        now, started = self.sender.adapter.cloud_time(), past.machine_started_at
        return (now - started).total_seconds() if now and started else None

    def _end(self, ref: MachineRef, *, doubt_s: float, number: int) -> None:
        """Tell one machine to end, and wait until its cloud says of this very machine that it has.

        Args:
            ref: The machine.
            doubt_s: For how long "unknown" may mean "not visible yet" [s].
            number: Of its attempt.
        """
        sender = self.sender
        sender.notify("ending", f"ending {ref.id}", number=number)
        since = sender.clock.monotonic()
        for looks in itertools.count():
            for call in sender.adapter.ending(ref) if looks == 0 else ():
                self.send_unless_absent(call, {}, number=number)
            seen = self._seen(ref, number=number)
            waited_s = sender.clock.monotonic() - since
            if [one.state for one in seen] == ["ended"] or (not seen and waited_s >= doubt_s):
                return
            if waited_s >= sender.backoff.ending_s:
                raise GpuplanError(
                    f"{ref.id} was told to end and is still there after {sender.backoff.ending_s:g} s",
                    hint=f"look at it in the console of {sender.adapter.provider}; `gpuplan stop` tells it again",
                )
            sender.clock.sleep(sender.backoff.poll_delay_s(looks))

    def _until_shown(
        self, look: Callable[[], list[CloudMachine]], past: AttemptHistory
    ) -> list[CloudMachine]:
        """Return what a look brings, repeated until a machine must have shown up; then it may be empty."""
        sender = self.sender
        since = sender.clock.monotonic()
        while True:
            found = look()
            until = since + self._doubt_s(past)
            if found or sender.clock.monotonic() >= until:
                return found
            sender.clock.sleep(min(sender.backoff.poll_s, max(0.0, until - sender.clock.monotonic())))

    def _doubt_s(self, past: AttemptHistory) -> float:
        """Return for how long a machine that cannot be seen may still show up, by the cloud's clock [s]."""
        horizon_s = self.sender.adapter.visibility_s
        now, started = self.sender.adapter.cloud_time(), past.machine_started_at
        if now is None or started is None:
            return horizon_s
        return max(0.0, horizon_s - (now - started).total_seconds())

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
        """Return a machine as its cloud describes it now, empty when it does not know it."""

        def ask() -> list[CloudMachine]:
            machine = self.sender.adapter.look(ref)
            return [] if machine is None else [machine]

        return self._answered(ask, what=f"look at {ref.id}", number=number)

    def _listed(self, regions: list[str], *, number: int) -> tuple[CloudMachine, ...]:
        """Return the machines of regions; a place that does not answer leaves it open what is there."""

        def ask() -> tuple[CloudMachine, ...]:
            listing = self.sender.adapter.machines(regions)
            for fault in listing.failed.values():
                raise fault
            return listing.machines

        return self._answered(ask, what="listing", number=number)

    def _answered(self, ask: Callable[[], Answer], *, what: str, number: int) -> Answer:
        """Return an answer, asked for again while the provider does not give one."""
        sender = self.sender
        for tries in range(1, sender.backoff.tries + 1):
            try:
                return ask()
            except CloudError as fault:
                if fault.kind not in RETRIED or tries == sender.backoff.tries:
                    raise
                sender.notify("retry", f"{what}: {fault}", number=number, kind=fault.kind, code=fault.code)
                sender.clock.sleep(sender.backoff.wait_s(tries))
        raise AssertionError("unreachable: the last try raises")

    def _remove_resources(self, past: AttemptHistory) -> None:
        """Undo every call that may have made something, the last first."""
        known: dict[str, Mapping[str, Any]] = dict(past.kept)
        for call in reversed(past.attempt.calls):
            if call.makes == "machine" or not call.undo or call.step not in past.intended:
                continue
            left = known.get(call.step) or self._found(call, known, number=past.attempt.number)
            for undo in call.undo:
                try:
                    self.send_unless_absent(
                        undo, {**known, call.step: left or {}}, number=past.attempt.number
                    )
                except KeyError:
                    continue  # it was never made: nothing answers to its name
            self.sender.notify("removed", call.step, number=past.attempt.number, step=call.step)

    def _found(
        self, call: Call, known: Mapping[str, Mapping[str, Any]], *, number: int
    ) -> dict[str, Any] | None:
        """Return what a call whose answer never came made; None when nothing answers to its name."""
        if call.find is None:
            return None
        try:
            return kept(call.find, self.sender.settle_quietly(call.find, known, number=number))
        except CloudError as fault:
            if fault.kind in {ErrorKind.ABSENT, ErrorKind.INVALID}:
                return None
            raise

    def send_unless_absent(self, call: Call, known: Mapping[str, Mapping[str, Any]], *, number: int) -> None:
        """Send a call that removes something; that it is gone already is as good."""
        try:
            self.sender.settle_quietly(call, known, number=number)
        except CloudError as fault:
            if fault.kind is not ErrorKind.ABSENT:
                raise
