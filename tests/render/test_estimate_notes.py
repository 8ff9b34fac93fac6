"""What stands below an estimate's table: notes, and the explanation of `--explain`, by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from factories import TWENTY, ask, ask_about, make_accelerator, make_offer
from gpuplan.offers.refresh.quotas import QuotaCheck
from gpuplan.plan.cost_terms import NO_TERMS, Currency
from gpuplan.plan.estimate import Decision, Estimate
from gpuplan.plan.memory import MemoryVerdict, Remedy
from gpuplan.predict.step_time import NoPrediction
from gpuplan.render import estimate_notes
from gpuplan.render.estimate_notes import (
    Priced,
    _format_remedies,
    _format_time_and_cost,
    describe_ages,
    format_explanation,
    format_summary_lines,
)
from gpuplan.render.estimate_screen import _list_uncounted, list_notes
from gpuplan.units import GIB
from gpuplan.workload.model import InputRate, Unmodelled

DOWNLOAD = "Plus the download of your data: about 1 min per 5 GB (--assume dataset_gb=5)."


@pytest.fixture(autouse=True)
def _a_day_on_which_no_price_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    set_today(monkeypatch, date(2026, 1, 22))


def set_today(monkeypatch: pytest.MonkeyPatch, day: date) -> None:
    """Set the day on which ages of prices are computed; those of the offers are of 2026-01-21."""
    monkeypatch.setattr(estimate_notes, "get_today", lambda: day)


def uncounted(estimate: Estimate) -> list[str]:
    """Return what is not counted, without what is empty."""
    return [text for text in _list_uncounted(estimate) if text]


def take_of(estimate: Estimate, **changes: Any) -> Estimate:
    """Return an estimate whose recommended offer has other values."""
    row = estimate.decision.recommended
    assert row is not None
    offers = list(estimate.offers)
    offers[row] = replace(offers[row], **changes)
    return replace(estimate, offers=tuple(offers))


def test_the_download_is_told_where_it_is_not_counted() -> None:
    """At a provider, unless its size is given; not on the own machines."""
    answer = ask(TWENTY[0])
    given = replace(NO_TERMS, overrides={"dataset_gb": 0.0})

    assert uncounted(answer) == [DOWNLOAD]
    assert uncounted(replace(answer, terms=given)) == []
    for provider, lines in (("local", []), ("own", []), ("colab", [DOWNLOAD])):
        assert uncounted(take_of(answer, offer=make_offer("GPU00", provider=provider))) == lines


@pytest.mark.parametrize(
    ("kind", "samples", "input_bytes", "lines"),
    [
        ("arrays", 60_000, 8 * 16_000, []),  # 16 kB a sample: 0.96 GB
        ("arrays", 62_501, 8 * 16_000, [DOWNLOAD]),  # over 1 GB
        ("arrays", None, 8, [DOWNLOAD]),
        ("tf.data", 60_000, 8, [DOWNLOAD]),  # whose files may be larger than its samples
    ],
)
def test_arrays_of_less_than_a_gigabyte_are_no_download_worth_a_line(
    kind: str, samples: int | None, input_bytes: int, lines: list[str]
) -> None:
    """A batch of 8 has so many bytes."""
    answer = ask(TWENTY[0])
    memory = replace(answer.workload.memory, input_bytes=input_bytes)
    fed = {"input": InputRate(kind=kind), "samples": samples, "memory": memory, "batch_size": 8}

    assert uncounted(replace(answer, workload=replace(answer.workload, **fed))) == lines


def test_accelerators_without_an_offer_are_named_also_without_a_pick() -> None:
    """Then nothing else is to be told of."""
    answer = replace(ask(TWENTY[0]), unmatched=("K80", "M60"))

    assert uncounted(answer) == ["No offer of K80, M60.", DOWNLOAD]
    assert uncounted(replace(answer, decision=Decision(values="Counts."))) == ["No offer of K80, M60."]


@pytest.mark.parametrize(("needed_gib", "note"), [(13, []), (14, ["GPU00: memory: tight (14.0 of 16.0 GiB)."])])
def test_a_tight_memory_is_told_of(needed_gib: int, note: list[str]) -> None:
    """From 16 / 1.2 = 13.3 GiB of 16."""
    memory = MemoryVerdict(
        needed_bytes=needed_gib * GIB, available_bytes=16 * GIB, fits=True, largest_batch_size=32
    )
    answer = ask(TWENTY[0])
    device = replace(answer.offers[0].device_estimate, memory=memory)

    assert uncounted(take_of(answer, device_estimate=device)) == [DOWNLOAD, *note]


@pytest.mark.parametrize(
    ("shares", "note"), [((0.02, 0.029), []), ((0.03, 0.02), ["Not modelled: 5 % of the bytes of a step."])]
)
def test_what_is_not_modelled_is_told_from_five_percent(shares: tuple[float, ...], note: list[str]) -> None:
    """Of the bytes of a step, all such operations together."""
    unmodelled = tuple(Unmodelled(name="cumsum", count=1, bytes_share=share) for share in shares)

    assert uncounted(ask(TWENTY[0], work={"unmodelled": unmodelled})) == [DOWNLOAD, *note]


def test_a_starved_device_and_values_that_decide_are_told() -> None:
    """The one before the download, as a sentence, the others after everything."""
    market: Any = SimpleNamespace(starved=lambda selected, estimate: "decoding JPEG: see `--feed`")
    answer = take_of(ask(TWENTY[0]), market=market)
    answer = replace(answer, decision=replace(answer.decision, values="Counts an hour as $20."))

    assert uncounted(answer) == ["Decoding JPEG: see `--feed`.", DOWNLOAD, "Counts an hour as $20."]


def test_four_notes_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is needed, what is not counted, what would help, and that the prices shown are new."""
    set_today(monkeypatch, date(2026, 1, 21))
    answer = replace(ask(*TWENTY[:2]), unmatched=("K80",))
    answer = replace(answer, decision=replace(answer.decision, needs=("a phone", "a quota")))

    assert list_notes(answer, [0, 1]) == [
        "Needs a phone. Needs a quota.",
        f"No offer of K80. {DOWNLOAD}",
        "Would help: batch 128: 4.0x, another training.",
        "Prices: today.",
    ]


