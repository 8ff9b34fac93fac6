"""Rows of `gpuplan ps`: runs of the ledger and, if requested, machines at the clouds with our tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from ..plan.money import compute_rental_usd
from .core.cloud_adapter import Adapter, CloudMachine
from .core.error_messages import Failures, explain_errors, list_machines
from .core.history import AttemptHistory, History
from .reports import read_report


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedMachine:
    """A row of `gpuplan ps`."""

    id: str  # id for `gpuplan stop`: the machine's, or the run's while the machine's is unknown
    provider: str
    instance_type: str
    region: str
    state: str  # state by its cloud, or the last one in the ledger
    started_at: datetime | None
    cap_at: datetime | None
    spent_usd: Decimal | None  # cost so far at the planned price; None when price or start are unknown [USD]
    run: str
    attempt: int
    owner: str
    owner_name: str
    source: str  # `cloud` if it was listed now, else `ledger`
    in_ledger: bool
    # what the tags of a machine in the ledger say otherwise: `run`, `attempt`, `owner`, `cap`
    changed_tags: tuple[str, ...] = ()


def listed(
    histories: Sequence[History],
    adapters: Mapping[str, Adapter],
    *,
    regions: Sequence[str] | None,
    now: datetime,
    failures: Failures,
) -> list[ListedMachine]:
    """Return machines and open attempts from the ledger and the given providers, of all or the given regions.

    `now` is the time of this computer, for rows of the ledger; they also replace those of a provider that fails.
    """
    seen = [one for adapter in adapters.values() for one in list_machines(adapter, regions, failures)]
    known = [one for history in histories for one in history.attempts() if one.begun]
    rows = [from_cloud(one, next((past for past in known if past.made(one)), None)) for one in seen]
    for history in histories:
        for past in history.open_attempts():
            if not any(past.made(machine) for machine in seen):
                found = _look(past, adapters, failures)
                state = _state(history, past, adapters, failures) if found is None else ""
                rows.append(from_cloud(found, past) if found else from_ledger(past, now=now, state=state))
    return sorted(rows, key=lambda row: (row.run, row.attempt, row.id))


def _look(past: AttemptHistory, adapters: Mapping[str, Adapter], failures: Failures) -> CloudMachine | None:
    """Return a recorded machine that its provider did not list by tags, or None."""
    adapter, ref = adapters.get(past.provider), past.ref
    if adapter is None or ref is None or past.provider in failures.errors:
        return None
    with (
        failures.collect(f"{past.provider} {ref.id}"),
        explain_errors(past.provider, what=f"for {ref.id}", otherwise="`gpuplan ps` shows the machines on record"),
    ):
        found = adapter.look(ref)
        return None if found is None or found.state == "ended" else found
    return None


def from_cloud(machine: CloudMachine, past: AttemptHistory | None) -> ListedMachine:
    """Return the row of a machine that its cloud describes, by the record of its attempt if there is one."""
    changed = () if past is None else past.find_changed_tags(machine)
    machine = machine if past is None else past.correct(machine)
    lived_s = (machine.seen_at - machine.started_at).total_seconds()
    price = machine.usd_per_hour
    return ListedMachine(
        **machine.model_dump(exclude={"zone", "purchase", "seen_at", "usd_per_hour", "details", "cap_from"}),
        spent_usd=None if price is None else compute_rental_usd(duration_s=max(lived_s, 0.0), usd_per_hour=price),
        source="cloud",
        in_ledger=past is not None,
        changed_tags=changed,
    )


def from_ledger(past: AttemptHistory, *, now: datetime, state: str) -> ListedMachine:
    """Return the row of an open attempt from the ledger."""
    candidate, started = past.attempt.candidate, past.machine_started_at
    lived_s = (now - started).total_seconds() if started else None
    price = candidate.usd_per_hour
    return ListedMachine(
        id=past.machine_id or past.run,
        provider=past.provider,
        instance_type=candidate.instance_type,
        region=candidate.region,
        state=state,
        started_at=started,
        cap_at=started + timedelta(seconds=candidate.cap_s) if started else None,
        spent_usd=compute_rental_usd(duration_s=lived_s, usd_per_hour=price) if lived_s and lived_s > 0 else None,
        run=past.run,
        attempt=past.attempt.number,
        owner=past.owner,
        owner_name=past.owner_name,
        source="ledger",
        in_ledger=True,
    )


def _state(history: History, past: AttemptHistory, adapters: Mapping[str, Adapter], failures: Failures) -> str:
    """Return the state of an attempt that no provider lists: its result, or the ledger's last state."""
    adapter, report = adapters.get(past.provider), None
    if adapter is None or adapter.remote or past.recorded_plan is None:
        return history.state
    with failures.collect(f"{past.provider} {past.run}"):
        report = read_report(past, adapter)
    return report.status if report and report.status != "running" else "gone"
