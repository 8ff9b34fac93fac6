"""The screen of an estimate: its rows, columns and marks, by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from factories import TWENTY, ask, ask_about, make_accelerator, make_offer
from gpuplan.offers.refresh.quotas import QuotaCheck
from gpuplan.offers.rows import Accelerator
from gpuplan.plan.cost_terms import Currency
from gpuplan.plan.estimate import BudgetEpochs, Decision, Estimate
from gpuplan.plan.question import Filters
from gpuplan.render import estimate_notes
from gpuplan.render.estimate_screen import build_cells, emit_screen, pick_columns, select_shown_offers
from gpuplan.units import Interval

EURO = Currency(code="EUR", per_usd=Decimal(2))
SPEEDS = [make_accelerator(f"Speed{speed}", tflop_per_s=float(speed)) for speed in (1, 2, 4)]
PRICES = (Decimal(1), Decimal(3), Decimal(10))


@pytest.fixture(autouse=True)
def _a_day_on_which_no_price_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate_notes, "get_today", lambda: date(2026, 1, 22))


def ask_sizes(names: int, sizes: int, **filters: Any) -> Estimate:
    """Estimate on several numbers of devices of each accelerator, equally fast and ever dearer."""
    kinds = [(one, devices) for one in TWENTY[:names] for devices in range(1, sizes + 1)]
    pairs = [
        (make_offer(one.name, devices=float(devices), usd_per_hour=Decimal(usd)), one)
        for usd, (one, devices) in enumerate(kinds, start=1)
    ]
    return ask_about(*pairs, filters=Filters(**filters))


def keep_all(estimate: Estimate) -> Estimate:
    """Return an estimate as if no offer beat another."""
    return replace(estimate, undominated=tuple(range(len(estimate.offers))))


def test_ten_kinds_are_shown() -> None:
    """Of twenty, the ten of least total, if none beats another; of equally fast ones the cheapest beats all."""
    assert select_shown_offers(keep_all(ask(*TWENTY))) == list(range(10))
    assert select_shown_offers(keep_all(ask(*TWENTY[:10]))) == list(range(10))
    assert select_shown_offers(keep_all(ask(*TWENTY[:3]))) == [0, 1, 2]
    assert select_shown_offers(ask(*TWENTY)) == [0]


def test_what_is_slower_and_dearer_is_not_shown() -> None:
    """An hour for $1, half for $1.50; a quarter for $2.50; one of a half for $2 is beaten by the second."""
    beaten = make_accelerator("Beaten", tflop_per_s=2.0)
    pairs = [(make_offer(one.name, usd_per_hour=usd), one) for one, usd in zip(SPEEDS, PRICES, strict=True)]
    answer = ask_about(*pairs, (make_offer("Beaten", usd_per_hour=Decimal(4)), beaten))

    assert set(named(answer)) == {"Speed1", "Speed2", "Speed4"}
    assert "Beaten" in named(replace(answer, options={**answer.options, "accelerators": ["Beaten"]}))


@pytest.mark.parametrize(
    ("names", "sizes", "places"),
    [
        (3, 8, [*range(8), 8, 16]),
        (9, 2, [0, 1, *range(2, 18, 2)]),
        (10, 2, [*range(0, 20, 2)]),
        (11, 2, [*range(0, 22, 2)]),
        (13, 2, [*range(0, 26, 2)]),
    ],
)
def test_every_accelerator_that_was_asked_for_has_a_row(names: int, sizes: int, places: list[int]) -> None:
    """By hand: of ten rows, three names leave seven for further sizes, nine leave one, ten and more none."""
    asked = tuple(one.name for one in TWENTY[:names])

    assert select_shown_offers(keep_all(ask_sizes(names, sizes, accelerators=asked))) == places


def test_other_sizes_are_shown_where_an_accelerator_is_named() -> None:
    """Where none is named, one that a pick has needs no row of its own."""
    picked = Decision(recommended=9)  # two of the second accelerator, of eight sizes each
    asked = tuple(one.name for one in TWENTY[:3])

    assert select_shown_offers(keep_all(replace(ask_sizes(3, 8), decision=picked))) == [9, 0, 16]
    assert select_shown_offers(keep_all(replace(ask_sizes(3, 8, accelerators=asked), decision=picked))) == [
        9, *range(7), 8, 16,
    ]  # fmt: skip
    assert select_shown_offers(keep_all(ask_sizes(11, 2))) == [*range(0, 20, 2)]


@pytest.mark.parametrize(
    ("asked", "places"),
    [((), [*range(9), 20]), (TWENTY[:9], [*range(9), 20]), (TWENTY[:12], [*range(12), 20])],
    ids=["any", "nine", "twelve"],
)
def test_the_own_machine_has_a_row(asked: tuple[Accelerator, ...], places: list[int]) -> None:
    """Though it is the dearest of 21, and of an accelerator that is shown already."""
    pairs = [(make_offer(one.name, usd_per_hour=Decimal(usd)), one) for usd, one in enumerate(TWENTY, start=1)]
    if asked:
        pairs = pairs[: len(asked)]
        places = [*places[:-1], len(asked)]
    own = make_offer("GPU00", provider="local", usd_per_hour=Decimal(50))
    answer = ask_about(*pairs, (own, TWENTY[0]), filters=Filters(accelerators=tuple(one.name for one in asked)))

    assert select_shown_offers(keep_all(answer)) == places


def test_picks_come_first_in_their_order() -> None:
    """The roles, the nearest misses, and what a budget buys; then the others."""
    answer = keep_all(ask(*TWENTY))
    roles = Decision(recommended=7, free=12, cheaper=5, faster=15)
    bought = BudgetEpochs(offer=19, epochs=Interval(low=1.0, mid=2.0, high=3.0), sentence="Buys 2.")

    assert select_shown_offers(replace(answer, decision=roles)) == [7, 12, 5, 15, 0, 1, 2, 3, 4, 6]
    assert select_shown_offers(replace(answer, decision=Decision(nearest=(5, 3)))) == [
        5, 3, 0, 1, 2, 4, 6, 7, 8, 9,
    ]  # fmt: skip
    assert select_shown_offers(replace(answer, budget_epochs=bought)) == [0, 19, *range(1, 9)]
    many = Decision(nearest=tuple(range(19, 8, -1)))
    assert select_shown_offers(replace(answer, decision=many)) == [*many.nearest]


def ask_speeds(**asked: Any) -> Estimate:
    """Estimate on 1, 1/2 and 1/4 hour at $1, $3 and $10 an hour: for $1, $1.50 and $2.50."""
    pairs = [(make_offer(one.name, usd_per_hour=price), one) for one, price in zip(SPEEDS, PRICES, strict=True)]
    return ask_about(*pairs, **asked)


def named(estimate: Estimate) -> list[str]:
    """Return the accelerators shown."""
    return [estimate.offers[row].offer.accelerator for row in select_shown_offers(estimate)]


def test_other_rows_are_sorted_by_total_unless_another_order_was_asked_for() -> None:
    """At $20 an hour of waiting the totals are $21, $11.50 and $7.50 and the user's own hours; at $0 the costs."""
    nothing = Decision()
    by_total = replace(ask_speeds(wait_value_usd=20.0), decision=nothing)

    assert [one.offer.accelerator for one in by_total.offers] == ["Speed1", "Speed2", "Speed4"]
    assert named(by_total) == ["Speed4", "Speed2", "Speed1"]
    assert named(replace(by_total, offers=tuple(by_total.offers))) == ["Speed1", "Speed2", "Speed4"]
    by_time = replace(ask_speeds(wait_value_usd=0.0, sort="time"), decision=nothing)
    assert named(by_time) == ["Speed4", "Speed2", "Speed1"]


