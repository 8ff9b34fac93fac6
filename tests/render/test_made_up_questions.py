"""Ten questions on made-up offers: JSON, notebook and report tell one decision."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from factories import FakePredictor, estimate_workload, make_accelerator, make_limits, make_offer, make_workload
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.estimate_model import add_serving
from gpuplan.plan.question import Filters, OfferContext, Question, Selection
from gpuplan.render.estimate_output import format_estimate_html, format_estimate_json
from gpuplan.render.estimate_screen import select_shown_offers
from gpuplan.render.report.view import build_view

RATES = {"CPU": 0.05, "T4": 1.0, "RTX3090": 3.0, "TPU-v5e": 8.0, "A100-80GB": 9.0, "H100-SXM": 20.0, "B200": 40.0}
DEVICES = {name: make_accelerator(name, tflop_per_s=rate, memory_gib=24.0) for name, rate in RATES.items()}


def row(provider: str, instance: str, accelerator: str, usd: str, **changes: Any) -> OfferContext:
    """Return an offer with its device."""
    place = {"local": "own", "colab": "any", "kaggle": "any"}.get(provider, "us-east-1")
    offer = make_offer(
        accelerator, provider=provider, instance_type=instance, usd_per_hour=Decimal(usd),
        **{"region": place, **changes},
    )  # fmt: skip
    return OfferContext(
        offer, DEVICES[accelerator], limits=make_limits(session_hours_max=9.0) if place == "any" else None
    )


OWN = row("local", "this-machine", "CPU", "0", region="local")
LAB = row("local", "lab-3090", "RTX3090", "0", region="local")
COLAB, KAGGLE = row("colab", "colab-free-t4", "T4", "0"), row("kaggle", "kaggle-free-tpu-v5e", "TPU-v5e", "0")
PAYG = row("colab", "colab-payg-t4", "T4", "0.11")
T4, T4_SPOT = (row("aws", "g4dn.xlarge", "T4", "0.526"), row("aws", "g4dn.xlarge", "T4", "0.21", purchase="spot"))
A100, TPU = row("runpod", "1xA100-80GB", "A100-80GB", "1.19"), row("gcp", "tpu-v5e-1", "TPU-v5e", "1.2")
H100, B200 = row("lambda", "gpu_1x_h100", "H100-SXM", "3.29"), row("lambda", "gpu_1x_b200", "B200", "6.08")
CLOUDS = (T4, T4_SPOT, A100, TPU, H100, B200)
IMAGENET = {"model": "ResNet50", "samples": 1_281_167, "epochs": 90, "steps": 900_000}

Asked = tuple[tuple[OfferContext, ...], dict[str, Any], dict[str, Any]]
QUESTIONS: dict[str, Asked] = {
    "free-colab-or-pay": ((COLAB, PAYG, T4, A100), {}, {}),
    "imagenet-by-monday-under-300": (CLOUDS, IMAGENET, {"deadline_s": 72 * 3600.0, "budget_usd": 300.0}),
    "lab-3090-or-cloud": ((LAB, *CLOUDS), {"steps": 90_000}, {"wait_value_usd": 1.0}),
    "cheapest-that-fits": (CLOUDS, {"steps": 90_000}, {}),
    "h100-or-b200": ((H100, B200), {"steps": 900_000}, {"accelerators": ("H100-SXM", "B200")}),
    "is-spot-worth-it": ((T4, T4_SPOT), {"steps": 90_000}, {"accelerators": ("T4",)}),
    "tpu-or-gpu": ((OWN, COLAB, KAGGLE, *CLOUDS), {"steps": 90_000}, {}),
    "inference-of-a-saved-model": ((T4, A100), {"mode": "infer", "model": "model.keras", "epochs": 1}, {}),
    "nothing-fits": (CLOUDS, {"batch_size": 32}, {"memory_gib": 1.0}),
    "several-named-accelerators": (CLOUDS, {}, {"accelerators": ("T4", "A100-80GB", "H100-SXM", "B200")}),
}


@pytest.fixture(params=QUESTIONS)
def asked(request: pytest.FixtureRequest) -> tuple[str, Estimate]:
    """A question by name, and its answer."""
    offers, work, limits = QUESTIONS[request.param]
    limits = dict(limits)
    if "memory_gib" in limits:
        small = make_accelerator("K80", memory_gib=limits.pop("memory_gib"))
        offers = tuple(one._replace(accelerator=small) for one in offers)
    filters = Filters(accelerators=limits.pop("accelerators", ()))
    selection = Selection(offers=offers, catalog_as_of="2026-01-21")
    workload = make_workload(**work)
    answer = estimate_workload(
        workload, selection=selection, predictor=FakePredictor(), question=Question(filters=filters, **limits)
    )
    if workload.mode == "infer":
        served = add_serving(answer.offers, None, FakePredictor())
        answer = replace(answer, offers=tuple(served))
    return request.param, answer


def test_json_notebook_and_report_agree(asked: tuple[str, Estimate]) -> None:
    """One sentence everywhere; the picks of JSON are those of the decision and the cards of the report."""
    _, answer = asked
    plan = json.loads(format_estimate_json(answer))
    view = build_view(plan)

    assert plan["decision"]["sentence"] == answer.decision.sentence == view["headline"]
    assert answer.decision.sentence in re.sub("&#x27;", "'", format_estimate_html(answer))
    taken = plan["decision"]["recommended"]
    assert (taken is None) == (answer.decision.recommended is None)
    assert len(view["cards"]) == len(answer.decision.roles())
    if taken is not None:
        assert view["cards"][0]["mark"] == "take"
        assert view["cards"][0]["where"].startswith(taken["instance_type"])


def test_every_named_accelerator_has_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty named accelerators are thirty rows, more than the ten shown otherwise."""
    names = [f"GPU{number}" for number in range(30)]
    offers = [make_offer(name, instance_type=name, usd_per_hour=Decimal(i + 1)) for i, name in enumerate(names)]
    pairs = tuple(OfferContext(one, make_accelerator(one.accelerator)) for one in offers)
    answer = estimate_workload(
        make_workload(),
        selection=Selection(offers=pairs, catalog_as_of="2026-01-21"),
        predictor=FakePredictor(),
        question=Question(filters=Filters(accelerators=tuple(names))),
    )
    assert {answer.offers[row].offer.accelerator for row in select_shown_offers(answer)} == set(names)
