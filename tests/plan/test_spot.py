"""Interruptions: closed forms against published values, against simulated runs, and by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from importlib.resources import files
from pathlib import Path

import pytest
from factories import FakePredictor, estimate_workload, make_accelerator, make_offer, make_workload
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.spot import (
    MIN_PREEMPTIONS,
    PreemptionStatistics,
    ZoneTrace,
    find_preemption_statistics,
    load_preemption_data,
)
from gpuplan.plan.preemption import (
    Lifetimes,
    PreemptionForecast,
    RunMoments,
    SegmentedRun,
    SpotTerms,
    checkpoint_interval_s,
    compute_exponential_moments,
    compute_p90_s,
    compute_renewal_moments,
    compute_run_moments,
    split_into_segments,
)
from gpuplan.plan.question import OfferContext, Question, Selection
from hypothesis import given
from hypothesis import strategies as st
from plan.simulate_preemption import draw_lifetimes, simulate
from scipy import stats

HOUR_S = 3600.0
# Pooled zone traces of 2022 (catalog/spot_traces.csv): mean and median life in hours.
WATCHED = {"V100": (3.46, 0.83), "8 x V100": (0.91, 0.33), "K80": (4.11, 1.33), "8 x K80": (1.17, 0.67)}


def run_of(hours: float, mean_life_s: float, *, wait_s: float = 1800.0) -> SegmentedRun:
    """Return a run with 30 s checkpoints at Daly's interval and 5 min restarts."""
    interval_s = checkpoint_interval_s(save_s=30.0, mean_life_s=mean_life_s)
    return split_into_segments(
        work_s=hours * HOUR_S, interval_s=interval_s, save_s=30.0, restart_s=300.0, wait_s=wait_s
    )


@pytest.mark.parametrize(("life_min", "published_min"), [(24 * 60, 117.0), (6 * 60, 57.0), (15, 9.1)])
def test_the_checkpoint_interval_is_dalys(life_min: float, published_min: float) -> None:
    """Daly 2006, captions of figures 3, 4 and 5: 5 min dumps; printed to the digits that are compared."""
    interval_s = checkpoint_interval_s(save_s=300.0, mean_life_s=60.0 * life_min)

    assert interval_s / 60.0 == pytest.approx(published_min, abs=0.5 if published_min > 10 else 0.05)


def test_one_segment_by_hand() -> None:
    """M (exp(s / M) - 1) without restarts and waits: an hour of work in lives of an hour takes e - 1 hours."""
    run = SegmentedRun(count=1, segment_s=HOUR_S, save_s=0.0, restart_s=0.0, wait_s=0.0)

    moments = compute_exponential_moments(run, mean_life_s=HOUR_S)

    assert moments.billed_s / HOUR_S == pytest.approx(math.e - 1.0)
    assert moments.preemptions == pytest.approx(math.e - 1.0)
    # time to an uninterrupted t: variance (exp(2t) - 1 - 2t exp(t)) in units of the mean life
    assert moments.billed_s2 / HOUR_S**2 == pytest.approx(math.e**2 - 1.0 - 2.0 * math.e)


@pytest.mark.parametrize("life_hours", [0.7, 4.0, 48.0])
@pytest.mark.parametrize("hours", [0.5, 6.0, 40.0])
def test_the_closed_form_is_within_two_percent_of_ten_thousand_runs(life_hours: float, hours: float) -> None:
    """Lives without memory: billed time, time on the clock, and their 90th percentiles
    within 5 and 8 %."""
    run = run_of(hours, life_hours * HOUR_S)
    moments = compute_exponential_moments(run, mean_life_s=life_hours * HOUR_S)
    played = simulate(run, Lifetimes(mean_s=life_hours * HOUR_S), runs=10_000, seed=1)

    assert moments.billed_s == pytest.approx(played.billed_s, rel=0.02)
    assert moments.wall_s == pytest.approx(played.wall_s, rel=0.02)
    shared = {"undisturbed_s": run.undisturbed_s, "undisturbed": moments.undisturbed}
    billed_p90_s = compute_p90_s(mean_s=moments.billed_s, variance_s2=moments.billed_s2, **shared)
    wall_p90_s = compute_p90_s(mean_s=moments.wall_s, variance_s2=moments.wall_s2, **shared)
    assert billed_p90_s == pytest.approx(played.billed_p90_s, rel=0.05)
    assert wall_p90_s == pytest.approx(played.wall_p90_s, rel=0.08)