def test_notes_with_nothing_to_tell_are_left_out() -> None:
    """Neither needs, nor improvements, nor old prices."""
    answer = ask(TWENTY[0])

    assert list_notes(replace(answer, decision=Decision(recommended=0)), [0]) == [DOWNLOAD]
    assert list_notes(replace(answer, decision=Decision()), [0]) == []


def price(
    provider: str, total_usd: float, *, days: int = 100, half_width: float = 0.2, money: float = 0.5
) -> Priced:
    """Return a candidate whose money is a share of its total, with a price of some days before 2026-05-01."""
    day = (date(2026, 5, 1) - timedelta(days=days)).isoformat()
    offer = make_offer("T4", provider=provider, price_as_of=day)
    return Priced(offer, total_usd, money * total_usd, half_width)


@pytest.mark.parametrize(
    ("taken", "other", "line"),
    [
        # half of 10 USD moves: 10 % more is 0.5 USD; within exp(0.2) = 22 %
        ({}, {"total_usd": 10.5}, "The price of T4 on AWS is 100 days old; at 10 % more, take T4 on Vast: {}."),
        ({}, {"total_usd": 11.2}, ""),  # 24 % more; of the other, exp(-0.2) = 18 % less are 1.0 USD
        ({"half_width": 0.0}, {"total_usd": 10.9},  # 0.9 of 5.45 USD; within 1 - exp(-0.2) = 18 %
         "The price of T4 on Vast is 100 days old; at 17 % less, take it: {}."),
        ({"half_width": 0.0}, {"total_usd": 11.0, "half_width": 0.1}, ""),
        ({"half_width": 0.0}, {"total_usd": 10.5, "half_width": 0.0}, ""),
        ({"days": 7}, {"total_usd": 10.5, "days": 7}, ""),  # a week is not old
        ({"days": 8}, {"total_usd": 10.5, "days": 7},
         "The price of T4 on AWS is 8 days old; at 10 % more, take T4 on Vast: {}."),
        ({"money": 0.0}, {"total_usd": 10.5, "money": 0.0}, ""),  # free
    ],
)  # fmt: skip
def test_an_old_price_is_news_where_it_may_change_the_choice(
    monkeypatch: pytest.MonkeyPatch, taken: dict[str, Any], other: dict[str, Any], line: str
) -> None:
    """By hand: the move that makes both totals equal, held against the provider's own rate."""
    set_today(monkeypatch, date(2026, 5, 1))
    candidates = [price("aws", 10.0, **taken), price("vast", **{"half_width": 0.2, **other})]

    assert describe_ages(candidates) == line.format("`gpuplan catalog refresh`")


