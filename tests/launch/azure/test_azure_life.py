"""Azure's adapter over TLS before a server held to the official clients' models; the meter is the judge."""

from __future__ import annotations

import pytest
from gpuplan.errors import CredentialsError, GpuplanError, NoAnswerError
from launch.azure.world import AMISS, CREATE, OFFER, SUBSCRIPTION
from launch.bench_on_sockets import Bench, KilledError, candidate
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
ROLE, SCHEDULE = "roleAssignments.createOrUpdate", "globalSchedules.createOrUpdate"
ACTION = "virtualMachinesSubmitDeallocate"


@pytest.fixture
def one(bench: Bench) -> Bench:
    """Where the purchase option makes no difference."""
    if bench.base.purchase == "spot":
        pytest.skip("the same on spot machines")
    return bench


def test_nothing_is_left_when_a_run_has_ended(bench: Bench) -> None:
    """Network, address, role and schedule go with the group."""
    bench.launcher.launch(bench.plan())
    assert len(bench.state()["left"]) == 8
    bench.launcher.stop_run("r1")
    bench.server.control(advance_s=60.0)

    assert bench.state()["left"] == []


def test_the_machine_ends_itself_at_its_cap_with_a_right_of_its_own(one: Bench) -> None:
    """An hour after its script began, although Azure has lost its order; reap removes the rest."""
    one.launcher.launch(one.plan())
    one.server.control(lose_orders=True, advance_s=90_000.0)

    (billed,) = one.state()["meter"]
    assert billed["ended_s"] - billed["started_s"] == 3600.0 + 90.0  # its boot
    one.launcher.reap(["azure"], regions=None)
    one.server.control(advance_s=60.0)
    assert one.state()["left"] == []


def test_auto_shutdown_ends_what_has_no_timer(one: Bench) -> None:
    """The role is lost after it was read back: Azure gives the hardware back after the cap; reap ends it."""
    one.launcher.launch(one.plan())
    one.server.control(lose_roles=True, advance_s=90_000.0)

    (billed,) = one.state()["meter"]
    assert 3600.0 <= billed["ended_s"] - billed["started_s"] <= 3660.0
    (machine,) = one.adapter.machines(None).machines
    assert machine.state == "stopped"
    one.launcher.reap(["azure"], regions=None)
    assert one.adapter.machines(None).machines == ()


def test_a_scheduled_action_ends_a_machine_at_a_date(one: Bench) -> None:
    """A cap of 30 hours, which no time of day can stand for, without its timer."""
    one.launcher.launch(one.plan(one.base.model_copy(update={"cap_s": 30 * 3600})))
    one.server.control(lose_roles=True, advance_s=200_000.0)

    (billed,) = one.state()["meter"]
    assert 30 * 3600 <= billed["ended_s"] - billed["started_s"] <= 30 * 3600 + 60


@pytest.mark.parametrize(
    ("operation", "when", "how", "cap_s"),
    [
        (ROLE, "unarmed", "yes", 3600),
        (ROLE, "unarmed", "principal", 3600),
        (ROLE, "before", "forbidden", 3600),
        *((SCHEDULE, "unarmed", amiss, 3600) for amiss in AMISS),
        (SCHEDULE, "before", "forbidden", 3600),
        *((ACTION, "unarmed", amiss, 90_000) for amiss in ("disabled", "machine", "time")),
        (ACTION, "before", "forbidden", 90_000),
    ],
)
def test_a_cap_that_is_not_armed_ends_the_machine_at_once(
    one: Bench, operation: str, when: str, how: str, cap_s: int
) -> None:
    """Refused, not there, or not what was asked for when it is read back: another machine, time, zone or task."""
    one.fault(operation, when, how, times=5)
    with pytest.raises(GpuplanError):
        one.launcher.launch(one.plan(one.base.model_copy(update={"cap_s": cap_s})))

    assert one.alive() == []
    assert len(one.state()["meter"]) == 1
    assert one.launcher.ledger.run("r1").history().attempts()[0].is_over


@pytest.mark.parametrize(("when", "how"), [("refuse", "capacity"), ("async", "AllocationFailed")])
def test_no_capacity_hands_on_to_the_next_offer_and_leaves_nothing(one: Bench, when: str, how: str) -> None:
    """At once, or after the request was accepted: then the machine stays behind, failed, until it is removed."""
    one.fault(CREATE, when, how)
    up = one.launcher.launch(one.plan(one.base, candidate(OFFER, "westus2")))
    one.server.control(advance_s=60.0)

    assert up.attempt.candidate.region == "westus2"
    assert len(one.alive()) == 1
    assert not [path for path in one.state()["left"] if "-r1-1-" in path]