@pytest.mark.parametrize("who", WATCHED)
@pytest.mark.parametrize("hours", [0.5, 6.0, 40.0])
def test_heavy_tails_follow_the_recursion_and_not_the_closed_form(who: str, hours: float) -> None:
    """Watched lives: the recursion is within 1 % of 10,000 runs billed and 3 % on the clock.

    The memoryless form of the same mean life is up to a third too low on the clock for short runs: it does
    not know that most lives end early.
    """
    mean_h, median_h = WATCHED[who]
    law = Lifetimes(mean_s=mean_h * HOUR_S, median_s=median_h * HOUR_S)
    run = run_of(hours, law.mean_s)
    played = simulate(run, law, runs=10_000, seed=2)
    moments = compute_run_moments(run, law)

    assert moments.billed_s == pytest.approx(played.billed_s, rel=0.01)
    assert moments.wall_s == pytest.approx(played.wall_s, rel=0.03)
    blind = compute_exponential_moments(run, mean_life_s=law.mean_s)
    assert -0.35 < blind.wall_s / played.wall_s - 1.0 < 0.02
    if hours < 1 and "V100" in who:
        assert blind.wall_s < 0.8 * played.wall_s


def test_the_recursion_and_the_closed_form_agree_where_both_hold() -> None:
    """Lives without memory put through the recursion give the closed form's moments."""
    run = run_of(3.0, 2.0 * HOUR_S)
    closed, recursed = (
        compute_exponential_moments(run, mean_life_s=2.0 * HOUR_S),
        compute_renewal_moments(run, Lifetimes(mean_s=2.0 * HOUR_S)),
    )

    for name in ("billed_s", "billed_s2", "wall_s", "wall_s2", "preemptions", "undisturbed"):
        assert getattr(recursed, name) == pytest.approx(getattr(closed, name), rel=1e-6), name


def test_a_rule_of_24_hours_ends_every_life() -> None:
    """A machine that nothing else takes back: 60 h of work need three of them, two restarts and lost
    segments.
    """
    law = Lifetimes(mean_s=1e6 * HOUR_S, longest_s=24.0 * HOUR_S)
    run = split_into_segments(work_s=60 * HOUR_S, interval_s=HOUR_S, save_s=30.0, restart_s=300.0, wait_s=0.0)

    moments = compute_run_moments(run, law)

    assert moments.preemptions == pytest.approx(2.0, abs=0.01)
    assert moments.billed_s == pytest.approx(simulate(run, law, runs=50, seed=3).billed_s, rel=1e-3)


@pytest.mark.parametrize(
    "law",
    [
        Lifetimes(mean_s=5.0),
        Lifetimes(mean_s=5.0, median_s=2.0),
        Lifetimes(mean_s=5.0, median_s=2.0, longest_s=4.0),
        Lifetimes(mean_s=5.0, longest_s=4.0),
    ],
)
def test_partial_moments_are_those_of_the_draws(law: Lifetimes) -> None:
    """A million draws: share, mean and square below 3 and below 6, within 1 %."""
    import numpy as np

    lives = draw_lifetimes(law, np.random.default_rng(4), 1_000_000)
    for time_s in (3.0, 6.0):
        below = np.where(lives < time_s, lives, 0.0)
        drawn = ((lives < time_s).mean(), below.mean(), (below**2).mean())
        assert law.partial_moments(time_s) == pytest.approx(drawn, rel=0.01)


@given(work_h=st.floats(0.1, 200.0), more=st.floats(1.0, 3.0), life_h=st.floats(0.5, 100.0))
def test_more_work_is_never_billed_less(work_h: float, more: float, life_h: float) -> None:
    """Law: neither a further segment nor a longer one makes a run shorter."""
    shorter, longer = (
        compute_exponential_moments(run_of(hours, life_h * HOUR_S), mean_life_s=life_h * HOUR_S)
        for hours in (work_h, work_h * more)
    )
    assert longer.billed_s >= shorter.billed_s * (1.0 - 1e-9)