def test_the_same_machine_elsewhere_is_no_other_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another region of it ages alike; nothing at all, and one machine alone, say nothing."""
    set_today(monkeypatch, date(2026, 5, 1))

    assert describe_ages([price("aws", 10.0), price("aws", 10.1)]) == ""
    assert describe_ages([price("aws", 10.0)]) == ""
    assert describe_ages([]) == ""


def test_prices_of_today_are_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, or none; the user's own has no date."""
    set_today(monkeypatch, date(2026, 5, 1))
    own = Priced(make_offer("T4", provider="local", price_as_of=None), 1.0, 0.0, 0.0)

    assert describe_ages([own, price("aws", 2.0, days=0)]) == "Prices: today."
    assert describe_ages([price("aws", 2.0, days=0), price("vast", 9.0, days=1)]) == ""
    assert describe_ages([own]) == ""


@pytest.mark.parametrize(("steps", "is_told"), [(599, False), (600, True), (None, True)])
def test_what_would_help_is_told_from_ten_minutes(steps: int | None, is_told: bool) -> None:
    """At a second a step; also where the length of the run is unknown."""
    answer = ask(TWENTY[0], work={"steps": steps, "samples": None, "epochs": None})
    told = "Would help: batch 128: 4.0x, another training."

    assert (told in list_notes(answer, [0])) == is_told
    improvement = answer.decision.improvements[0]
    two = (replace(improvement, change="jit_compile=True", another_training=False), improvement)
    both = "Would help: jit_compile=True: 4.0x · batch 128: 4.0x, another training."
    assert (both in list_notes(replace(answer, decision=replace(answer.decision, improvements=two)), [0])) == (
        is_told
    )


def change_devices(estimate: Estimate, **changes: Any) -> Estimate:
    """Return an estimate of changed devices."""
    offers = [replace(one, device_estimate=replace(one.device_estimate, **changes)) for one in estimate.offers]
    return replace(estimate, offers=tuple(offers))


def test_an_explanation_as_a_whole() -> None:
    """What is shown, what is recommended and why, and sources; notes of the workload begin as sentences."""
    answer = ask(TWENTY[0], work={"notes": ("one step was traced",)})

    assert format_explanation(answer, [0]) == [
        "Shown: 1 of 1 offers; of 1 kinds of machines.",
        "cheapest, fastest: lambda GPU00 (GPU00), us-east-1, on demand: 60 min, $1.00",
        "limit on GPU00: most of a step is arithmetic: more FLOP/s or a lower precision helps",
        "Prices: list prices of 2026-01-21, not live.",
        "Included in the bill: training only. Not included: input pipeline stalls.",
        "Times: modelled; ranges are 80 % intervals.",
        "Quotas: not checked; --quota asks AWS, Azure and Google Cloud what your account may start.",
        "One step was traced.",
    ]


SMALL = [make_accelerator(f"Small{number}", memory_gib=1.0) for number in range(3)]
UNKNOWN = [make_accelerator(f"Unknown{number}", tflop_per_s=None) for number in range(2)]


def test_kinds_that_cannot_run_are_counted_with_the_reason() -> None:
    """One that can, three that are too small and two of no known time; two on which Keras does not run."""
    assert format_explanation(ask(TWENTY[0], *SMALL, *UNKNOWN), [0])[0] == (
        "Shown: 1 of 6 offers; of 6 kinds of machines; 3 too small for this batch size; 2 without a known time."
    )
    two = ask(*TWENTY[:2])
    assert format_explanation(change_devices(two, runs=False), [0, 1])[0] == (
        "Shown: 2 of 2 offers; of 2 kinds of machines; 2 not supported by Keras 3."
    )
    for runs in (True, None):
        assert "Keras" not in format_explanation(change_devices(two, runs=runs), [0])[0]


def test_offers_of_one_kind_are_counted_once() -> None:
    """1,001 regions of one machine."""
    pairs = [(make_offer("GPU00", region=f"r{number}"), TWENTY[0]) for number in range(1001)]

    assert format_explanation(ask_about(*pairs), [0])[0] == "Shown: 1 of 1,001 offers; of 1 kinds of machines."


def make_answer(*offers: Any) -> Any:
    """Return what the remedies are of."""
    return SimpleNamespace(offers=offers, best_per_devices=lambda: tuple(range(len(offers))))