@pytest.mark.parametrize(("when", "how"), [("refuse", "quota"), ("async", "OperationNotAllowed")])
def test_a_quota_is_told_from_capacity_and_named(one: Bench, when: str, how: str) -> None:
    """`OperationNotAllowed` is a quota by its words only."""
    one.fault(CREATE, when, how, times=5)
    with pytest.raises(NoAnswerError) as caught:
        one.launcher.launch(one.plan())

    assert "quota" in (caught.value.hint or "")
    assert one.alive() == []


def test_a_principal_that_is_not_known_everywhere_yet_is_waited_for(one: Bench) -> None:
    """The identity was made a moment ago."""
    one.fault(ROLE, "before", "principal", times=2)
    one.launcher.launch(one.plan())

    assert len(one.alive()) == 1


def test_missing_credentials_are_said_in_a_line(one: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """`azure-identity` lists all that it tried, over a dozen lines."""
    monkeypatch.delenv("AZURE_CLIENT_SECRET")
    with pytest.raises(CredentialsError, match="no credentials for Azure: `az login`") as caught:
        one.launcher.launch(one.plan())

    assert len(str(caught.value)) < 200
    assert one.state()["left"] == []


def test_an_evicted_machine_is_not_made_again_by_the_same_request(one: Bench) -> None:
    """Its network interface went with it: the repeated request finds none, and the attempt is over."""
    one.kill_at, one.kill_when = 7, "after"
    with pytest.raises(KilledError):
        one.launcher.launch(one.plan())
    one.server.control(reclaim="r1")
    one.restart()
    with pytest.raises(GpuplanError):
        one.launcher.launch(one.plan())

    assert len(one.state()["meter"]) == 1
    assert one.alive() == []


def test_a_guest_that_only_shut_down_is_shown_as_running(one: Bench) -> None:
    """On Azure it is paid for in full until its hardware is given back."""
    one.launcher.launch(one.plan())
    one.server.control(power_off="r1")
    (machine,) = one.adapter.machines(None).machines

    assert machine.state == "running"


def test_the_official_client_reads_what_the_server_shows(one: Bench) -> None:
    """A second opinion on the server: azure-mgmt-compute lists and describes the machine."""
    from azure.identity import ClientSecretCredential
    from azure.mgmt.compute import ComputeManagementClient

    one.launcher.launch(one.plan())
    credential = ClientSecretCredential(
        "loopback", "tests", "opens-nothing", authority=one.server.url, disable_instance_discovery=True
    )
    with ComputeManagementClient(
        credential, SUBSCRIPTION, base_url=one.server.url, credential_scopes=["x/.default"]
    ) as client:
        (listed,) = client.virtual_machines.list_all()
        seen = client.virtual_machines.get(listed.id.split("/")[4], listed.name, expand="instanceView")
    credential.close()

    assert seen.tags["gpuplan-run"] == "r1"
    assert [status.code for status in seen.instance_view.statuses][-1] == "PowerState/running"
    assert seen.hardware_profile.vm_size == OFFER


def test_another_owners_machine_of_the_same_run_is_left_alone(one: Bench) -> None:
    """Names are made of owners too: both exist, and each ends its own."""
    theirs = Bench(one.folder / "theirs", one.server, "azure", {}, one.base)
    theirs.launcher.ledger.owner = "you"
    theirs.launcher.launch(theirs.plan(owner="you"))
    one.launcher.launch(one.plan())
    one.launcher.stop_run("r1")

    (left,) = one.alive()
    assert left["tags"]["gpuplan-owner"] == "you"


def test_a_failure_before_training_is_read_from_the_console(bench: Bench) -> None:
    """There is no bucket: `ps` and `stop` read it while the machine is there; afterwards it is on record."""
    bench.launcher.launch(bench.plan())
    assert bench.launcher.watch("r1") is None
    bench.server.control(consoles=CONSOLE)
    check_failure_is_read(bench.launcher, "azure")

    bench.launcher.stop_run("r1")
    (told,) = [event.message for event in bench.events if event.event == "failed"]
    assert told.startswith(SAID)
    assert bench.state()["violations"] == []
