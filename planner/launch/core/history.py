"""State of a run, derived from its records: attempts, their machines, and what is in doubt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from ...plan.money import compute_rental_usd
from .api_call import RETRIED, ErrorKind
from .cloud_adapter import CloudMachine, MachineRef
from .launch_plan import Attempt, LaunchPlan

RunState = Literal["planned", "starting", "unknown", "running", "ending", "ended", "finished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptHistory:
    """History of one attempt.

    Args:
        attempt: The planned attempt.
        plan: The plan that it belongs to.
        records: Its records, oldest first.
    """

    attempt: Attempt
    plan: LaunchPlan
    records: tuple[dict[str, Any], ...]

    @property
    def kept(self) -> dict[str, dict[str, Any]]:
        """Values kept from the reply of each completed call, by step."""
        return {record["step"]: record["kept"] for record in self._all("done")}

    @property
    def intended(self) -> set[str]:
        """Steps that may have been sent."""
        return {record["step"] for record in self._all("intent")}

    @property
    def begun(self) -> bool:
        """Whether anything may have been sent."""
        return bool(self.intended)

    @property
    def is_up(self) -> bool:
        """Whether all calls were done."""
        return any(True for _ in self._all("up"))

    @property
    def is_over(self) -> bool:
        """Whether everything that it made is known to be gone."""
        return any(True for _ in self._all("ended"))

    @property
    def is_ending(self) -> bool:
        """Whether its teardown has begun."""
        return any(True for _ in self._all("ending"))

    @property
    def is_noted(self) -> bool:
        """Whether its result was queried, and recorded if there was one."""
        return any(True for _ in self._all("noted"))

    @property
    def machine_step(self) -> str:
        """The step that makes the machine."""
        return next(call.step for call in self.attempt.calls if call.makes == "machine")

    @property
    def machine_id(self) -> str | None:
        """The cloud's id of the machine; None when no answer has contained it."""
        return self.kept.get(self.machine_step, {}).get("id")

    @property
    def ref(self) -> MachineRef | None:
        """Identity of the machine; None when its id is not on record."""
        if self.machine_id is None:
            return None
        attempt = self.attempt
        return MachineRef(
            id=self.machine_id, region=attempt.candidate.region, zone=attempt.zone, details=attempt.details
        )

    def made(self, machine: CloudMachine) -> bool:
        """Whether a machine belongs to this attempt: by its id, or by its tags while no id is on record."""
        request = self.plan.request
        if machine.provider != request.provider:
            return False
        if self.machine_id is not None:
            return machine.id == self.machine_id
        wanted = (request.run, self.attempt.number, request.owner)
        return (machine.run, machine.attempt, machine.owner) == wanted

    @property
    def machine_refused(self) -> bool:
        """Whether the machine was definitely refused.

        A call that was sent twice had no recorded answer the first time: that request may have created a machine,
        whatever the second answer is.
        """
        kinds = [record["kind"] for record in self._all("fault") if record["step"] == self.machine_step]
        asked = sum(record["step"] == self.machine_step for record in self._all("intent"))
        no_doubt = asked == 1 and ErrorKind.UNKNOWN not in kinds
        return bool(kinds) and no_doubt and ErrorKind(kinds[-1]) not in RETRIED

    @property
    def may_have_machine(self) -> bool:
        """Whether a machine may exist: it was requested, and is not known to be refused or gone."""
        asked = self.machine_step in self.intended
        return asked and not self.is_over and (self.machine_id is not None or not self.machine_refused)

    @property
    def machine_started_at(self) -> datetime | None:
        """Start of the machine by the cloud's clock; None when no answer has contained it."""
        started = self.kept.get(self.machine_step, {}).get("started")
        return datetime.fromisoformat(started) if started else None

    @property
    def lived_s(self) -> Decimal | None:
        """Life of the machine by the cloud's clock; None: unknown [s]."""
        lived = [Decimal(record["lived_s"]) for record in self._all("ended") if record.get("lived_s")]
        return lived[-1] if lived else None

    @property
    def cost_at_most_usd(self) -> Decimal:
        """Maximum cost of the attempt: by its life if it is known, else by its cap [USD]."""
        if not self.begun or (self.is_over and self.machine_id is None):
            return Decimal(0)
        worst = self.plan.worst_case_usd
        if self.lived_s is None:
            return worst
        price = self.attempt.candidate.usd_per_hour
        return min(worst, compute_rental_usd(duration_s=float(self.lived_s), usd_per_hour=price))

    def _all(self, event: str) -> Iterator[dict[str, Any]]:
        """Yield the records of an event."""
        return (record for record in self.records if record["event"] == event)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """History of a run.

    Args:
        run: Name of the run.
        plans: Its plans, oldest first.
        records: Its records, oldest first.
    """

    run: str
    plans: tuple[LaunchPlan, ...]
    records: tuple[dict[str, Any], ...]

    @property
    def finished(self) -> str | None:
        """Reason why the run is finished; None while it is not."""
        whys = [record["why"] for record in self.records if record["event"] == "finished"]
        return whys[-1] if whys else None

    def attempts(self) -> list[AttemptHistory]:
        """Return the histories of all planned attempts, oldest first; the newest plan of each number counts."""
        newest = {attempt.number: (attempt, plan) for plan in self.plans for attempt in plan.attempts}
        return [
            AttemptHistory(
                attempt=attempt,
                plan=plan,
                records=tuple(record for record in self.records if record.get("attempt") == number),
            )
            for number, (attempt, plan) in sorted(newest.items())
        ]

    def open_attempts(self) -> list[AttemptHistory]:
        """Return the attempts that were begun and are not over."""
        return [one for one in self.attempts() if one.begun and not one.is_over]

    def current(self) -> AttemptHistory | None:
        """Return the attempt that was begun last, or None."""
        begun = [one for one in self.attempts() if one.begun]
        return begun[-1] if begun else None

    @property
    def state(self) -> RunState:
        """State of the run, as far as this computer knows."""
        current = self.current()
        if self.finished:
            return "finished"
        if current is None:
            return "planned"
        if current.is_over:
            return "ended"
        if current.is_ending:
            return "ending"
        if current.machine_id is None and current.may_have_machine:
            return "unknown"
        return "running" if current.is_up else "starting"

    @property
    def spent_at_most_usd(self) -> Decimal:
        """Maximum cost of all attempts so far [USD]."""
        return sum((one.cost_at_most_usd for one in self.attempts()), Decimal(0))

    @property
    def next_attempt(self) -> int:
        """Number of the next attempt."""
        return max((one.attempt.number for one in self.attempts() if one.begun), default=0) + 1