@given(life_h=st.floats(0.5, 50.0), longer=st.floats(1.0, 10.0))
def test_longer_lives_never_cost_more(life_h: float, longer: float) -> None:
    """Law: with the same checkpoints, a machine that lives longer never makes the run longer."""
    run = run_of(10.0, 4.0 * HOUR_S)
    short, long = (compute_exponential_moments(run, mean_life_s=h * HOUR_S) for h in (life_h, life_h * longer))
    assert long.wall_s <= short.wall_s * (1.0 + 1e-9)
    assert long.billed_s >= run.undisturbed_s * (1.0 - 1e-9)


# --- what is known of which machine --------------------------------------------------------------------


def test_the_basis_of_a_life_is_named() -> None:
    """Watched for the V100 of AWS, a bucket for its T4, an assumption for Google's."""
    facts = load_preemption_data()
    v100 = find_preemption_statistics(make_offer("V100-16GB", provider="aws", instance_type="p3.2xlarge"), facts)
    t4 = find_preemption_statistics(
        make_offer("T4", provider="aws", instance_type="g4dn.2xlarge", region="af-south-1"), facts
    )
    google = find_preemption_statistics(
        make_offer("T4", provider="gcp", instance_type="n1-standard-8-t4x1"), facts
    )

    assert (v100.basis, t4.basis, google.basis) == ("watched", "provider's bucket", "assumed")
    # 736 preemptions in 2548.5 up hours of six zone traces (spot_traces.csv, worked out apart from the program)
    assert v100.up_hours == pytest.approx(3.4627, abs=1e-3)
    assert (t4.up_hours, t4.notice_s, google.notice_s) == (12.0, 120.0, 30.0)


def test_what_was_watched_of_one_tpu_generation_says_nothing_of_another() -> None:
    """Zone traces of one chip hold for its memory sizes, and for no other chip."""
    facts = load_preemption_data()
    trace = next(trace for trace in facts.traces if trace.preemptions >= MIN_PREEMPTIONS)
    traces = tuple(replace(trace, provider="gcp", accelerator=name) for name in ("TPU-v3", "A100-40GB"))
    factories = replace(facts, traces=traces)
    basis = {
        name: find_preemption_statistics(
            make_offer(name, provider="gcp", instance_type="made up"), factories
        ).basis
        for name in ("TPU-v3", "TPU-v5e", "A100-80GB")
    }

    assert basis == {"TPU-v3": "watched", "TPU-v5e": "assumed", "A100-80GB": "watched"}


def test_every_spot_offer_of_the_catalog_has_a_life_and_a_source() -> None:
    """No offer at spot prices is left without an answer, and none without saying where it comes from."""
    facts = load_preemption_data()
    hazards = [
        find_preemption_statistics(offer, facts) for offer in load_catalog().offers if offer.purchase == "spot"
    ]

    assert len(hazards) > 500
    assert all(hazard.up_hours > 0 and hazard.source for hazard in hazards)
    assert {hazard.basis for hazard in hazards} == {"watched", "provider's bucket", "assumed"}


def zone(preemptions: int, *, devices: int = 4, days: float = 10.0, availability: float = 0.5,
         median: float | None = 1.0) -> ZoneTrace:  # fmt: skip
    """Return what was watched of L4 machines in a zone of Google's."""
    return ZoneTrace(
        provider="gcp", zone="z", accelerator="L4", devices=devices, days=days, availability=availability,
        preemptions=preemptions, median_up_hours=median, source="traces-2022",
    )  # fmt: skip


def watch(*traces: ZoneTrace, devices: float = 2.0) -> PreemptionStatistics:
    """Return what zones say of a machine with some devices."""
    facts = replace(load_preemption_data(), traces=traces)
    return find_preemption_statistics(make_offer("L4", provider="gcp", devices=devices), facts)


def test_zones_are_pooled_by_their_preemptions() -> None:
    """By hand: 120 + 96 h up and 120 + 24 h down between 100 preemptions.

    The median of sixty of 1 h and forty of 2 h is 1 h, and of fifty each the longer one.
    """
    found = watch(zone(40, median=2.0), zone(60, days=5.0, availability=0.8))
    assert (found.up_hours, found.down_hours) == pytest.approx((2.16, 1.44))
    assert (found.basis, found.median_up_hours) == ("watched", 1.0)
    assert found.source.startswith("2 zone traces of 4 x L4 (100 preemptions), ")
    assert watch(zone(50, median=2.0), zone(50)).median_up_hours == 2.0
    assert watch(zone(90, median=None), zone(30, median=3.0)).median_up_hours == 3.0


