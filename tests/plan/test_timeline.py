"""Timeline and bill of a run: closed forms by hand, and laws for every run and all cost terms."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal

import pytest
from factories import (
    FakePredictor,
    estimate_workload,
    find_phase_s,
    make_accelerator,
    make_limits,
    make_offer,
    make_workload,
)
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.bill import Bill, CostBasis, FeeCalculator
from gpuplan.plan.cost_terms import CostTerms, Currency, parse_overrides
from gpuplan.plan.offer_estimate import OfferEstimate
from gpuplan.plan.question import OfferContext, Question, Selection
from gpuplan.plan.timeline import REWORK, TRAINING, TimelineBuilder
from gpuplan.settings_entries import Discount, Tax
from gpuplan.workload.model import Workload
from hypothesis import given, settings
from hypothesis import strategies as st

COSTS = load_catalog().costs
T4 = make_accelerator("T4")
prices = st.decimals(min_value="0.01", max_value="100", places=4)
amounts = st.just(0.0) | st.floats(min_value=0.01, max_value=1e5)
counts = st.integers(1, 500)
sessions = st.none() | st.floats(1800, 86_400)


def priced(
    workload: Workload | None = None,
    *,
    terms: CostTerms,
    place: str = "vm",
    session_s: float | None = None,
    **offer: object,
) -> OfferEstimate:
    """Return the made-up workload (3,600 steps of 1 s) on one offer."""
    limits = None if session_s is None else make_limits(session_hours_max=session_s / 3600)
    selected = OfferContext(make_offer("T4", **offer), T4, place, limits=limits)  # type: ignore[arg-type]
    estimate = estimate_workload(
        workload or make_workload(),
        selection=Selection(offers=(selected,), catalog_as_of="2026-01-21"),
        predictor=FakePredictor(),
        question=Question(),
        terms=terms,
    )
    return estimate.offers[0]


def terms_with(**overrides: float) -> CostTerms:
    """Return the packaged terms with every assumption of a VM set by hand."""
    by_hand = {
        "boot_s": 60.0, "setup_s": 120.0, "dataset_gb": 20.0, "download_mb_per_s": 100.0, "compile_s": 40.0,
        "validation_samples": 320.0, "checkpoint_gb": 1.0, "checkpoint_mb_per_s": 100.0, "disk_gb": 73.0,
        "checkpoint_every_s": 1800.0, "idle_tail_s": 30.0, "egress_gb": 2.0, **overrides,
    }  # fmt: skip
    return CostTerms(costs=COSTS, overrides=by_hand)


def test_every_part_of_a_run_by_hand() -> None:
    """Closed form: 60 s boot, 120 s image, 20 GB at 100 MB/s, 40 s compile, 3,600 steps of 1 s, 10 validation
    steps an epoch at a third of a step over 36 epochs, 3 checkpoints of 10 s, 30 s tail: 4,200 s. At $0.90 an
    hour that is $1.05; on top are 73 GB at $0.08 a GB and month of 730 h for 4,200 s, and 2 GB out at $0.09 (AWS).
    """
    one = priced(terms=terms_with(), provider="aws", usd_per_hour=Decimal("0.9"))
    assert one.bill is not None
    assert one.run_time_s is not None
    times = {line.item: line.time_s.mid for line in one.bill.lines if line.time_s}

    assert times == pytest.approx(
        {
            "boot": 60.0,
            "driver and image": 120.0,
            "data download": 200.0,
            "compile": 40.0,
            "training": 3600.0,
            "validation": 120.0,
            "checkpoints": 30.0,
            "idle tail": 30.0,
        }
    )
    assert one.run_time_s.mid == pytest.approx(4200.0)
    by_item = {line.item: float(line.usd.mid) for line in one.bill.lines}
    assert by_item["training"] == pytest.approx(0.9)
    assert by_item["disk"] == pytest.approx(73 * 0.08 / 730 * 4200 / 3600)
    assert by_item["egress"] == pytest.approx(0.18)
    assert float(one.bill.total.mid) == pytest.approx(1.05 + 73 * 0.08 / 730 * 4200 / 3600 + 0.18)


def test_a_disk_holds_the_image_and_the_data_that_are_stated() -> None:
    """By hand: the image has its own bounds, so has the price of the disk, end by end, with 20 GB."""
    terms, workload = CostTerms(costs=COSTS, overrides={"dataset_gb": 20.0}), make_workload()
    fees = FeeCalculator(workload, terms).compute(make_offer("T4", provider="aws"))
    image = terms.bounds("image_gb", "any")
    assert image is not None
    assert image[0] < image[1] < image[2]

    billed = {
        provider: FeeCalculator(workload, terms).compute(make_offer("T4", provider=provider))
        for provider in ("aws", "lambda")
    }
    assert [[r for r in fees.reasons if "minimum" in r] for fees in billed.values()] == [
        ["minimum billing of 60 s"],
        [],
    ]
    sizes_gb = [size + 20.0 for size in image]
    assert fees.disk_usd_per_hour == pytest.approx([0.08 / 730 * size for size in sizes_gb])


def test_discount_before_tax_by_hand() -> None:
    """Closed form: 10 % off the machine's $1.05, nothing off disk and egress, then 19 % on what is left."""
    aws = {"provider": "aws", "usd_per_hour": Decimal("0.9")}
    plain = priced(terms=terms_with(), **aws).bill
    base = terms_with()
    terms = CostTerms(
        costs=COSTS,
        overrides=base.overrides,
        tax=Tax(name="VAT", percent=Decimal(19)),
        today=date(2026, 1, 1),
        discounts=(Discount(provider="aws", percent=Decimal(10)), Discount(provider="gcp", percent=Decimal(50))),
    )
    bill = priced(terms=terms, **aws).bill
    assert plain is not None
    assert bill is not None

    assert float(bill.total.mid) == pytest.approx(1.19 * (float(plain.total.mid) - 0.105))
    assert [line.item for line in bill.lines][-2:] == ["discount", "tax"]


