"""Break-even analysis: money, the user's time and calendar time by hand, and the crossovers."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from importlib.resources import files
from itertools import pairwise

import pytest
from factories import FakePredictor, make_accelerator, make_offer, make_workload
from gpuplan.errors import NoAnswerError, UsageError
from gpuplan.offers.catalog import Catalog
from gpuplan.offers.notebooks import build_notebook_offers, find_session_limits
from gpuplan.plan.breakeven import Breakeven, compare_alternatives, find_crossovers
from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.device_estimate import with_total_epochs
from gpuplan.plan.estimate import Crossover
from gpuplan.plan.question import EstimateContext, OfferContext, Question, Selection
from gpuplan.plan.timeline import Access, build_access
from gpuplan.workload.model import Workload
from gpuplan.workload.options import WorkloadOptions
from hypothesis import given
from hypothesis import strategies as st

CATALOG = Catalog(files("gpuplan.catalog"))
T4 = make_accelerator("T4")
NOTEBOOK = {one.instance_type: one for one in build_notebook_offers(CATALOG.notebooks)}
BY_HAND = {
    "boot_s": 0.0, "setup_s": 0.0, "dataset_gb": 0.0, "compile_s": 0.0, "idle_tail_s": 0.0, "checkpoint_gb": 0.0,
    "disk_gb": 0.0, "egress_gb": 0.0, "hands_on_min": 6.0, "attention_share": 0.05, "free_hours_a_day": 4.0,
    "checkpoint_every_s": 1800.0,
}  # fmt: skip


weeks = st.none() | st.floats(1, 168)


def build_notebook(name: str) -> OfferContext:
    """Return a notebook of the catalog with its limits."""
    offer = NOTEBOOK[name]
    return OfferContext(offer, T4, "notebook", limits=find_session_limits(CATALOG.notebooks, offer))


def comparison(
    workload: Workload | None = None,
    *,
    against: tuple[str, ...] = ("colab-free", "aws:g4dn.xlarge"),
    runs: int = 1,
    price: str = "0.5",
    hour_value: float = 20.0,
    **assumed: float,
) -> Breakeven:
    """Return the made-up hour on a T4: free and paid Colab, Kaggle at half the time, and AWS at some price."""
    aws = make_offer("T4", provider="aws", instance_type="g4dn.xlarge", usd_per_hour=Decimal(price))
    offers = [
        build_notebook("colab-free-t4"),
        build_notebook("colab-payg-t4"),
        build_notebook("kaggle-free-t4x2"),
        OfferContext(aws, T4),
    ]
    context = EstimateContext(
        workload=workload or make_workload(),
        options=WorkloadOptions(),
        selection=Selection(offers=tuple(offers), catalog_as_of="2026-01-21"),
        predictor=FakePredictor(),
        catalog=CATALOG,  # type: ignore[arg-type]
        terms=CostTerms(costs=CATALOG.costs, overrides={**BY_HAND, **assumed}),
    )
    question = Question(hour_value_usd=hour_value, wait_value_usd=0.0, scaling="weak")
    return compare_alternatives(context, question=question, against=against, runs=runs)


def test_an_hour_on_free_colab_by_hand() -> None:
    """Closed form: 1 h on it; 6 min to start and 3 min to watch are 0.15 h of the user's time, $3 at $20. AWS:
    $0.50 and 6 min, $2.
    """
    result = comparison()
    free, aws = sorted(result.alternatives, key=lambda way: way.money_usd.mid)

    assert free.machine_h.mid == pytest.approx(1.0)
    assert free.offer.own_h == pytest.approx(0.15)
    assert free.total_usd == pytest.approx(3.0)
    assert (aws.money_usd.mid, aws.offer.own_h) == pytest.approx((0.5, 0.1))
    assert aws.total_usd == pytest.approx(2.5)
    assert result.best.name == aws.name


def test_free_is_cheapest_when_time_is_worth_nothing() -> None:
    """Law: at $0 an hour nothing beats $0."""
    result = comparison(hour_value=0.0)

    assert result.best.name == "colab-free"
    assert result.by_epochs == ()


def test_the_crossover_by_hand() -> None:
    """Closed form: 1/36 h an epoch. Free: (0.1 + 0.05 t) h at $10 is 1 + 0.5 t; AWS at $0.20 an hour: 1 + 0.2
    t, so AWS wins from the first epoch on. At $0.60 it is 1 + 0.6 t, so free wins, until 144 epochs fill a
    session of 4 h: the second one costs $1 to start, and 0.1 t is less than that.
    """
    assert comparison(hour_value=10.0, price="0.2").best.name == "aws:g4dn.xlarge"
    assert comparison(hour_value=10.0, price="0.2").by_epochs == ()
    dearer = comparison(hour_value=10.0, price="0.6")  # 0.6 t against 0.5 t: free, until a second session costs $1
    assert dearer.best.name == "colab-free"
    assert dearer.by_epochs is not None
    assert dearer.by_epochs[0] == Crossover(
        at=145, before="colab-free", to="aws:g4dn.xlarge"
    )  # 144 epochs fill 4 h


def test_epochs_of_all_phases_are_scaled_together() -> None:
    """Closed form: 4 and 36 epochs of 100 s cross where one phase of 40 does, at 145; 80 epochs are 8 and 72."""
    phases = make_workload(fit_call=1, further=(make_workload(epochs=4, steps=400, fit_call=0),))
    result = comparison(phases, hour_value=10.0, price="0.6")

    assert result.by_epochs is not None
    assert result.by_epochs[0] == Crossover(at=145, before="colab-free", to="aws:g4dn.xlarge")
    doubled = with_total_epochs(phases, 80)
    assert [(one.epochs, one.steps) for one in doubled.phases] == [(8, 800), (72, 7200)]
    assert [one.epochs for one in with_total_epochs(phases, 7).phases] == [1, 6]
    assert with_total_epochs(phases, 1).total_epochs == 1


def test_paid_units_come_in_bundles() -> None:
    """Closed form: an hour of T4 burns 1.07 units of $0.0999, but the smallest bundle is $9.99."""
    result = comparison(against=("colab-payg-t4",))

    bill = result.best.offer.bill
    assert bill is not None
    assert {line.item: float(line.usd.mid) for line in bill.lines if line.usd.mid} == {
        "training": pytest.approx(0.106893), "unused part of the purchase": pytest.approx(9.99 - 0.106893),
    }  # fmt: skip
    assert result.best.money_usd.mid == pytest.approx(9.99)
    many = comparison(against=("colab-payg-t4",), runs=100)  # 107 units: two bundles
    assert many.best.money_usd.mid == pytest.approx(19.98)


def test_a_plan_that_one_has_costs_only_its_units() -> None:
    """By hand: an hour of T4 on a plan of the setting `notebook_plans` is $0.106893."""
    context = build_notebook("colab-payg-t4")
    terms = CostTerms(costs=CATALOG.costs, overrides=BY_HAND)

    assert build_access(context, terms).pack_nano == 9_990_000_000
    assert build_access(context, replace(terms, notebook_plans=("colab-payg",))).pack_nano == 0


def test_kaggle_waits_for_next_weeks_quota() -> None:
    """Closed form: 1,260 epochs on 2 T4 are 17.5 h (50 steps of 1 s an epoch), three sessions of 8 h; three
    runs are 52.5 h: 30 in the first week, 22.5 in the second, at 8 h a day: two full days and 6.5 h.
    """
    long = make_workload(epochs=1260, steps=126_000)
    result = comparison(long, against=("kaggle-free-t4x2",), runs=3)

    assert result.best.machine_h.mid == pytest.approx(52.5 + 3 * 2 * 0.25)  # two new sessions repeat 15 min each
    assert result.best.offer.sessions == 9
    assert Access(hours_a_day=8.0, hours_a_week=30.0).calendar_hours(52.5) == pytest.approx(168 + 48 + 6.5)


def test_a_smaller_chance_takes_longer() -> None:
    """Law: at a chance of one half, calendar time and attempts double."""
    sure = comparison(against=("colab-free",))
    doubtful = comparison(against=("colab-free",), chance=0.5)

    assert doubtful.best.calendar_h == pytest.approx(2 * sure.best.calendar_h)
    assert doubtful.best.offer.own_h == pytest.approx(sure.best.offer.own_h + 0.1)


@given(
    hours=st.floats(0.01, 1e4),
    more=st.floats(0, 1e3),
    a_day=st.floats(0.5, 24),
    week=st.none() | st.floats(1, 168),
)
def test_more_hours_never_end_sooner(hours: float, more: float, a_day: float, week: float | None) -> None:
    """Law: calendar time grows with machine hours, at any daily hours and quota, and is never shorter."""
    access = Access(hours_a_day=a_day, hours_a_week=week)

    assert access.calendar_hours(hours) >= hours * (1 - 1e-12)
    assert access.calendar_hours(hours + more) >= access.calendar_hours(hours) - 1e-9


@given(at=st.lists(st.integers(2, 99_999), min_size=1, max_size=3, unique=True).map(sorted))
def test_crossovers_are_found_where_they_are(at: list[int]) -> None:
    """Law: crossovers are found exactly, unless two lie within one grid step."""
    found = find_crossovers(lambda n: f"way {sum(n >= one for one in at)}")

    if all(later > 1.13 * earlier + 1 for earlier, later in pairwise(at)):
        assert [turn.at for turn in found] == at
    assert found[-1].to == f"way {len(at)}"


def test_no_run_is_no_question() -> None:
    """One line."""
    with pytest.raises(UsageError, match="--runs must be a whole number of at least 1"):
        comparison(runs=0)


def test_an_unknown_alternative_and_one_that_is_too_small() -> None:
    """A name without offers is a usage error with examples; a model that fits nowhere has no answer."""
    with pytest.raises(UsageError, match="`colb-free` in `--against` matches no offer"):
        comparison(against=("colb-free",))
    huge = make_workload()
    huge = make_workload(memory=replace(huge.memory, parameter_bytes=2**40))
    with pytest.raises(NoAnswerError, match="can run the work"):
        comparison(huge)


def test_the_length_of_the_run_is_needed() -> None:
    """Without it there is nothing to compare, and the flags to add are named."""
    with pytest.raises(UsageError, match="needs the length of the run"):
        comparison(make_workload(samples=None, epochs=None, steps=None))