def make_one(name: str, *remedies: tuple[str, bool], fits: bool | None = False) -> Any:
    """Return an offer whose step needs 20 of 16 GiB."""
    memory = SimpleNamespace(fits=fits)
    ways = tuple(Remedy(remedy=words, needed_bytes=GIB, fits=enough) for words, enough in remedies)
    return SimpleNamespace(
        offer=make_offer(name),
        device_estimate=SimpleNamespace(memory=memory, remedies=ways),
        to_json=lambda: {"memory_bytes": 20 * GIB, "memory_available_bytes": 16 * GIB},
    )


def test_the_first_device_that_a_remedy_is_enough_for_is_told_of() -> None:
    """One sufficient way is enough; without any, the first that is too small; nothing where all fit."""
    none, some = make_one("A", ("halves", False)), make_one("B", ("shards", True), ("halves", False))
    more, fitting = make_one("C", ("shards", True)), make_one("D", ("halves", True), fits=True)
    told = "To fit on B (20 of 16 GiB): shards · halves, not enough by itself."

    assert _format_remedies(make_answer(fitting, none, some, more)) == [told]
    assert _format_remedies(make_answer(none, make_one("E"))) == [
        "To fit on A (20 of 16 GiB): halves, not enough by itself."
    ]
    assert _format_remedies(make_answer(make_one("E"), none)) == [
        "To fit on A (20 of 16 GiB): halves, not enough by itself."
    ]
    unknown = make_one("F", ("halves", True), fits=None)
    assert _format_remedies(make_answer(fitting, unknown, make_one("E"))) == []


def test_remedies_stand_after_what_is_shown() -> None:
    """2.5 of 1 GiB: 1 of variables, 1 of the batch, a half of the framework; 1.5 do not fit without a batch."""
    assert format_explanation(ask(SMALL[0]), [0])[1] == (
        "To fit on Small0 (2.5 of 1.0 GiB): weights, gradients and optimizer alone do not fit: "
        "needs sharding over 2 devices or more, not enough by itself."
    )


def ask_front(*speeds: float) -> Estimate:
    """Estimate on accelerators of some speeds [TFLOP/s], on which the run costs as many dollars."""
    pairs = [
        (
            make_offer(f"Speed{speed:g}", instance_type=f"s{speed:g}", usd_per_hour=Decimal(str(speed)) ** 2),
            make_accelerator(f"Speed{speed:g}", tflop_per_s=speed),
        )
        for speed in speeds
    ]
    return ask_about(*pairs)


def test_four_offers_between_the_cheapest_and_the_fastest() -> None:
    """Of seven, fastest first; of those that show the same time the cheapest; none of two."""
    told = "between the two: Speed6 10 min $6.00; Speed5 12 min $5.00; Speed4 15 min $4.00; Speed3 20 min $3.00"

    assert format_summary_lines(ask_front(1, 2, 3, 4, 5, 6, 7))[-1] == told
    assert format_summary_lines(ask_front(1, 4, 4.01, 7))[-1] == "between the two: Speed4 15 min $4.00"
    assert "between" not in " ".join(format_summary_lines(ask_front(1, 2)))


def test_recommendations_that_are_one_offer_share_a_line() -> None:
    """Beside a slow free one, the others are of those paid; all within the limits."""
    slow = make_accelerator("Slow", tflop_per_s=0.5)
    free = make_offer("Slow", provider="kaggle", instance_type="kaggle-free-slow", usd_per_hour=Decimal(0))
    paid = (make_offer("GPU00", purchase="spot"), TWENTY[0])
    limits = {"deadline_s": 6000.0, "budget_usd": 2.0}

    assert format_summary_lines(ask_about(paid, (free, slow), **limits))[:2] == [
        "cheapest paid, fastest paid, in time, in budget: lambda one_GPU00 (GPU00), us-east-1, spot: "
        "60 min, $1.00",
        "free: kaggle free-slow (Slow), us-east-1, on demand: 2.0 h, free",
    ]
    assert format_summary_lines(ask_about((free, slow)))[0] == (
        "cheapest, fastest, free: kaggle free-slow (Slow), us-east-1, on demand: 2.0 h, free"
    )


def test_tokens_and_utilization_of_the_recommended_device() -> None:
    """32 samples of 1,000 tokens a second, a million in 31 s for $0.0087; half of a step at the peak."""
    answer = change_devices(ask(TWENTY[0]), tokens_per_sample=1000, peak_time_s=0.5)
    told = "on GPU00: 32 k tokens/s, < 1 cent a million tokens, 50 % of the peak FLOP/s (MFU)"

    assert format_summary_lines(answer)[1] == told
    nothing = format_summary_lines(replace(answer, decision=Decision()))
    assert nothing[1].startswith("limit on GPU00: ")
    untimed = change_devices(ask(TWENTY[0]), step_time=NoPrediction("no peak is known"))
    assert len(format_summary_lines(untimed)) == 1