def test_the_nearest_size_speaks_for_others_if_it_was_preempted_often_enough() -> None:
    """Two devices are as far from one as from four, by their ratio, and the larger is taken; 29 are too few."""
    one, four = zone(30, devices=1, days=1.0), zone(30)
    up_hours = {devices: watch(one, four, devices=devices).up_hours for devices in (1.0, 2.0, 8.0)}
    assert up_hours == {1.0: 0.4, 2.0: 4.0, 8.0: 4.0}
    assert watch(one, zone(29)).up_hours == 0.4
    assert watch(zone(29)).basis == "assumed"


def test_a_bucket_has_the_latest_date_of_its_table(tmp_path: Path) -> None:
    """The Spot Advisor's rows are dated one by one; a folder without a table of its own has the packaged ones."""
    assert load_preemption_data(tmp_path) is load_preemption_data()
    for name in ("spot.toml", "spot_interruption.csv", "spot_traces.csv"):
        text = (files("gpuplan.catalog") / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text if name == "spot.toml" else text.partition("\n")[0] + "\n", "utf-8")
    assert load_preemption_data(tmp_path).bucket_as_of == ""
    with (tmp_path / "spot_interruption.csv").open("a", encoding="utf-8") as table:
        for day in ("2025-06-28", "2026-02-01", "2025-12-31"):
            table.write(f"aws,r,g5.{day[-2:]}xlarge,1,{day},spot-advisor\n")

    facts = load_preemption_data(tmp_path)
    offer = make_offer("A10G", provider="aws", region="r", instance_type="g5.28xlarge")
    found = find_preemption_statistics(offer, facts)
    assert facts.bucket_as_of == "2026-02-01"
    assert (found.up_hours, found.source) == (34.0, "Spot Advisor 2026-02-01: 5-10% interrupted per month")


# --- in an estimate ------------------------------------------------------------------------------------

T4 = make_accelerator("T4")


def both(spot_usd: str, **terms: float) -> list[object]:
    """Return the spot and the on-demand offer of a machine at a dollar an hour, a run of an hour on it."""
    offers = (make_offer("T4"), make_offer("T4", purchase="spot", usd_per_hour=Decimal(spot_usd)))
    selection = Selection(
        offers=tuple(OfferContext(offer, T4) for offer in offers),
        catalog_as_of="2026-01-21",
        spot=load_preemption_data(),
    )
    answer = estimate_workload(
        make_workload(), selection=selection, predictor=FakePredictor(), question=Question(spot=SpotTerms(**terms))
    )
    return sorted(answer.offers, key=lambda one: one.offer.purchase)


def test_interruptions_are_lines_of_the_bill() -> None:
    """An hour at $0.40 in lives of 2 h: compute, checkpoints and rework add up to the expected billed time."""
    _, spot = both("0.4", up_hours=2.0, interval_s=1200.0, save_s=30.0, restart_s=300.0)

    items = {line.item: line.usd.mid for line in spot.bill.lines}
    life_s, segment_s = 7200.0, 1230.0
    billed_s = 3 * life_s * math.exp(300 / life_s) * math.expm1(segment_s / life_s)  # Daly, eq. 20
    assert items["training"] == Decimal("0.4")
    assert float(items["checkpoints"]) == pytest.approx(0.4 * 90 / 3600)
    assert float(items["rework and restarts"]) == pytest.approx(0.4 * (billed_s - 3 * segment_s) / 3600)
    assert spot.bill.total.mid == sum(items.values())
    assert spot.preemption_forecast.moments.preemptions == pytest.approx(billed_s / life_s)
    costs = spot.preemption_forecast.to_json(0.4, saves_share=None)["cost_usd"]
    assert float(costs["expected"]) == pytest.approx(0.4 * billed_s / 3600)


def test_parts_of_a_run_on_spot_are_shares_of_its_work() -> None:
    """By hand: 1000 s of work in 4 segments of 260 s with 10 s checkpoints; 1240 s billed, 1740 s on the clock."""
    forecast = PreemptionForecast(
        hazard=PreemptionStatistics(up_hours=2.0, down_hours=0.5, basis="assumed", source="made up"),
        run=SegmentedRun(count=4, segment_s=260.0, save_s=10.0, restart_s=300.0, wait_s=1800.0),
        moments=RunMoments(
            billed_s=1240.0, billed_s2=0.0, wall_s=1740.0, wall_s2=0.0, preemptions=0.2, undisturbed=0.8
        ),
        work_s=1000.0,
    )

    assert forecast.interval_s == 250.0
    assert forecast.checkpoint_share == pytest.approx(0.04)
    assert forecast.rework_share == pytest.approx(0.2)  # 1240 - 4 x 260
    assert forecast.waiting_share == pytest.approx(0.5)


