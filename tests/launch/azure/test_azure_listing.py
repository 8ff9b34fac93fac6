"""What is listed, looked up, left over and priced at Azure, and what a failure takes away from it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from gpuplan.errors import GpuplanError
from gpuplan.launch.core.api_call import CloudError, ErrorKind
from gpuplan.launch.core.cloud_adapter import CloudMachine
from launch.azure.world import OFFER, SUBSCRIPTION
from launch.bench_on_sockets import Bench, KilledError, candidate
from vendors.azure import plain_item, read_items

OTHER = "99999999-2222-3333-4444-555555555555"
GET, GROUPS, LIST = "virtualMachines.get", "resourceGroups.list", "virtualMachines.listAll"


@pytest.fixture
def one(bench: Bench) -> Iterator[Bench]:
    """Where the purchase option makes no difference; no request breaks the contract."""
    if bench.base.purchase == "spot":
        pytest.skip("the same on spot machines")
    yield bench
    assert bench.state()["violations"] == []


def parse_machine(bench: Bench) -> CloudMachine:
    """Return the only machine that is listed."""
    (machine,) = bench.adapter.machines(None).machines
    return machine


def test_a_machine_on_record_is_looked_up_by_azure_s_own_id(one: Bench) -> None:
    """Its name is not enough: another machine of the same name is not taken for it."""
    up = one.launcher.launch(one.plan())
    assert up.ref is not None
    found = one.adapter.look(up.ref)
    assert found is not None
    assert (found.id, found.state, found.ref) == (up.machine_id, "running", parse_machine(one).ref)

    one.server.control(replace="r1")

    assert one.adapter.look(up.ref) is None
    assert parse_machine(one).id != up.machine_id


def test_a_record_of_before_has_the_machine_s_name_for_its_id(one: Bench) -> None:
    """It is the same machine."""
    up = one.launcher.launch(one.plan())
    assert up.ref is not None
    named = up.ref.model_copy(update={"id": up.ref.details["name"]})

    assert one.adapter.look(named) is not None


def test_a_machine_that_was_given_back_is_stopped_and_not_ended(one: Bench) -> None:
    """Its disk and its address are paid for until it is deleted; then Azure knows nothing of it."""
    up = one.launcher.launch(one.plan())
    assert up.ref is not None
    one.server.control(lose_roles=True, advance_s=90_000.0)
    found = one.adapter.look(up.ref)
    assert found is not None
    assert found.state == "stopped"

    one.launcher.stop_run("r1")

    assert one.adapter.look(up.ref) is None
    assert one.launcher.ledger.run("r1").history().attempts()[0].is_over


def test_a_refused_subscription_hides_nothing_of_the_others(one: Bench) -> None:
    """It is named; what is in the others is listed and ended, and nothing is called gone because of it."""
    one.launcher.launch(one.plan())
    one.adapter._accounts.add(OTHER)  # type: ignore[attr-defined] # another one was used from here once
    one.server.control(refused=[OTHER])
    listing = one.adapter.machines(None)

    assert [machine.run for machine in listing.machines] == ["r1"]
    assert {place: fault.kind for place, fault in listing.failed.items()} == {OTHER: ErrorKind.CREDENTIALS}
    assert set(one.adapter.leftovers(None)[1]) == {OTHER}
    one.launcher.stop_run("r1")
    assert one.alive() == []


@pytest.mark.parametrize("how", ["http500", "forbidden", "reset", "garbage"])
def test_a_machine_whose_state_cannot_be_read_is_listed_as_far_as_it_is_known(one: Bench, how: str) -> None:
    """Its tags, place and age are in the list of machines; the other machine is described in full."""
    one.launcher.launch(one.plan())
    one.launcher.launch(one.plan(run="r2"))
    one.server.control(power_off="r1")
    one.fault(GET, "before", how)
    listing = one.adapter.machines(None)

    assert sorted(machine.run for machine in listing.machines) == ["r1", "r2"]
    assert {machine.state for machine in listing.machines} == {"running"}
    assert all(machine.details["group"] == machine.details["name"] for machine in listing.machines)
    assert listing.failed == {}


def test_a_group_without_a_machine_is_left_over_and_can_be_removed(one: Bench) -> None:
    """Killed before it made its machine, then the ledger was lost: the group's tags say whose it is."""
    one.kill_at, one.kill_when = 4, "after"
    with pytest.raises(KilledError):
        one.launcher.launch(one.plan())
    one.restart()
    one.launcher.launch(one.plan(run="r2"))
    ((left,), failed) = one.adapter.leftovers(["eastus"])

    assert failed == {}
    assert (left.kind, left.run, left.attempt, left.owner) == ("resource group", "r1", 1, "me")
    assert one.adapter.leftovers(["westus2"]) == ([], {})
    for call in left.undo:
        one.adapter.send(call, call.params)
    assert one.adapter.leftovers(None) == ([], {})
    one.server.control(advance_s=60.0)
    assert not [path for path in one.state()["left"] if "-r1-" in path]
    assert [machine.run for machine in one.adapter.machines(None).machines] == ["r2"]


