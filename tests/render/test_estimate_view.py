"""An estimate as a table, TSV, JSON and HTML."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from factories import (
    FakePredictor,
    estimate_workload,
    make_accelerator,
    make_offer,
    make_selection,
    make_workload,
    resize,
)
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.estimate_model import add_serving
from gpuplan.plan.question import Question
from gpuplan.render import estimate_notes as notes
from gpuplan.render.estimate_output import emit_estimate, format_estimate_json
from gpuplan.workload.model import Unmodelled

ACCELERATORS = {
    "T4": make_accelerator("T4", memory_gib=14.75),
    "A100-80GB": make_accelerator("A100-80GB", tflop_per_s=12.0, memory_gib=79.4),
    "H100-SXM": make_accelerator("H100-SXM", tflop_per_s=30.0, memory_gib=79.1),
    "K80": make_accelerator("K80", tflop_per_s=0.4, memory_gib=2.0),
    "Mystery": make_accelerator("Mystery", tflop_per_s=None),
}
OFFERS = [
    make_offer("T4", provider="aws", instance_type="g4dn.xlarge", usd_per_hour=Decimal("0.526")),
    make_offer(
        "T4", provider="aws", instance_type="g4dn.xlarge", usd_per_hour=Decimal("0.2104"), purchase="spot",
        region="us-west-2", price_as_of="2025-06-28", estimated=True,
    ),
    make_offer(
        "A100-80GB", provider="azure", instance_type="Standard_ND96amsr_A100_v4", devices=8.0,
        region="southcentralus", usd_per_hour=Decimal("32.77"),
    ),
    make_offer(
        "H100-SXM", provider="gcp", instance_type="a3-highgpu-1g", usd_per_hour=Decimal("11.06125"),
        region="us-central1", price_as_of="2026-08-03",
    ),
    make_offer("K80", provider="aws", instance_type="p2.xlarge", usd_per_hour=Decimal("0.9")),
    make_offer("T4", provider="kaggle", instance_type="kaggle-free-t4x2", devices=2.0, region="any",
               usd_per_hour=Decimal(0), note="30 h a week"),
    make_offer("Mystery", provider="vast", instance_type="<b>one</b>", usd_per_hour=None, price_as_of=None,
               price_source=None),
]  # fmt: skip


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.fixture(autouse=True)
def _a_day_on_which_no_price_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Golden texts do not age."""
    monkeypatch.setattr(notes, "get_today", lambda: date(2025, 7, 1))


@pytest.fixture
def estimate() -> Estimate:
    """The made-up workload on seven offers."""
    return estimate_workload(
        make_workload(unmodelled=(Unmodelled(name="cumlogsumexp", count=2, bytes_share=0.015),)),
        selection=make_selection(*((offer, ACCELERATORS[offer.accelerator]) for offer in OFFERS)),
        predictor=FakePredictor(),
        question=Question(deadline_s=3600.0, budget_usd=50.0),
        resized=resize,
    )


def test_prices_of_today_are_told_below_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an estimate of one offer, whose price was read on the day."""
    monkeypatch.setattr(notes, "get_today", lambda: date(2026, 1, 21))
    answer = estimate_workload(
        make_workload(),
        selection=make_selection((OFFERS[0], ACCELERATORS["T4"])),
        predictor=FakePredictor(),
        question=Question(),
    )

    assert "Prices: today." in " ".join(shown(monkeypatch, answer, width=120).split())


def test_many_phases_do_not_widen_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The phases of a script are one part of the title, which may be longer than a line."""
    frozen = make_workload(fit_call=0, trainable_parameters=1000)
    workload = make_workload(fit_call=1, further=(frozen, replace(frozen, fit_call=2, epochs=7)))
    answer = estimate_workload(
        workload,
        selection=make_selection(*((offer, ACCELERATORS[offer.accelerator]) for offer in OFFERS)),
        predictor=FakePredictor(),
        question=Question(),
    )
    text = shown(monkeypatch, answer, width=80)

    assert "phase 3: 7 epochs" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_an_accelerator_without_offers_is_named(monkeypatch: pytest.MonkeyPatch, estimate: Estimate) -> None:
    """A requested accelerator without a row is named below the table."""
    text = " ".join(shown(monkeypatch, replace(estimate, unmatched=("K80",)), width=120).split())

    assert "No offer of K80." in text


