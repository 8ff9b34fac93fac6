"""State of a run, derived from its records: attempts, their machines, and what is in doubt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from pydantic import Field

from ...errors import GpuplanError
from ...plan.money import compute_rental_usd
from .api_call import RETRIED, Data, ErrorKind
from .cloud_adapter import CloudMachine, MachineRef
from .launch_plan import Attempt, LaunchPlan

RunState = Literal["planned", "starting", "unknown", "running", "ending", "ended", "finished"]


class BegunAttempt(Data):
    """What finds and ends everything that an attempt makes, without its plan; recorded before its first call.

    Of its calls only those that make or arm something are kept, without parameters.
    """

    provider: str
    owner: str
    owner_name: str = ""
    attempt: Attempt

    @classmethod
    def of_plan(cls, plan: LaunchPlan, attempt: Attempt) -> BegunAttempt:
        """Return the record of a planned attempt."""
        bare: dict[str, Any] = {"params": {}, "expects": {}}
        calls = tuple(one.model_copy(update=bare) for one in attempt.calls if one.makes or one.arms)
        known = {name: getattr(plan.request, name) for name in ("provider", "owner", "owner_name")}
        return cls(**known, attempt=attempt.model_copy(update={"calls": calls}))


class Record(Data):
    """A line of a journal; empty values are not written. Attempt 0 is the whole run, an empty step the attempt."""

    event: str  # `planned`, `attempt`, `intent`, `done`, `fault`, `up`, `ending`, `ended`, `noted` or `finished`
    attempt: int = 0
    step: str = ""
    kept: dict[str, Any] = Field(default_factory=dict)  # values of a reply
    kind: str = ""  # kind of a refusal
    why: str = ""
    lived_s: Decimal | None = None  # life of an ended machine [s]
    file: str = ""
    sha256: str = ""
    begun: BegunAttempt | None = None
    outcome: dict[str, Any] = Field(default_factory=dict)  # report of the machine on its end


class AttemptHistory(BegunAttempt):
    """History of one attempt, its records oldest first; the plan is None when it cannot be read.

    If records may be missing (`doubtful`), everything may have been sent.
    """

    run: str
    records: tuple[Record, ...]
    recorded_plan: LaunchPlan | None
    doubtful: bool = False

    @property
    def plan(self) -> LaunchPlan:
        """The plan that it belongs to; GpuplanError when it cannot be read."""
        if self.recorded_plan is None:
            raise GpuplanError(
                f"the plan of run `{self.run}` cannot be read", hint=f"`gpuplan stop {self.run}` ends the run"
            )
        return self.recorded_plan

    @property
    def kept(self) -> dict[str, dict[str, Any]]:
        """Values kept from the reply of each completed call, by step."""
        return {record.step: record.kept for record in self._all("done")}

    @property
    def intended(self) -> set[str]:
        """Steps that may have been sent."""
        sent = {record.step for record in self._all("intent")}
        return sent | {call.step for call in self.attempt.calls} if self.doubtful else sent

    @property
    def begun(self) -> bool:
        """Whether anything may have been sent."""
        return bool(self.intended)

    def has(self, event: str) -> bool:
        """Whether there is a record of an event: `up` (all calls done), `ending`, `noted` (result queried)."""
        return any(record.event == event for record in self.records)

    @property
    def is_over(self) -> bool:
        """Whether everything that it made is known to be gone."""
        return self.has("ended")

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
        one = self.attempt
        return MachineRef(id=self.machine_id, region=one.candidate.region, zone=one.zone, details=one.details)

    def made(self, machine: CloudMachine) -> bool:
        """Whether a machine belongs to this attempt: by its id, or by its tags while none is on record."""
        if machine.provider != self.provider:
            return False
        if self.machine_id is not None:
            return machine.id == self.machine_id
        wanted = (self.run, self.attempt.number, self.owner)
        return self.may_have_machine and (machine.run, machine.attempt, machine.owner) == wanted

    def correct(self, machine: CloudMachine) -> CloudMachine:
        """Return this attempt's machine as it is on record, whatever its tags say."""
        candidate = self.attempt.candidate
        started_at = self.machine_started_at or machine.started_at
        waits = (machine.cap_from or machine.started_at) - machine.started_at
        return machine.model_copy(
            update={
                "run": self.run,
                "attempt": self.attempt.number,
                "owner": self.owner,
                "owner_name": self.owner_name,
                "usd_per_hour": candidate.usd_per_hour,
                "started_at": started_at,
                "cap_at": started_at + waits + timedelta(seconds=candidate.cap_s),
            }
        )

    def find_changed_tags(self, machine: CloudMachine) -> tuple[str, ...]:
        """Return what the tags of this attempt's machine say otherwise than the record."""
        cap_at = (machine.cap_from or machine.started_at) + timedelta(seconds=self.attempt.candidate.cap_s)
        known = {"run": self.run, "attempt": self.attempt.number, "owner": self.owner, "cap_at": cap_at}
        changed = (name for name, value in known.items() if getattr(machine, name) != value)
        return tuple(name.removesuffix("_at") for name in changed)

    @property
    def machine_refused(self) -> bool:
        """Whether the machine was definitely refused.

        A call that was sent twice had no recorded answer the first time: that request may have created a machine,
        whatever the second answer is.
        """
        kinds = [record.kind for record in self._all("fault") if record.step == self.machine_step]
        asked = sum(record.step == self.machine_step for record in self._all("intent"))
        no_doubt = asked == 1 and ErrorKind.UNKNOWN not in kinds and not self.doubtful
        return bool(kinds) and no_doubt and kinds[-1] not in RETRIED

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
        return next((one.lived_s for one in reversed(self.records) if one.lived_s is not None), None)

    @property
    def cost_at_most_usd(self) -> Decimal:
        """Maximum cost of the attempt: by its life if it is known, else by its cap [USD]."""
        refused = self.machine_step not in self.intended or self.machine_refused
        if not self.begun or (self.is_over and self.machine_id is None and refused):
            return Decimal(0)
        worst = self.plan.worst_case_usd
        if self.lived_s is None:
            return worst
        price = self.attempt.candidate.usd_per_hour
        return min(worst, compute_rental_usd(duration_s=float(self.lived_s), usd_per_hour=price))

    def _all(self, event: str) -> Iterator[Record]:
        """Yield the records of an event."""
        return (record for record in self.records if record.event == event)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """History of a run, as far as its files can be read; plans and records are in order, oldest first."""

    run: str
    plans: tuple[LaunchPlan, ...]
    records: tuple[Record, ...]
    problems: tuple[str, ...] = ()  # what cannot be read, a line for each file
    doubtful: bool = False  # whether records may be missing

    @property
    def finished(self) -> str | None:
        """Reason why the run is finished; None while it is not."""
        return next((one.why for one in reversed(self.records) if one.event == "finished"), None)

    def attempts(self) -> list[AttemptHistory]:
        """Return the histories of all known attempts, oldest first; the newest plan of each number counts."""
        plans = {attempt.number: plan for plan in self.plans for attempt in plan.attempts}
        known = {one.number: BegunAttempt.of_plan(plan, one) for plan in self.plans for one in plan.attempts}
        known |= {record.attempt: record.begun for record in self.records if record.begun is not None}
        return [
            AttemptHistory(
                run=self.run,
                **dict(begun),
                records=tuple(record for record in self.records if record.attempt == number),
                recorded_plan=plans.get(number),
                doubtful=self.doubtful and self.finished is None,
            )
            for number, begun in sorted(known.items())
        ]

    def open_attempts(self) -> list[AttemptHistory]:
        """Return the attempts that were begun and are not over."""
        return [one for one in self.attempts() if one.begun and not one.is_over]

    def lost_attempts(self) -> dict[int, list[str]]:
        """Return attempts that were begun, of which only ids are known: number to ids of what they made."""
        if self.finished is not None:
            return {}
        known = {one.attempt.number for one in self.attempts()}
        known |= {record.attempt for record in self.records if record.event == "ended"}
        lost: dict[int, list[str]] = {}
        for record in self.records:
            if record.event in {"intent", "done"} and record.attempt not in known:
                lost.setdefault(record.attempt, []).extend(filter(None, [record.kept.get("id")]))
        return lost

    def current(self) -> AttemptHistory | None:
        """Return the attempt that was begun last, or None."""
        return next((one for one in reversed(self.attempts()) if one.begun), None)

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
        if current.has("ending"):
            return "ending"
        if current.machine_id is None and current.may_have_machine:
            return "unknown"
        return "running" if current.has("up") else "starting"

    @property
    def spent_at_most_usd(self) -> Decimal:
        """Maximum cost of all attempts so far [USD]."""
        return sum((one.cost_at_most_usd for one in self.attempts()), Decimal(0))

    @property
    def next_attempt(self) -> int:
        """Number of the next attempt."""
        current = self.current()
        return 1 if current is None else current.attempt.number + 1
