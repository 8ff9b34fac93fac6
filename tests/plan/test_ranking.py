"""Ranking: laws over any set of candidates, and what becomes one, by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from factories import FakePredictor, make_accelerator, make_offer, make_selection, make_workload
from gpuplan.offers.rows import Offer
from gpuplan.plan.estimate_workload import estimate_workload
from gpuplan.plan.offer_table import OfferTable
from gpuplan.plan.question import Question
from gpuplan.plan.ranking import (
    Candidate,
    RankedOffers,
    cheapest,
    cheapest_within_s,
    fastest,
    fastest_within_usd,
    pareto,
    rank_offers,
    select_candidates,
)
from hypothesis import given
from hypothesis import strategies as st

numbers = st.floats(min_value=0.001, max_value=1e6)


@st.composite
def candidate_lists(draw: st.DrawFn) -> list[Candidate]:
    """Any list of candidates, with ties."""
    rows = draw(st.lists(st.tuples(numbers | st.sampled_from([1.0, 2.0]), numbers, st.floats(1, 3)), max_size=30))
    return [
        Candidate(key=key, time_s=time_s, cost_usd=usd, late_s=time_s * late, dear_usd=usd * late)
        for key, (time_s, usd, late) in enumerate(rows)
    ]


def test_a_front_by_hand() -> None:
    """Closed form: of (1 h, $9), (2 h, $4), (2 h, $5), (3 h, $4), (4 h, $1) three are not beaten."""
    rows = [(1, 9), (2, 4), (2, 5), (3, 4), (4, 1)]
    candidates = [
        Candidate(key=key, time_s=time, cost_usd=usd, late_s=time, dear_usd=usd)
        for key, (time, usd) in enumerate(rows)
    ]

    assert pareto(candidates) == (0, 1, 4)
    assert (cheapest(candidates), fastest(candidates)) == (4, 0)
    assert cheapest_within_s(candidates, 3) == 1
    assert fastest_within_usd(candidates, 4) == 1


def test_nothing_to_choose_from() -> None:
    """None and an empty front, no error."""
    assert (cheapest([]), fastest([]), cheapest_within_s([], 1), fastest_within_usd([], 1)) == (None,) * 4
    assert pareto([]) == ()


@given(candidates=candidate_lists())
def test_no_member_of_the_front_is_beaten_and_everyone_else_is(candidates: list[Candidate]) -> None:
    """Law: the definition of the Pareto front, both ways."""
    front = set(pareto(candidates))
    for one in candidates:
        better = [
            other
            for other in candidates
            if other.time_s <= one.time_s
            and other.cost_usd <= one.cost_usd
            and (other.time_s, other.cost_usd) != (one.time_s, one.cost_usd)
        ]
        twins = [o for o in candidates if (o.time_s, o.cost_usd) == (one.time_s, one.cost_usd)]
        if one.key in front:
            assert not better
        else:
            assert better or any(twin.key in front for twin in twins)


@given(candidates=candidate_lists())
def test_cheapest_and_fastest_are_the_ends_of_the_front(candidates: list[Candidate]) -> None:
    """Law: the front runs from the fastest to the cheapest."""
    front = pareto(candidates)
    if candidates:
        assert front[0] == fastest(candidates)
        assert front[-1] == cheapest(candidates)


@given(candidates=candidate_lists(), deadline_s=numbers, budget_usd=numbers)
def test_limits_are_kept_even_at_the_upper_end(
    candidates: list[Candidate], deadline_s: float, budget_usd: float
) -> None:
    """Law: what is recommended within a limit is within it, and None means that nothing was."""
    in_time = cheapest_within_s(candidates, deadline_s)
    in_budget = fastest_within_usd(candidates, budget_usd)

    if in_time is None:
        assert all(c.late_s > deadline_s for c in candidates)
    else:
        assert candidates[in_time].late_s <= deadline_s
    if in_budget is None:
        assert all(c.dear_usd > budget_usd for c in candidates)
    else:
        assert candidates[in_budget].dear_usd <= budget_usd


@given(candidates=candidate_lists(), deadline_s=numbers, extra_s=numbers)
def test_more_time_never_costs_more(candidates: list[Candidate], deadline_s: float, extra_s: float) -> None:
    """Law: with a later deadline, the recommended offer costs at most as much."""
    soon = cheapest_within_s(candidates, deadline_s)
    later = cheapest_within_s(candidates, deadline_s + extra_s)
    if soon is not None:
        assert later is not None
        assert candidates[later].cost_usd <= candidates[soon].cost_usd


def rank(*offers: Offer, **work: Any) -> RankedOffers:
    """Rank offers of one accelerator: a second a step of 32 samples, at most one and a half."""
    device = make_accelerator("T4")
    answer = estimate_workload(
        make_workload(**work),
        selection=make_selection(*((one, device) for one in offers)),
        predictor=FakePredictor(),
        question=Question(),
    )
    assert isinstance(answer.offers, OfferTable)
    return rank_offers(answer.offers, "cost")


UNKNOWN = {"samples": None, "epochs": None, "steps": None}


def test_upper_ends_of_a_sample_by_hand() -> None:
    """1/32 s at $3.60 an hour are 1/32,000 $; half as much again at the upper ends."""
    (found,) = select_candidates(rank(make_offer(usd_per_hour=Decimal("3.6")), **UNKNOWN))

    assert (found.time_s, found.late_s) == pytest.approx((1 / 32, 1.5 / 32))
    assert (found.cost_usd, found.dear_usd) == pytest.approx((1 / 32_000, 1.5 / 32_000))


def test_upper_ends_of_a_run_by_hand() -> None:
    """3,600 steps: an hour for $3.60, at most an hour and a half for $5.40."""
    (found,) = select_candidates(rank(make_offer(usd_per_hour=Decimal("3.6"))))

    assert (found.time_s, found.late_s) == pytest.approx((3600, 5400))
    assert (found.cost_usd, found.dear_usd) == pytest.approx((3.6, 5.4))


def test_of_offers_that_differ_in_price_alone_the_cheapest_stands_for_all() -> None:
    """One of each provider, free ones apart; samples of a run of unknown length are all kept."""
    places = [("lambda", "2"), ("lambda", "1"), ("lambda", "0"), ("aws", "3"), ("aws", "0"), ("lambda", "0")]
    offers = [
        make_offer(provider=provider, usd_per_hour=Decimal(usd), region=str(number))
        for number, (provider, usd) in enumerate(places)
    ]
    ranked = rank(*offers)
    kept = [ranked.offers[one.key].offer for one in select_candidates(ranked)]

    assert [(one.provider, one.usd_per_hour, one.region) for one in kept] == [
        ("lambda", 0, "2"), ("aws", 0, "4"), ("lambda", 1, "1"), ("aws", 3, "3"),
    ]  # fmt: skip
    assert len(select_candidates(rank(*offers, **UNKNOWN))) == 6