def shown(monkeypatch: pytest.MonkeyPatch, estimate: Estimate, *, width: int, **options: bool) -> str:
    """Return what a terminal of some width would show."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    emit_estimate(estimate, **options)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    return "".join(f"{line.rstrip()}\n" for line in plain.splitlines())


@pytest.mark.parametrize("width", [80, 120, 160])
def test_the_table_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, estimate: Estimate, golden: Callable[[str, str], None], width: int
) -> None:
    """Golden text: what people read, with the line on trust under the money."""
    text = shown(monkeypatch, estimate, width=width)

    assert max(map(len, text.splitlines())) <= width
    golden(f"estimate-{width}.txt", text)


def test_without_a_length_samples_are_priced_and_not_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: 32 samples a second at $0.526 an hour are $4.57 a million; no column stands for a run."""
    answer = estimate_workload(
        make_workload(samples=None, epochs=None, steps=None),
        selection=make_selection((OFFERS[0], ACCELERATORS["T4"])),
        predictor=FakePredictor(),
        question=Question(),
    )
    text = shown(monkeypatch, answer, width=120)
    assert "a million" in text
    assert "32 (21–40)" in text
    assert "Take T4 on AWS: $4.57 per million samples, 32 samples/s." in text
    assert " cost" not in text


@pytest.mark.parametrize("width", [80, 120, 160])
def test_predictions_have_a_rate_a_price_and_a_latency(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """The run's own columns give way where there is no room for both."""
    workload = make_workload(mode="infer", samples=3200, epochs=1, steps=100)
    selection = make_selection((OFFERS[0], ACCELERATORS["T4"]))
    answer = estimate_workload(workload, selection=selection, predictor=FakePredictor(), question=Question())
    served = add_serving(answer.offers, workload, FakePredictor())
    text = shown(monkeypatch, replace(answer, offers=tuple(served)), width=width)

    assert max(map(len, text.splitlines())) <= width
    assert "3,200 predictions" in text
    assert "samples/s" in text
    assert "one, ms" in text
    assert (" cost" in text) == (width >= 100)


@pytest.mark.parametrize("name", ["NO_COLOR", "CI"])
def test_without_colour_nothing_is_lost(monkeypatch: pytest.MonkeyPatch, estimate: Estimate, name: str) -> None:
    """The same words with colour and without; with NO_COLOR no colour code is written at all."""
    coloured = shown(monkeypatch, estimate, width=80)
    monkeypatch.setenv(name, "1")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    emit_estimate(estimate)
    written = terminal.getvalue()

    assert re.sub(r"[ \t]+\n", "\n", re.sub(r"\x1b\[[0-9;]*m", "", written)) == coloured
    if name == "NO_COLOR":
        assert not re.search(r"\x1b\[(?:3|4|9)\d", written)


def test_all_offers_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, estimate: Estimate, golden: Callable[[str, str], None]
) -> None:
    """Golden text: `--all` shows every offer, what does not fit included."""
    golden("estimate-all-120.txt", shown(monkeypatch, estimate, width=120, show_all=True))


def test_a_pipe_gets_every_offer_at_full_precision(
    capsys: pytest.CaptureFixture[str], estimate: Estimate, golden: Callable[[str, str], None]
) -> None:
    """Golden text: TSV with a header line, unknown empty, prices as published."""
    emit_estimate(estimate)
    text = capsys.readouterr().out

    header, *rows = [line.split("\t") for line in text.splitlines()]
    assert len(rows) == len(OFFERS)
    assert {len(row) for row in rows} == {len(header)}
    golden("estimate.tsv", text)


def test_json_keeps_the_contract(capsys: pytest.CaptureFixture[str], estimate: Estimate) -> None:
    """schemas/gpuplan.estimate.json accepts it, and one offer is one line."""
    emit_estimate(estimate, as_json=True)
    text = capsys.readouterr().out

    document = json.loads(text)
    schema = json.loads(files("gpuplan.schemas").joinpath("gpuplan.estimate.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    assert text == format_estimate_json(estimate)
    lines = [line for line in text.splitlines() if line.startswith('    {"provider"')]
    assert len(lines) == len(estimate.offers)
    assert sum('"instance_type":"g4dn.xlarge"' in line and '"bill"' not in line for line in lines) == 2


def test_json_names_what_is_recommended(estimate: Estimate) -> None:
    """A recommendation says where the offer is in `offers`, and names it."""
    document = json.loads(format_estimate_json(estimate))
    chosen = document["recommendation"]

    for answer in (chosen["cheapest"], chosen["fastest"], chosen["free"], *chosen["pareto"]):
        offer = document["offers"][answer["offer"]]
        named = {key: value for key, value in answer.items() if key != "offer"}
        assert named == {key: offer[key] for key in named}
    assert chosen["cheapest"]["instance_type"] == "g4dn.xlarge"
    assert chosen["free"]["provider"] == "kaggle"


def test_json_bills_add_up(estimate: Estimate) -> None:
    """Law: the lines of every bill sum exactly to the cost, as decimal numbers."""
    rows: list[dict[str, Any]] = estimate.to_json(breakdown=True)["offers"]
    billed = [row for row in rows if row["cost_usd"]]

    assert len(billed) == 6
    for row in billed:
        assert sum(Decimal(line["usd"]) for line in row["bill"]) == Decimal(row["cost_usd"]["mid"])