def test_nothing_is_taxed_or_discounted_at_home() -> None:
    """The user's own machine has no boot, disk or tax costs; compilation and checkpoints still take time."""
    terms = CostTerms(costs=COSTS, tax=Tax(percent=Decimal(19)))
    one = priced(terms=terms, place="local", provider="local", usd_per_hour=Decimal(0))
    assert one.bill is not None

    assert one.bill.total.high == 0
    assert {line.item for line in one.bill.lines} == {"compile", "training", "checkpoints"}


def test_what_a_provider_does_not_tell_is_named() -> None:
    """Vast's hosts price disk and traffic themselves: no line, and both named as unknown."""
    one = priced(terms=CostTerms(costs=COSTS), place="marketplace", provider="vast")
    assert one.bill is not None

    assert one.unbilled == ("disk", "egress")
    assert not {"disk", "egress"} & {line.item for line in one.bill.lines}


def test_sessions_start_anew_by_hand() -> None:
    """Closed form: 150 s of preparation, 10 h of work in sessions of 4 h: 36,000 / 14,250 are 3 sessions; two of
    them prepare again and repeat half of the 1,800 s between checkpoints.
    """
    terms = CostTerms(costs=COSTS, overrides={
        "boot_s": 10.0, "setup_s": 20.0, "dataset_gb": 10.0, "download_mb_per_s": 100.0, "compile_s": 20.0,
        "checkpoint_gb": 0.0, "checkpoint_every_s": 1800.0, "idle_tail_s": 0.0,
    })  # fmt: skip
    long = make_workload(epochs=360, steps=36_000)
    one = priced(long, terms=terms, place="notebook", session_s=4 * 3600.0, provider="colab")
    assert one.timeline is not None

    assert one.sessions == 3
    assert find_phase_s(one.timeline, REWORK).mid == pytest.approx(2 * (150 + 900))