def test_what_cannot_be_had_comes_last() -> None:
    """A retired machine is the cheapest, and shown where it was asked for, in the last row."""
    gone = make_offer("GPU00", usd_per_hour=Decimal("0.5"), status="retired")
    others = [(make_offer(one.name, usd_per_hour=Decimal(2)), one) for one in TWENTY[1:3]]
    answer = ask_about((gone, TWENTY[0]), *others)
    asked = {**answer.options, "accelerators": [one.name for one in TWENTY[:3]]}

    assert answer.offers[0].offer is gone
    assert select_shown_offers(answer) == [1]
    assert select_shown_offers(replace(answer, options=asked)) == [1, 2, 0]


def make_head(*, steps: int | None = 1, served: bool = False, latency: bool = True, **options: Any) -> Any:
    """Return what the columns depend on."""
    return SimpleNamespace(
        workload=SimpleNamespace(steps=steps),
        has_serving=served,
        offers=[SimpleNamespace(serving=SimpleNamespace(latency_s=latency))],
        options={"sort": "cost", **options},
    )


def keys(width: int, *, by_instance: bool = False, **head: Any) -> str:
    """Return the keys of the columns at a width."""
    return " ".join(column.key for column in pick_columns(make_head(**head), width, by_instance=by_instance))


def test_columns_of_a_run_by_width() -> None:
    """The region from 100 characters; layouts and carbon dioxide where they were asked for."""
    narrow = "mark machine run_time_s cost_usd usd_per_hour"

    assert keys(80) == keys(99) == keys(80, fit=False, shard="none") == narrow
    assert keys(100) == keys(200) == "mark machine region run_time_s cost_usd usd_per_hour"
    with_layout = "mark machine layout run_time_s cost_usd usd_per_hour"
    assert keys(80, fit=True) == keys(80, shard="fsdp") == with_layout
    assert keys(80, sort="co2") == "mark machine run_time_s cost_usd co2_kg usd_per_hour"
    assert keys(80, sort="time") == narrow


