"""Ending what was launched, until the cloud itself says that it is gone; then removing what it left.

"Not visible" is not "gone": a machine whose creation is in doubt is looked for until it must have shown up.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from ..errors import GpuplanError
from .adapter import Machine
from .calls import Call, kept
from .faults import RETRIED, CloudFault, FaultKind
from .history import AttemptHistory
from .sending import Sender

__all__ = ["Ender"]


class Ender:
    """What ends machines and removes what belongs to them. Touches nothing that is not the owner's.

    Args:
        sender: Of the run.
        owner: Whose machines may be ended.
    """

    def __init__(self, sender: Sender, *, owner: str) -> None:
        self.sender = sender
        self.owner = owner

    def end_attempt(self, past: AttemptHistory, *, why: str) -> None:
        """End an attempt's machine, wait until it is gone, remove the rest, and write down that it is over.

        Raises:
            CloudFault: The provider does not let us, or does not answer; the attempt stays open in the ledger.
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
        sender.tell("ended", f"nothing of attempt {number} is left", number=number)

    def end_machine(self, machine: Machine, *, number: int) -> None:
        """Tell one machine to end, and wait until it is gone."""
        sender = self.sender
        if machine.owner != self.owner:
            raise GpuplanError(
                f"{machine.id} belongs to `{machine.owner}`, not to `{self.owner}`: it is left alone",
                hint="if it is yours, set `GPUPLAN_OWNER` to that name",
            )
        sender.tell("ending", f"ending {machine.id}", number=number)
        for call in sender.adapter.ending(machine):
            self._send_unless_absent(call, {}, number=number)
        until = sender.clock.monotonic() + sender.pace.ending_s
        for looks in itertools.count():
            if all(one.id != machine.id for one in self._listed([machine.region], number=number)):
                return
            if sender.clock.monotonic() >= until:
                raise GpuplanError(
                    f"{machine.id} was told to end and is still there after {sender.pace.ending_s:g} s",
                    hint=f"look at it in the console of {machine.provider}; `gpuplan stop` tells it again",
                )
            sender.clock.sleep(sender.pace.look_s(looks))

    def find_created(self, past: AttemptHistory) -> Machine | None:
        """Return the machine that an attempt made, looked for by its tags until it must have shown up."""
        sender = self.sender
        since = sender.clock.monotonic()
        while True:
            for machine in self._machines_of(past):
                return machine
            until = since + self._doubt_s(past)
            if sender.clock.monotonic() >= until:
                return None
            sender.clock.sleep(min(sender.pace.poll_s, max(0.0, until - sender.clock.monotonic())))

    def _end_machine(self, past: AttemptHistory) -> float | None:
        """End whatever machine an attempt made; returns how long it lived, None if there was none [s]."""
        if self.find_created(past) is None and past.machine_id is None:
            return None
        for machine in self._machines_of(past):
            self.end_machine(machine, number=past.attempt.number)
        now, started = self.sender.adapter.cloud_time(), past.machine_started_at
        return (now - started).total_seconds() if now and started else None

    def _doubt_s(self, past: AttemptHistory) -> float:
        """Return for how long a machine that cannot be seen may still show up, by the cloud's clock [s]."""
        horizon_s = self.sender.adapter.visibility_s
        now, started = self.sender.adapter.cloud_time(), past.machine_started_at
        if now is None or started is None:
            return horizon_s
        return max(0.0, horizon_s - (now - started).total_seconds())

    def _machines_of(self, past: AttemptHistory) -> list[Machine]:
        """Return the machines that carry an attempt's tags and are ours."""
        attempt = past.attempt
        return [
            machine
            for machine in self._listed([attempt.candidate.region], number=attempt.number)
            if machine.run == past.plan.run
            and machine.attempt == attempt.number
            and machine.owner == self.owner
        ]

    def _remove_resources(self, past: AttemptHistory) -> None:
        """Undo every call that may have made something, the last first."""
        known: dict[str, Mapping[str, Any]] = dict(past.kept)
        for call in reversed(past.attempt.calls):
            if call.makes == "machine" or not call.undo or call.step not in past.intended:
                continue
            left = known.get(call.step) or self._found(call, known, number=past.attempt.number)
            for undo in call.undo:
                try:
                    self._send_unless_absent(
                        undo, {**known, call.step: left or {}}, number=past.attempt.number
                    )
                except KeyError:
                    continue  # it was never made: nothing answers to its name
            self.sender.tell("removed", call.step, number=past.attempt.number, step=call.step)

    def _found(
        self, call: Call, known: Mapping[str, Mapping[str, Any]], *, number: int
    ) -> dict[str, Any] | None:
        """Return what a call whose answer never came made; None when nothing answers to its name."""
        if call.find is None:
            return None
        try:
            return kept(call.find, self.sender.settle_quietly(call.find, known, number=number))
        except CloudFault as fault:
            if fault.kind in {FaultKind.ABSENT, FaultKind.INVALID}:
                return None
            raise

    def _send_unless_absent(self, call: Call, known: Mapping[str, Mapping[str, Any]], *, number: int) -> None:
        """Send a call that removes something; that it is gone already is as good."""
        try:
            self.sender.settle_quietly(call, known, number=number)
        except CloudFault as fault:
            if fault.kind is not FaultKind.ABSENT:
                raise

    def _listed(self, regions: list[str], *, number: int) -> list[Machine]:
        """Return the machines of regions, asked again while the provider does not answer."""
        sender = self.sender
        for tries in range(1, sender.pace.tries + 1):
            try:
                return sender.adapter.machines(regions)
            except CloudFault as fault:
                if fault.kind not in RETRIED or tries == sender.pace.tries:
                    raise
                sender.tell("retry", f"listing: {fault}", number=number, kind=fault.kind, code=fault.code)
                sender.clock.sleep(sender.pace.wait_s(tries))
        raise AssertionError("unreachable: the last try raises")
