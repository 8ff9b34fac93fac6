"""What a run's records say of its machines and of their cost, by hand."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from gpuplan.launch.core.cloud_adapter import CloudMachine
from gpuplan.launch.core.history import AttemptHistory, BegunAttempt, History, Record
from gpuplan.launch.core.launch_plan import LaunchPlan
from gpuplan.launch.core.request import parse_tags
from launch.conftest import Bench
from launch.fake_cloud import START

BEGUN = {"event": "intent", "attempt": 1, "step": "machine"}
MADE = {"event": "done", "attempt": 1, "step": "machine", "kept": {"id": "m-1", "started": START.isoformat()}}
WORST_USD = Decimal("1.525")  # $1.50 an hour for its cap of an hour and the minute until the cloud has ended it


def test_a_plan_of_another_version_is_read_as_far_as_it_is_known(bench: Bench) -> None:
    """New fields, kinds and limits of a newer one; what an older one had not yet gets its default."""
    plan = bench.plan()
    assert LaunchPlan.from_record(json.dumps(plan.to_json()).encode()) == plan

    stored = {**plan.to_json(), "schema": "gpuplan.launch/2", "insurance": {"by": "x"}}
    attempt, request = stored["attempts"][0], stored["request"]
    attempt["candidate"] |= {"purchase": "reserved", "cap_s": 90 * 86400, "rank": 0, "colour": "red"}
    attempt["calls"][0] |= {"retries": 3, "makes": "reservation"}
    attempt["layers"][0]["where"] = "datacenter"
    del request["owner_name"], attempt["calls"][0]["patience_s"]
    newer = LaunchPlan.from_record(json.dumps(stored).encode())

    assert newer.attempts[0].candidate.cap_s == 90 * 86400
    assert newer.attempts[0].calls[0].undo == plan.attempts[0].calls[0].undo
    assert (newer.request.owner_name, newer.attempts[0].calls[0].patience_s) == ("", 0.0)
    assert newer.request.candidates == plan.request.candidates


DAMAGED = ["", "{", "[]", "5", "{}", "[" * 9999, b"\xff\xfe", '{"attempts": 5}', "null"]
WRONG = [("request", []), ("attempts", [5]), ("worst_case_usd", "abc"), ("cap_s", "x"), ("stop", None)]


@pytest.mark.parametrize("damage", [*DAMAGED, *WRONG])
def test_a_damaged_plan_is_an_error_of_one_line(bench: Bench, damage: str | bytes | tuple[str, Any]) -> None:
    if isinstance(damage, tuple):
        damage = json.dumps({**bench.plan().to_json(), damage[0]: damage[1]})
    with pytest.raises(ValueError, match=r"^.+$"):
        LaunchPlan.from_record(damage if isinstance(damage, bytes) else damage.encode())


def ended(lived_s: str | None, attempt: int = 1) -> dict[str, Any]:
    """Return the record of an attempt whose resources are gone."""
    return {"event": "ended", "attempt": attempt, "lived_s": lived_s}


def read(*records: dict[str, Any]) -> tuple[Record, ...]:
    """Return records as they are read from a journal."""
    return tuple(map(Record.from_stored, records))


REFUSED = {"event": "fault", "attempt": 1, "step": "machine", "kind": "capacity"}


def attempt_of(bench: Bench, *records: dict[str, Any]) -> AttemptHistory:
    """Return the history of the first attempt of a plan with these records."""
    plan = bench.plan()
    begun = BegunAttempt.of_plan(plan, plan.attempts[0])
    return AttemptHistory(run="r1", **dict(begun), recorded_plan=plan, records=read(*records))


@pytest.mark.parametrize(
    ("records", "usd"),
    [
        ((), 0),  # nothing was sent
        ((BEGUN,), WORST_USD),  # no answer: there may be a machine
        ((BEGUN, ended(None)), WORST_USD),  # it is over; a machine whose answer was lost may have run to its cap
        ((BEGUN, REFUSED, ended(None)), 0),
        ((BEGUN, MADE), WORST_USD),
        ((BEGUN, MADE, ended(None)), WORST_USD),  # nobody knows how long it lived
        ((BEGUN, MADE, ended("1800")), "0.75"),  # half an hour
        ((BEGUN, MADE, ended("7200")), WORST_USD),  # beyond its cap nothing is charged
    ],
)
def test_an_attempt_costs_its_life_at_most_and_never_more_than_its_cap(
    bench: Bench, records: tuple[dict[str, Any], ...], usd: Decimal | str | int
) -> None:
    assert attempt_of(bench, *records).cost_at_most_usd == Decimal(usd)


def test_what_a_run_has_spent_is_the_sum_of_its_attempts(bench: Bench) -> None:
    """The first lived half an hour, of the second nothing is known, the third was not begun: $0.75 + $1.525."""
    plan = bench.plan("here", "there", "here")
    records = (BEGUN, MADE, ended("1800"), {**BEGUN, "attempt": 2})
    history = History(run="r1", plans=(plan,), records=read(*records))

    assert plan.worst_case_usd == WORST_USD
    assert history.spent_at_most_usd == Decimal("2.275")
    assert history.next_attempt == 3


def machine(**changes: Any) -> CloudMachine:
    """Return a machine with the tags of the first attempt of run `r1`."""
    known = {
        "id": "m-9", "provider": "fake", "region": "here", "instance_type": "big", "purchase": "on_demand",
        "state": "running", "started_at": START, "seen_at": START, "cap_at": None, "run": "r1", "attempt": 1,
        "owner": "me", "usd_per_hour": None,
    }  # fmt: skip
    return CloudMachine(**{**known, **changes})


@pytest.mark.parametrize("changes", [{"run": "r2"}, {"attempt": 2}, {"owner": "you"}, {"provider": "other"}])
def test_a_machine_without_an_id_on_record_is_known_by_all_of_its_tags(
    bench: Bench, changes: dict[str, Any]
) -> None:
    """Run, attempt and owner; one of them alone makes no machine ours."""
    asked = attempt_of(bench, BEGUN)

    assert asked.made(machine())
    assert not asked.made(machine(**changes))


def test_a_machine_with_an_id_on_record_is_known_by_it_alone(bench: Bench) -> None:
    known = attempt_of(bench, BEGUN, MADE)

    assert known.made(machine(id="m-1", run="", attempt=0, owner=""))
    assert not known.made(machine(id="m-9"))
    assert not known.made(machine(id="m-1", provider="other"))


def test_the_cap_of_a_queued_machine_begins_after_its_longest_wait() -> None:
    """Started at 12:00 with a cap of an hour: it ends at 13:00, after half an hour of waiting at 13:30."""
    tags = {"gpuplan-cap-s": "3600", "gpuplan-microusd-per-hour": "1500000", "gpuplan-owner-name": "ana"}

    assert parse_tags(tags, started_at=START)["cap_at"] == START + timedelta(hours=1)
    queued = parse_tags(tags, started_at=START, wait_s=1800.0)
    assert queued == {
        "run": "",
        "attempt": 0,
        "owner": "",
        "owner_name": "ana",
        "usd_per_hour": Decimal("1.5"),
        "cap_from": START + timedelta(hours=0.5),
        "cap_at": START + timedelta(hours=1.5),
    }
    assert parse_tags({"gpuplan-cap-s": "soon"}, started_at=START)["cap_at"] is None