def test_a_run_on_spot_waits_for_each_next_machine() -> None:
    """An hour of work with waits of half an hour: on the clock it takes a wait for every preemption longer."""
    _, spot = both("0.4", up_hours=2.0, interval_s=1200.0, save_s=30.0, restart_s=300.0)

    forecast, run = spot.preemption_forecast, spot.run_time_s
    wait_s = forecast.moments.preemptions * forecast.hazard.down_hours * HOUR_S
    assert wait_s > 60.0
    assert run.mid == pytest.approx(forecast.moments.billed_s + wait_s)


def test_spot_loses_here_is_said() -> None:
    """At 90 % of the price and lives of half an hour, spot costs more; at 30 % it does not."""
    _, dear = both("0.9", up_hours=0.5)
    _, cheap = both("0.3", up_hours=0.5)

    assert any("spot does not pay here" in note for note in dear.notes)
    assert cheap.to_json(breakdown=True)["spot"]["loses_to_on_demand"] is False
    assert dear.to_json(breakdown=True)["spot"]["loses_to_on_demand"] is True
    hours = cheap.to_json(breakdown=True)["spot"]["hours"]
    assert hours["p90"] >= hours["expected"]


def test_on_demand_is_never_interrupted() -> None:
    """No preemption_forecast, no lines, null in the JSON."""
    on_demand, _ = both("0.4")

    assert on_demand.preemption_forecast is None
    assert on_demand.to_json(breakdown=True)["spot"] is None
    assert [line.item for line in on_demand.bill.lines] == ["training"]


def test_a_run_that_can_never_end_has_no_outlook() -> None:
    """Six-hour segments in lives of six minutes: no number, instead of a huge one."""
    _, spot = both("0.4", up_hours=0.1, interval_s=6 * HOUR_S, restart_s=600.0)

    assert spot.preemption_forecast is None


def test_machines_that_end_before_they_restart_never_finish() -> None:
    """Every life ends within 600 s, and a restart with the first of two segments takes 700 s: infinite."""
    run = SegmentedRun(count=2, segment_s=400.0, restart_s=300.0, save_s=10.0, wait_s=60.0)
    found = compute_renewal_moments(run, Lifetimes(mean_s=200.0, longest_s=600.0))

    assert (found.billed_s, found.wall_s, found.preemptions) == (math.inf,) * 3


def test_terms_must_be_positive() -> None:
    """The assumption is named."""
    with pytest.raises(UsageError, match="--assume spot_life_h=0"):
        SpotTerms(up_hours=0.0)


def test_only_a_median_far_below_the_mean_is_a_heavy_tail() -> None:
    """The median of an exponential life is 0.69 of its mean."""
    assert Lifetimes(mean_s=10.0, median_s=6.9).sigma == 0.0
    assert Lifetimes(mean_s=10.0, median_s=3.0).sigma == pytest.approx(math.sqrt(2 * math.log(10 / 3)))


# --- distributions of lives, against SciPy -------------------------------------------------------------


@pytest.mark.parametrize("life_h", [0.5, 3.0, 40.0])
def test_distributions_of_lives_are_those_of_scipy(life_h: float) -> None:
    """`scipy.stats` 1.11: distribution functions, and partial moments by its quadrature, to nine digits.

    SciPy is the reference and not the implementation: importing `scipy.stats` takes longer than an estimate.
    """
    mean, median, time = 1.9 * HOUR_S, HOUR_S, life_h * HOUR_S
    heavy = Lifetimes(mean_s=mean, median_s=median)
    pairs = [
        (Lifetimes(mean_s=mean), stats.expon(scale=mean)),
        (heavy, stats.lognorm(s=heavy.sigma, scale=median)),
    ]
    for ours, theirs in pairs:
        square = theirs.expect(lambda life: (life / HOUR_S) ** 2, lb=0.0, ub=time, limit=200)
        reference = (theirs.cdf(time), theirs.expect(lb=0.0, ub=time, limit=200), square * HOUR_S**2)
        assert ours.partial_moments(time) == pytest.approx(reference, rel=1e-9)