def test_columns_by_instance() -> None:
    """Instance type and region at any width, how it is bought from 100 characters."""
    run = "run_time_s cost_usd usd_per_hour"

    assert keys(99, by_instance=True) == f"mark accelerator instance_type region {run}"
    assert keys(100, by_instance=True) == f"mark accelerator instance_type region purchase {run}"


def test_columns_of_predictions_and_of_an_unknown_length() -> None:
    """Rate and price of a million instead of the run's; with a latency, beside them from 100 characters."""
    samples = "samples_per_s usd_per_million_samples"

    assert keys(99, steps=None) == f"mark machine {samples} usd_per_hour"
    assert keys(100, steps=None) == f"mark machine region {samples} usd_per_hour"
    assert keys(99, served=True) == f"mark machine latency_s {samples} usd_per_hour"
    assert keys(99, served=True, latency=False) == f"mark machine {samples} usd_per_hour"
    assert keys(100, served=True) == (f"mark machine region latency_s {samples} run_time_s cost_usd usd_per_hour")


def test_columns_give_way_in_a_fixed_order() -> None:
    """Layout, price, how it is bought, region of a machine; the others stay, also the region of an instance."""
    head = make_head(fit=True, served=True, best=True, sort="co2")

    def dispensable(*, by_instance: bool) -> dict[str, int]:
        columns = pick_columns(head, 100, by_instance=by_instance)
        return {column.key: column.dispensable for column in columns if column.dispensable}

    assert dispensable(by_instance=False) == {"layout": 4, "usd_per_hour": 3, "region": 1}
    assert dispensable(by_instance=True) == {"layout": 4, "usd_per_hour": 3, "purchase": 2}


def test_columns_have_headers_sides_and_room() -> None:
    """Times and costs stand on the left with their ranges; long names are cut to 32 characters."""
    head = make_head(served=True, sort="co2")
    columns = [*pick_columns(head, 100), *pick_columns(head, 100, by_instance=True)]
    right = {column.key for column in columns if column.justify == "right"}
    lengths = {column.key: len(column.format("x" * 60)) for column in columns if column.format}

    assert right == {"latency_s", "samples_per_s", "usd_per_million_samples", "co2_kg", "usd_per_hour"}
    assert lengths == {"machine": 32, "instance_type": 32}
    assert {"machine", "accelerator", "instance", "region", "purchase", "time", "cost", "$/h"} < {
        column.header for column in columns
    }


def marks(estimate: Estimate) -> list[str | None]:
    """Return the marks of all offers, in order."""
    return [row["mark"] for row in build_cells(estimate, range(len(estimate.offers)), ["mark"])]


def test_picks_are_marked_by_their_first_role() -> None:
    """A free one that also is faster is free."""
    answer = ask(*TWENTY[:5])

    picked = Decision(recommended=1, free=0, cheaper=2, faster=4)
    assert marks(replace(answer, decision=picked)) == ["free", "take", "cheaper", "", "faster"]
    twice = Decision(recommended=1, free=0, faster=0)
    assert marks(replace(answer, decision=twice)) == ["free", "take", "", "", ""]


def test_the_own_machine_is_here_unless_it_has_another_role() -> None:
    """Also where it is the one to take."""
    own = make_offer("GPU00", provider="local", usd_per_hour=Decimal("0.5"))
    answer = ask_about((own, TWENTY[0]), (make_offer("GPU01"), TWENTY[1]))

    for decision, mark in (({"recommended": 0}, "here"), ({}, "here"), ({"free": 0}, "free")):
        assert marks(replace(answer, decision=Decision(**decision)))[0] == mark
    assert marks(replace(answer, decision=Decision()))[1] == ""


