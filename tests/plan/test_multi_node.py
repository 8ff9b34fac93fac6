"""Several machines that share the work: prices and devices add up, and the network connects them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from factories import FakePredictor, estimate_workload, make_offer, make_workload
from gpuplan.errors import NoAnswerError, UsageError
from gpuplan.launch.select_offer import Renter, read_estimate, select_candidates
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import Accelerator
from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.question import Filters, Question, Selection, expand_hosts, rent_hosts, select
from gpuplan.predict.collectives import list_gradient_sums, scale_to_devices
from gpuplan.predict.step_time import NoPrediction, StepTime
from gpuplan.units import Interval, format_offer_name
from gpuplan.workload.model import Workload
from hypothesis import given
from hypothesis import strategies as st

CATALOG = load_catalog()
P3 = Filters(
    providers=("aws",), regions=("us-east-1",), accelerators=("V100-16GB",), include_local=False, hosts=(1, 2)
)


def chosen(**changes: object) -> Selection:
    """Return AWS's V100 machines in one region, alone and in pairs."""
    from dataclasses import replace

    return select(replace(P3, **changes), catalog=CATALOG)


def test_two_machines_by_hand() -> None:
    """Two p3.16xlarge: 16 V100, 128 vCPUs, $48.96 an hour; the name says two."""
    pair = next(
        one.offer
        for one in chosen(purchase="on-demand").offers
        if one.offer.instance_type == "p3.16xlarge" and one.offer.hosts == 2
    )
    assert (pair.devices, pair.vcpus, pair.usd_per_hour) == (16.0, 128.0, Decimal("48.96"))
    assert format_offer_name("aws", "p3.16xlarge", hosts=2) == "aws 2× p3.16xlarge"


@given(hosts=st.integers(1, 64), price=st.decimals("0.01", "100", places=4))
def test_the_price_per_device_stays(hosts: int, price: Decimal) -> None:
    """Law: the price per device and hour is that of one machine."""
    one = make_offer("T4", devices=4.0, usd_per_hour=price)
    together = rent_hosts(one, hosts)

    assert together.usd_per_hour == hosts * price
    assert together.devices == hosts * 4
    assert together.hosts == hosts


def test_offers_that_cannot_be_combined() -> None:
    """Notebooks, shares of a GPU and CPU hosts are single machines; without other offers there is no answer."""
    alone = (make_offer(provider="colab"), make_offer(devices=0.5), make_offer("CPU"), make_offer(complete=False))

    assert expand_hosts(alone, (1, 2), own=None) == alone
    with pytest.raises(NoAnswerError, match="several machines"):
        expand_hosts(alone, (2,), own=None)
    with pytest.raises(UsageError, match="--hosts"):
        Filters(hosts=(0,))


def test_every_bill_of_several_machines_adds_up() -> None:
    """Lines sum to the total; twice the machines at the same step time rent for twice as much, disks included."""
    workload = make_workload(samples=640_000, epochs=3, steps=None)
    answer = estimate_workload(
        workload,
        selection=chosen(),
        predictor=FakePredictor(),
        question=Question(scaling="weak"),
        terms=CostTerms(costs=CATALOG.costs),
    )
    assert {one.offer.hosts for one in answer.offers} == {1, 2}
    for one in answer.offers:
        assert one.bill is not None
        assert sum(line.usd.mid for line in one.bill.lines) == one.bill.total.mid
    disk = {
        one.offer.hosts: next(line for line in one.bill.lines if line.item == "disk")
        for one in answer.offers
        if one.offer.instance_type == "p3.2xlarge" and one.offer.purchase == "on_demand" and one.bill
    }
    assert disk[2].because.startswith("2 machines with ")
    spots = {
        one.offer.hosts: one.preemption_forecast.hazard.up_hours
        for one in answer.offers
        if one.offer.instance_type == "p3.2xlarge" and one.offer.purchase == "spot" and one.preemption_forecast
    }
    if spots:
        assert spots[2] == pytest.approx(spots[1] / 2)


class FakeSingle:
    """Predicts 0.1 s on one device and adds the communication of several."""

    def step_time(
        self, workload: Workload, accelerator: Accelerator, **circumstances: Any
    ) -> StepTime | NoPrediction:
        """Return the step on the devices of one machine or more."""
        single = StepTime(
            time_s=Interval(low=0.1, mid=0.1, high=0.1),
            basis="modelled",
            limiter="compute",
            parts_s={"compute": 0.1},
        )
        return scale_to_devices(
            single,
            list_gradient_sums(1e8, devices=circumstances["devices"]),
            accelerator=accelerator,
            **circumstances,
        )


def test_the_network_joins_machines() -> None:
    """Eight V100 of one p3.16xlarge use NVLink; sixteen of two use 25 Gbit/s, which lengthens each step."""
    answer = estimate_workload(
        make_workload(),
        selection=chosen(purchase="on-demand"),
        predictor=FakeSingle(),
        question=Question(scaling="weak"),
    )
    steps = {
        one.offer.hosts: one.device_estimate.step_time
        for one in answer.offers
        if one.offer.instance_type == "p3.16xlarge"
    }
    assert "16 devices in 2 machines summed over the network" in steps[2].note
    assert "8 devices summed over NVLink" in steps[1].note
    assert steps[2].parts_s["link"] > 2 * steps[1].parts_s["link"]


def test_several_machines_are_not_launched(tmp_path: object) -> None:
    """One machine is started: a plan that chose two is refused with the reason."""
    from gpuplan.render.estimate_output import format_estimate_json

    answer = estimate_workload(
        make_workload(),
        selection=chosen(hosts=(2,), purchase="on-demand"),
        predictor=FakePredictor(),
        question=Question(scaling="weak"),
    )
    path = tmp_path / "plan.json"
    path.write_text(format_estimate_json(answer))
    with pytest.raises(NoAnswerError, match="has 2 machines"):
        select_candidates(read_estimate(path), Renter(providers=("aws",)), rank=1, fallbacks=0)