def test_times_and_costs_of_offers_by_what_is_known() -> None:
    """Of a run, or of a million samples: 31,250 s at $1 an hour, $2 to a unit of another currency."""
    currency, unlimited = (
        Currency(code="EUR", per_usd=Decimal(2)),
        {"steps": None, "samples": None, "epochs": None},
    )
    priceless = (make_offer("GPU00", usd_per_hour=None), TWENTY[0])

    def told(estimate: Estimate) -> tuple[str, str]:
        return _format_time_and_cost(estimate.offers[0], currency)

    assert told(ask(TWENTY[0])) == ("60 min", "2.00 EUR")
    assert told(ask(TWENTY[0], work=unlimited)) == ("32 samples/s", "17.36 EUR per million")
    assert told(ask_about(priceless)) == ("60 min", "–")
    assert told(ask_about(priceless, work=unlimited)) == ("32 samples/s", "–")
    assert told(ask(UNKNOWN[0])) == ("– samples/s", "–")


def sources(estimate: Estimate, *shown: int) -> str:
    """Return the explanation as one text."""
    return "\n".join(format_explanation(estimate, shown))


def test_sources_of_prices() -> None:
    """The dates of the offers shown, oldest and newest; a mark where one is derived; none known."""
    pairs = [
        (make_offer("GPU00", price_as_of=day, region=day or "x", estimated=marked), TWENTY[0])
        for day, marked in (("2026-01-21", False), ("2025-12-01", True), (None, False))
    ]
    answer = ask_about(*pairs)
    marked = "Prices: list prices of 2025-12-01 to 2026-01-21, not live; ~ = estimated from published savings."

    assert marked in sources(answer, 0, 1, 2)
    assert "Prices: list prices of 2026-01-21, not live." in sources(answer, 0, 2)
    assert "Prices: none known." in sources(answer, 2)


def test_sources_of_times() -> None:
    """None where none is known; the names of three operations of four, with the share of all: 4 %."""
    unmodelled = tuple(Unmodelled(name=name, count=1, bytes_share=0.01) for name in "abcd")

    assert "Times: none; ranges are 80 % intervals." in sources(ask(UNKNOWN[0]), 0)
    assert (
        "Times: modelled; ranges are 80 % intervals; not modelled: 4.0 % of the bytes of a step (a, b, c)."
    ) in sources(ask(TWENTY[0], work={"unmodelled": unmodelled}), 0)


def test_checked_quotas_are_counted() -> None:
    """Of all offers, those that are refused; rows of a table as well as offers."""
    answer = ask(*TWENTY[:3])
    quota = QuotaCheck(state="too_small", why="no quota", link="https://form")
    offers = [
        replace(one, selected=one.selected._replace(quota=check))
        for one, check in zip(answer.offers, (quota, quota, None), strict=True)
    ]
    checked = replace(answer, options={**answer.options, "quota": True})

    assert "Quotas: checked; too small for 0 offers, which are not recommended." in sources(checked, 0)
    assert "Quotas: checked; too small for 2 offers," in sources(replace(checked, offers=tuple(offers)), 0)


def test_what_a_bill_includes() -> None:
    """With costs, the tax and the rate of another currency; without a missing item no list of them."""
    costs: Any = SimpleNamespace(assumptions={}, providers={}, regions={})
    tax: Any = SimpleNamespace(percent=Decimal(19), name="VAT")
    answer, head = ask(TWENTY[0]), "Included in the bill: boot to shutdown, disk, egress, "
    euro = Currency(code="EUR", per_usd=Decimal("0.860"))

    def told(not_billed: tuple[str, ...] = (), **terms: Any) -> str:
        changed = replace(answer, terms=replace(answer.terms, costs=costs, **terms), not_billed=not_billed)
        return next(line for line in format_explanation(changed, [0]) if line.startswith("Included"))

    assert told() == f"{head}no tax (--breakdown)."
    assert told(("a", "b"), tax=tax) == f"{head}with 19 % VAT (--breakdown). Not included: a, b."
    assert told(currency=euro) == f"{head}no tax (--breakdown). 1 USD = 0.860 EUR."