def test_data_of_unknown_size_are_in_no_time_and_no_cost() -> None:
    """A phase and a larger disk with `dataset_gb`; without it neither."""
    unknown, known = (
        priced(terms=CostTerms(costs=COSTS, overrides=given), provider="aws")
        for given in ({}, {"dataset_gb": 100.0})
    )
    assert unknown.bill is not None
    assert known.bill is not None

    assert "data download" not in {line.item for line in unknown.bill.lines}
    assert "data download" in {line.item for line in known.bill.lines}
    disks = [
        next(line.usd.mid for line in one.bill.lines if line.item == "disk")
        for one in (unknown, known)
        if one.bill
    ]
    assert disks[0] < disks[1]


def test_validation_costs_the_forward_share() -> None:
    """Law: the forward pass of a step without a table of operations is a third; no samples, no validation."""
    scheduler = TimelineBuilder(make_workload(), CostTerms(costs=COSTS))

    assert scheduler.forward_shares == (pytest.approx(1 / 3),)
    assert "validation" not in {line.item for line in priced(terms=CostTerms(costs=COSTS)).bill.lines}  # type: ignore[union-attr]


def test_every_line_says_what_it_rests_on() -> None:
    """No amount without a reason, and a given value says that it was given."""
    one = priced(terms=CostTerms(costs=COSTS, overrides={"boot_s": 90.0}), provider="aws")
    assert one.bill is not None

    reasons = {line.item: line.because for line in one.bill.lines}
    assert all(reasons.values())
    assert reasons["boot"] == "boot_s = 90, as given"
    assert "assumed" in reasons["idle tail"]


any_terms = st.builds(
    lambda overrides, tax, percent: CostTerms(
        costs=COSTS,
        overrides=overrides,
        tax=None if tax is None else Tax(percent=tax),
        today=date(2026, 1, 1),
        discounts=() if percent is None else (Discount(percent=percent),),
    ),
    st.dictionaries(
        st.sampled_from(sorted({key for key, _ in COSTS.assumptions} | {"dataset_gb", "compile_s", "disk_gb"})),
        amounts,
        max_size=6,
    ),
    st.none() | st.decimals(min_value=0, max_value=50, places=2),
    st.none() | st.decimals(min_value="0.01", max_value="99", places=2),
)
anywhere = st.sampled_from([
    ("aws", "vm"), ("gcp", "tpu"), ("azure", "vm"), ("vast", "marketplace"), ("colab", "notebook"),
    ("local", "local"),
])  # fmt: skip


@settings(deadline=None)
@given(terms=any_terms, where=anywhere, price=prices, session_s=sessions, epochs=st.integers(1, 500))
def test_every_bill_adds_up(
    terms: CostTerms, where: tuple[str, str], price: Decimal, session_s: float | None, epochs: int
) -> None:
    """Law: at all three bounds, the lines are the total, to the nano-dollar; the bounds are in order."""
    workload = make_workload(epochs=epochs, steps=100 * epochs)
    one = priced(workload, terms=terms, place=where[1], session_s=session_s, provider=where[0], usd_per_hour=price)
    bill, run = one.bill, one.run_time_s
    assert bill is not None
    assert run is not None

    for end in ("low", "mid", "high"):
        assert sum(getattr(line.usd, end) for line in bill.lines) == getattr(bill.total, end)
    assert 0 <= bill.total.low <= bill.total.mid <= bill.total.high
    assert 0 < run.low <= run.mid <= run.high


