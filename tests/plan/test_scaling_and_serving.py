"""Scaling over several devices and serving of predictions, by hand on a made-up catalog."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from factories import (
    FakePredictor,
    estimate_workload,
    make_accelerator,
    make_offer,
    make_product,
    make_selection,
    make_workload,
)
from gpuplan.plan.estimate_model import add_serving
from gpuplan.plan.offer_estimate import usd_per_million
from gpuplan.plan.question import Question

T4 = make_accelerator("T4")
SINGLE = make_offer("T4", usd_per_hour=Decimal("0.5"))
PAIR = make_offer("T4", instance_type="two_T4", devices=2.0, usd_per_hour=Decimal("1.2"))


def test_two_devices_by_hand() -> None:
    """The fake step takes as long on two devices: twice the samples at 2.4 times the price cost 20 % more."""
    selection = make_selection((SINGLE, T4), (PAIR, T4))
    answer = estimate_workload(
        make_workload(), selection=selection, predictor=FakePredictor(), question=Question(scaling="weak")
    )
    pair = next(one for one in answer.offers if one.offer.devices == 2)
    single = next(one for one in answer.offers if one.offer.devices == 1)

    assert pair.scaling is not None
    assert (pair.scaling.speedup, pair.scaling.efficiency) == (2.0, 1.0)
    assert pair.scaling.cost_ratio == pytest.approx(1.2)
    assert "2 devices: 2.0x as fast as one, 20 % more expensive" in pair.notes
    assert single.scaling is None


def test_without_a_price_or_a_single_one_nothing_is_invented() -> None:
    """No scaling without an offer of one device; with a free one, a speedup but no cost ratio."""
    selection = make_selection((PAIR, T4))
    answer = estimate_workload(
        make_workload(), selection=selection, predictor=FakePredictor(), question=Question(scaling="weak")
    )

    assert answer.offers[0].scaling is None
    free = make_selection(*((replace(one, usd_per_hour=Decimal(0)), T4) for one in (SINGLE, PAIR)))
    answer = estimate_workload(
        make_workload(), selection=free, predictor=FakePredictor(), question=Question(scaling="weak")
    )
    (scaling,) = filter(None, (one.scaling for one in answer.offers))
    assert (scaling.cost_ratio, scaling.note) == (None, "2 devices: 2.0x as fast as one")


def test_serving_by_hand() -> None:
    """A second for a batch of 32: 32 a second, a million in 8.68 h, at $0.50 an hour $4.34."""
    workload = make_workload(mode="infer")
    selection, predictor = make_selection((SINGLE, T4)), FakePredictor()
    answer = estimate_workload(workload, selection=selection, predictor=predictor, question=Question())
    (served,) = add_serving(answer.offers, make_workload(mode="infer", batch_size=1), predictor)

    assert served.serving is not None
    assert served.serving.latency_s is not None
    assert served.serving.latency_s.mid == 1.0
    assert served.serving.per_s.mid == 32.0
    assert float(served.serving.usd_per_million or 0) == pytest.approx(1e6 / 32 / 3600 * 0.5)
    assert served.to_json()["serving"]["predictions_per_s"]["mid"] == 32.0


def test_each_host_serves_at_its_own_latency() -> None:
    """Two hosts whose processors share the name `CPU`, one with four times the arithmetic: 1 s and 0.25 s."""
    hosts = [
        (make_offer("CPU", instance_type=f"host-{speed:g}"), make_accelerator("CPU", tflop_per_s=speed))
        for speed in (1.0, 4.0)
    ]
    selection, one = make_selection(*hosts), make_workload(mode="infer", batch_size=1)
    answer = estimate_workload(one, selection=selection, predictor=FakePredictor(), question=Question())
    served = add_serving(answer.offers, one, FakePredictor())

    latency_s = {offer.offer.instance_type: offer.serving and offer.serving.latency_s for offer in served}
    assert {name: each and each.mid for name, each in latency_s.items()} == {"host-1": 1.0, "host-4": 0.25}


def test_tokens_and_utilization_by_hand() -> None:
    """A second for 32 samples of 128 tokens: 4,096 tokens/s, at $0.50 an hour 3.4 cents a million; 25 % MFU."""
    workload = make_workload(tokens_per_sample=128, ops=(make_product(flops=0.125e12, count=2),))
    (one,) = estimate_workload(
        workload,
        selection=make_selection((SINGLE, T4)),
        predictor=FakePredictor(),
        question=Question(scaling="weak"),
    ).offers
    document = one.to_json()

    assert document["tokens_per_s"]["mid"] == 4096.0
    assert float(document["usd_per_million_tokens"]) == pytest.approx(1e6 / 4096 / 3600 * 0.5, abs=1e-9)
    assert document["mfu"]["mid"] == pytest.approx(0.25)
    assert document["mfu"]["low"] < 0.25 < document["mfu"]["high"]


def test_twice_the_rate_is_half_the_price() -> None:
    """Law."""
    slow, fast = (usd_per_million(per_s=rate, usd_per_hour=Decimal("2.0")) for rate in (50.0, 100.0))
    assert float(slow) == pytest.approx(2 * float(fast))