def left_over(one: Bench) -> Bench:
    """Return another computer of the same owner, without a ledger, after a launch that was killed in between."""
    one.kill_at, one.kill_when = 4, "after"
    with pytest.raises(KilledError):
        one.launcher.launch(one.plan())
    one.restart()
    return Bench(one.folder / "elsewhere", one.server, "azure", {}, one.base)


def test_reap_removes_what_a_lost_ledger_knew(one: Bench) -> None:
    """Not while the ledger knows of the attempt, not what is another owner's, and no group with a machine."""
    elsewhere = left_over(one)
    one.launcher.launch(one.plan(run="r2"))
    elsewhere.launcher.ledger.owner = "you"
    elsewhere.launcher.reap(["azure"], regions=None)
    assert [left.run for left in one.adapter.leftovers(None)[0]] == ["r1"]

    elsewhere.launcher.ledger.owner = "me"
    elsewhere.launcher.reap(["azure"], regions=None)

    assert one.adapter.leftovers(None) == ([], {})
    assert [machine.run for machine in one.adapter.machines(None).machines] == ["r2"]


@pytest.mark.parametrize("operation", [GROUPS, LIST])
def test_nothing_left_over_is_removed_while_a_place_does_not_answer(one: Bench, operation: str) -> None:
    """A machine may be there that is not seen; the place is named."""
    elsewhere = left_over(one)
    one.fault(operation, "before", "http500", times=9)
    with pytest.raises(GpuplanError, match=SUBSCRIPTION):
        elsewhere.launcher.reap(["azure"], regions=None)

    one.server.control(calm=True)
    assert [left.run for left in one.adapter.leftovers(None)[0]] == ["r1"]


def test_a_group_that_holds_any_machine_is_no_leftover(one: Bench) -> None:
    """Not even one without our tags: it would go with the group."""
    one.launcher.launch(one.plan())
    one.server.control(untag="r1")

    assert one.adapter.machines(None).machines == ()
    assert one.adapter.leftovers(None) == ([], {})


@pytest.mark.parametrize("operation", [GROUPS, LIST])
def test_a_subscription_that_does_not_list_has_unknown_leftovers(one: Bench, operation: str) -> None:
    """Neither groups without machines nor machines without groups are guessed."""
    one.fault(operation, "before", "http500")
    found, failed = one.adapter.leftovers(None)

    assert found == []
    assert set(failed) == {SUBSCRIPTION}


@pytest.mark.parametrize("service", ["Microsoft.DevTestLab", "Microsoft.ComputeSchedule"])
def test_a_service_that_is_not_registered_is_told_before_anything_is_made(one: Bench, service: str) -> None:
    """Without it no order at Azure's side could end the machine."""
    one.server.control(refused=[service])
    cap_s = 3600 if service.endswith("Lab") else 90_000
    with pytest.raises(GpuplanError, match=f"az provider register --namespace {service}"):
        one.launcher.launch(one.plan(one.base.model_copy(update={"cap_s": cap_s})))

    assert one.state()["left"] == one.state()["meter"] == []


def items(**changes: Any) -> list[dict[str, Any]]:
    """Return Azure's published items: the machine's price, and items that are not its price."""
    plain, day = plain_item(OFFER), {"effectiveStartDate": "2026-01-01T00:00:00Z"}
    return [
        {**plain, **changes},
        *(item for item in read_items() if item != plain),
        {**plain, **day, "retailPrice": 0.3, "effectiveEndDate": "2026-06-30T23:59:59Z"},
        {**plain, "retailPrice": 0.9, "effectiveStartDate": "2099-01-01T00:00:00Z"},
    ]


@pytest.mark.parametrize(("purchase", "usd"), [("on_demand", "0.526"), ("spot", "0.149174")])
def test_the_live_price_is_the_linux_meter_that_is_in_force(one: Bench, purchase: str, usd: str) -> None:
    """Not Windows', Low Priority's, an ended or a future one's, another size's or region's."""
    one.server.control(prices=items())
    price = one.adapter.live_price(candidate(OFFER, "eastus", purchase=purchase), {})

    assert price.usd_per_hour == Decimal(usd)
    assert price.source == f"{one.server.url}/api/retail/prices"
    assert abs((datetime.now(UTC) - price.read_at).total_seconds()) < 60


@pytest.mark.parametrize(
    ("prices", "says"),
    [
        ([], r"Standard_NC4as_T4_v3 in eastus \(on demand\) has no price in"),
        (items(effectiveEndDate="2026-06-30T23:59:59Z"), "no price"),
        ([*items(), plain_item(OFFER, retailPrice=0.6)], "several prices"),
        ([plain_item(OFFER, currencyCode="EUR")], "priced in EUR"),
    ],
)
def test_a_price_that_is_not_one_price_is_not_read(one: Bench, prices: Any, says: str) -> None:
    """None, several, or in another currency."""
    one.server.control(prices=prices)
    with pytest.raises(CloudError, match=says):
        one.adapter.live_price(one.base, {})


def test_prices_that_cannot_be_reached_are_a_fault(one: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing listens."""
    monkeypatch.setenv("GPUPLAN_ENDPOINT_AZURE_RETAIL", "https://localhost:9")
    with pytest.raises(CloudError, match="localhost:9 cannot be reached"):
        one.adapter.live_price(one.base, {})