@settings(deadline=None)
@given(terms=any_terms, where=anywhere, price=prices, session_s=sessions, runs=st.tuples(counts, counts))
def test_more_epochs_are_never_cheaper_or_sooner(
    terms: CostTerms, where: tuple[str, str], price: Decimal, session_s: float | None, runs: tuple[int, int]
) -> None:
    """Law: at every bound; minimum fees, sessions and checkpoints included. Steps come from the epochs."""
    few, many = (
        priced(
            make_workload(epochs=n, steps=None),
            terms=terms,
            place=where[1],
            session_s=session_s,
            provider=where[0],
            usd_per_hour=price,
        )
        for n in sorted(runs)
    )
    assert few.bill is not None
    assert many.bill is not None

    for end in ("low", "mid", "high"):
        assert getattr(few.bill.total, end) <= getattr(many.bill.total, end)
        assert getattr(few.run_time_s, end) <= getattr(many.run_time_s, end)


@settings(deadline=None)
@given(terms=any_terms, where=anywhere, price=prices, dearer=st.decimals("0.0001", "50", places=4))
def test_a_dearer_price_never_ranks_better(
    terms: CostTerms, where: tuple[str, str], price: Decimal, dearer: Decimal
) -> None:
    """Law: of two offers that differ only in price, the more expensive one is never first or recommended."""
    offers = [
        OfferContext(make_offer("T4", provider=where[0], usd_per_hour=usd, region=region), T4, where[1])  # type: ignore[arg-type]
        for usd, region in ((price + dearer, "a"), (price, "b"))
    ]
    estimate = estimate_workload(
        make_workload(),
        selection=Selection(offers=tuple(offers), catalog_as_of="2026-01-21"),
        predictor=FakePredictor(),
        question=Question(),
        terms=terms,
    )

    first, second = (one.offer.usd_per_hour for one in estimate.offers)
    assert first is not None
    assert second is not None
    assert first < second
    assert estimate.recommendation.cheapest == 0


@given(usd=st.decimals(min_value="-1e6", max_value="1e9", places=9), rate=st.decimals("0.0001", "20000", places=6))
def test_any_currency_round_trips(usd: Decimal, rate: Decimal) -> None:
    """Law: dollars to a currency and back are the same dollars, to the nano-dollar."""
    currency = Currency(code="EUR", per_usd=rate)

    assert (currency.of_usd(usd) / currency.per_usd).quantize(Decimal("1e-9")) == usd


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("boot_s", "is not `key=value`", "boot_s, "),
        ("bot_s=3", "unknown assumption `bot_s`", "did you mean `boot_s`"),
        ("boot_s=soon", re.escape("`soon` is not a number from 0 to 1e+12"), "boot_s=90"),
        ("boot_s=-1", re.escape("`-1` is not a number from 0 to 1e+12"), "boot_s=90"),
        ("notebook_hours_a_day=25", "a day has 24", "notebook_hours_a_day=8"),
        ("boot_s=inf", re.escape("`inf` is not a number from 0 to 1e+12"), "boot_s=90"),
    ],
)
def test_bad_assumptions(text: str, message: str, hint: str) -> None:
    """One line on what is wrong, one on the way out."""
    with pytest.raises(UsageError, match=message) as caught:
        parse_overrides([text], COSTS)

    assert hint in (caught.value.hint or "")


def test_the_training_line_takes_the_rounding() -> None:
    """Law: a price of a third of a cent divides into no whole nano-dollars, and the sum is still exact."""
    fees = FeeCalculator(make_workload(), CostTerms(costs=COSTS)).compute(make_offer("T4", provider="aws"))
    timeline = TimelineBuilder(make_workload(), CostTerms(costs=COSTS)).build(
        priced(terms=CostTerms(costs=COSTS)).device_estimate, place="vm"
    )
    assert timeline is not None
    bill = Bill(CostBasis(timeline, fees), usd_per_hour=Decimal("0.003333333"))

    assert sum(line.usd.mid for line in bill.lines) == bill.total.mid
    assert Bill(CostBasis(timeline), usd_per_hour=Decimal(0)).total.high == 0
    assert {line.item for line in bill.lines} >= {TRAINING, "disk", "boot"}
