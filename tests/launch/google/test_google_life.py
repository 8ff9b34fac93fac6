"""Google Cloud's adapter before a server that holds it to Google's discovery documents; the meter is the judge."""

from __future__ import annotations

import pytest
from gpuplan.errors import GpuplanError, NoAnswerError
from launch.bench_on_sockets import Bench
from launch.consoles import CONSOLE, SAID, check_failure_is_read
from launch.sockets_life import (
    test_a_kill_at_any_call_ends_in_one_machine_or_none,
    test_a_later_process_ends_an_old_machine_without_waiting,
    test_a_lost_answer_makes_no_second_machine,
    test_a_machine_nobody_answered_for_is_adopted,
    test_no_rights_is_said_as_such,
    test_the_whole_life_of_a_run,
)

__all__ = [
    "test_a_kill_at_any_call_ends_in_one_machine_or_none",
    "test_a_later_process_ends_an_old_machine_without_waiting",
    "test_a_lost_answer_makes_no_second_machine",
    "test_a_machine_nobody_answered_for_is_adopted",
    "test_no_rights_is_said_as_such",
    "test_the_whole_life_of_a_run",
]


def kind_of(bench: Bench) -> str:
    return "tpu" if bench.base.instance_type.startswith("tpu") else "gpu"


def test_the_cloud_ends_it_at_its_cap_without_us(bench: Bench) -> None:
    """An hour after billing began, to the second, without further requests; then reap closes the record."""
    bench.launcher.launch(bench.plan())
    bench.server.control(advance_s=90_000.0)

    (billed,) = bench.state()["meter"]
    assert billed["ended_s"] - billed["started_s"] == 3600.0
    bench.launcher.reap(["gcp"], regions=None)
    assert bench.adapter.machines(None).machines == ()
    assert bench.launcher.ledger.run("r1").history().state == "ended"


def test_a_zone_without_machines_hands_on_to_the_next(bench: Bench) -> None:
    """The operation fails after the request was accepted; the next zone has one, under another token."""
    bench.fault(bench.create, "async", "capacity")
    up = bench.launcher.launch(bench.plan())

    assert up.attempt.zone == "us-central1-b"
    assert len(bench.alive()) == 1 if kind_of(bench) == "gpu" else len(bench.adapter.machines(None).machines) == 1


def test_a_quota_skips_the_region_and_is_named(bench: Bench) -> None:
    """Other zones of the region would answer the same."""
    bench.fault(bench.create, "async", "quota", times=9)
    with pytest.raises(NoAnswerError, match="none of 1 candidates") as caught:
        bench.launcher.launch(bench.plan())

    assert "quota" in caught.value.hint
    assert bench.adapter.machines(None).machines == ()


def test_a_reclaimed_machine_is_closed_and_the_next_attempt_may_go_on(bench: Bench) -> None:
    """Taken back while it trained: reap writes the end down; attempt 2 has a name and a token of its own."""
    bench.launcher.launch(bench.plan())
    bench.server.control(reclaim=["gpuplan-r1-1"], advance_s=120.0)
    bench.launcher.reap(["gcp"], regions=None)
    if bench.adapter.machines(None).machines:  # a slice that was taken back stays listed until it is deleted
        bench.launcher.stop_run("r1")
        assert bench.adapter.machines(None).machines == ()
        return
    bench.launcher.launch(bench.plan(attempt=2))
    assert [one["name"] for one in bench.alive()] == ["gpuplan-r1-2"]


def test_a_cap_that_is_not_armed_ends_the_machine(bench: Bench) -> None:
    """Compute Engine says no time of its end: the machine is deleted at once."""
    if kind_of(bench) == "tpu":
        pytest.skip("a queued resource has no second place that could disagree")
    bench.fault("instances.insert", "unarmed", "yes")
    with pytest.raises(GpuplanError, match=r"terminationTimestamp is None"):
        bench.launcher.launch(bench.plan())
    assert bench.alive() == []


def test_a_machine_that_switched_itself_off_is_still_shown_and_ended(bench: Bench) -> None:
    """It pays for its disk: `ps --cloud` calls it stopped, stop deletes it."""
    if kind_of(bench) == "tpu":
        pytest.skip("a slice cannot be switched off from inside")
    bench.launcher.launch(bench.plan())
    bench.server.control(power_off=["gpuplan-r1-1"])
    (machine,) = bench.adapter.machines(None).machines
    assert machine.state == "stopped"
    bench.launcher.stop_run("r1")
    assert bench.alive() == []


def test_another_owners_machine_of_the_same_run_is_left_alone(bench: Bench) -> None:
    """Somebody else's account name, our labels otherwise: never adopted, never ended."""
    theirs = Bench(bench.folder / "theirs", bench.server, "gcp", {}, bench.base)
    theirs.launcher.ledger.owner = "you"
    theirs.launcher.launch(theirs.plan(owner="you"))
    with pytest.raises(GpuplanError, match="gpuplan-owner is 'you'"):
        bench.launcher.launch(bench.plan())
    bench.server.control(advance_s=10.0)
    (left,) = bench.alive()
    assert left["tags"]["gpuplan-owner"] == "you"


def test_a_failure_before_training_is_read_from_the_console(bench: Bench) -> None:
    """There is no bucket: `ps` and `stop` read it while the machine is there; afterwards it is on record."""
    bench.launcher.launch(bench.plan())
    assert bench.launcher.watch("r1") is None
    bench.server.control(consoles=CONSOLE)
    if "tpu" in bench.base.instance_type:
        assert bench.launcher.watch("r1") is None  # a slice has no serial port
        return
    check_failure_is_read(bench.launcher, "gcp")

    bench.launcher.stop_run("r1")
    (told,) = [event.message for event in bench.events if event.event == "failed"]
    assert told.startswith(SAID)
    assert bench.state()["violations"] == []