def test_a_refused_offer_is_marked() -> None:
    """By the quota of the account; a role comes before it."""
    answer = ask(*TWENTY[:3])
    quota = QuotaCheck(state="too_small", why="no quota", link="https://form")
    unknown = replace(quota, state="unknown")
    offers = [
        replace(one, selected=one.selected._replace(quota=check))
        for one, check in zip(answer.offers, (quota, quota, unknown), strict=True)
    ]

    assert marks(replace(answer, offers=tuple(offers))) == ["take", "no quota", ""]


def test_cells_are_the_texts_of_the_columns() -> None:
    """In the currency of the estimate; a column without a text has its value."""
    answer = ask(*TWENTY[:2])
    answer = replace(answer, terms=replace(answer.terms, currency=EURO))

    assert build_cells(answer, [1, 0], ["mark", "machine", "run_time_s", "cost_usd", "provider"]) == [
        {"mark": "", "machine": "GPU01 on Lambda", "run_time_s": "60 min (48–90)",
         "cost_usd": "4.00 EUR (3.2–6.0)", "provider": "lambda"},
        {"mark": "take", "machine": "GPU00 on Lambda", "run_time_s": "60 min (48–90)",
         "cost_usd": "2.00 EUR (1.6–3.0)", "provider": "lambda"},
    ]  # fmt: skip


def test_a_screen_as_a_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Decision, title, table (in a pipe its cells), hidden offers and notes; in 60 characters, whole words."""
    bought = BudgetEpochs(offer=0, epochs=Interval(low=1.0, mid=2.0, high=3.0), sentence="$5 buys 180 epochs.")
    answer = replace(keep_all(ask(*TWENTY[:12])), budget_epochs=bought)
    emit_screen(answer, show_all=False, explain=False, width=60)

    header = "mark\tmachine\trun_time_s\tcost_usd\tusd_per_hour"
    assert capsys.readouterr().out.splitlines() == [
        "Take GPU00 on Lambda: $1.00 (0.8–1.5), 60 min (48–90).",
        "$5 buys 180 epochs.",
        "",
        "made-up.json · 67.1 M parameters · batch 32 ·",
        "36 epochs of 3,200 samples · float32",
        header,
        "take\tGPU00 on Lambda\t60 min (48–90)\t$1.00 (0.8–1.5)\t1.00",
        *(
            f"\tGPU{usd - 1:02} on Lambda\t60 min (48–90)\t${usd}.00 "
            f"({low}–{high})\t{usd}.00"
            for usd, low, high in [
                (2, "1.6", "3.0"), (3, "2.4", "4.5"), (4, "3.2", "6.0"), (5, "4.0", "7.5"), (6, "4.8", "9.0"),
                (7, "5.6", "10"), (8, "6.4", "12"), (9, "7.2", "14"), (10, "8.0", "15"),
            ]
        ),
        "and 2 more offers: --all",
        "Plus the download of your data: about 1 min per 5 GB",
        "(--assume dataset_gb=5).",
        "Would help: batch 128: 4.0x, another training.",
    ]  # fmt: skip


def test_all_offers_and_an_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    """Every offer by its instance, none hidden; the explanation after an empty line."""
    emit_screen(ask(*TWENTY[:12]), show_all=True, explain=True, width=100)
    text = capsys.readouterr().out

    assert "mark\taccelerator\tinstance_type\tregion\tpurchase\trun_time_s\t" in text
    assert sum("\tus-east-1\ton demand\t" in line for line in text.splitlines()) == 12
    assert "more offers" not in text
    assert "\n\nShown: 12 of 12 offers; of 12 kinds of machines.\n" in text
    emit_screen(ask(*TWENTY[:12]), show_all=True, explain=False, width=100)
    assert "Shown:" not in capsys.readouterr().out


def test_a_thousand_hidden_offers_have_a_comma(capsys: pytest.CaptureFixture[str]) -> None:
    """1,001 offers of one machine are one row."""
    pairs = [(make_offer("GPU00", region=f"r{number}"), TWENTY[0]) for number in range(1001)]
    emit_screen(ask_about(*pairs), show_all=False, explain=False, width=80)

    assert "and 1,000 more offers: --all\n" in capsys.readouterr().out
