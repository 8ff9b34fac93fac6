"""The decision of what to take; times and dollars are computed by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from factories import FakePredictor, estimate_workload, make_accelerator, make_offer, make_selection, make_workload
from gpuplan.errors import UsageError
from gpuplan.offers.refresh.quotas import QuotaCheck
from gpuplan.offers.rows import AvailabilityRule, Offer
from gpuplan.plan.estimate import Estimate, explain_no_answer
from gpuplan.plan.offer_estimate import OfferEstimate
from gpuplan.plan.question import Filters, Question
from gpuplan.plan.ranking import compute_total_usd

SLOW, USUAL, QUICK = (make_accelerator(name, tflop_per_s=rate) for name, rate in (("S", 0.5), ("U", 1), ("Q", 4)))
BY_NAME = {one.name: one for one in (SLOW, USUAL, QUICK)}  # 3,600 steps: two hours, one hour, a quarter


def offer(name: str, usd: str, **changes: Any) -> Offer:
    """Return an offer of an accelerator at a price."""
    return make_offer(name, instance_type=f"{name}-{usd}", usd_per_hour=Decimal(usd), **changes)


def ask(*offers: Offer, **asked: Any) -> Estimate:
    """Estimate the run of 3,600 steps on some offers."""
    return estimate_workload(
        make_workload(),
        selection=make_selection(*((one, BY_NAME[one.accelerator]) for one in offers)),
        predictor=FakePredictor(),
        question=Question(**asked),
    )


def named(estimate: Estimate, role: str) -> str | None:
    """Return the instance type of a role."""
    index = getattr(estimate.decision, role)
    return None if index is None else estimate.offers[index].offer.instance_type


FREE, CHEAP, DEAR = offer("U", "0"), offer("S", "0.5"), offer("Q", "8")


def test_the_least_total_is_taken() -> None:
    """By hand, without hands-on time: free and an hour, $1 and two hours, $2 and a quarter of an hour.

    An hour saved costs $2.67: it is bought where waiting costs more; at 0 and 0 the least money wins.
    """
    for wait_value, taken in ((0.0, "U-0"), (2.6, "U-0"), (2.7, "Q-8")):
        answer = ask(FREE, CHEAP, DEAR, wait_value_usd=wait_value)
        assert named(answer, "recommended") == taken
        assert answer.offers[answer.decision.recommended].total_usd == pytest.approx(
            wait_value if taken == "U-0" else 2.0 + wait_value / 4
        )


def test_a_slow_free_offer_is_the_second_line() -> None:
    """By hand: two hours at $5 each are more than $1 and an hour, but free."""
    answer = ask(offer("S", "0"), offer("U", "1"), wait_value_usd=5.0)

    assert answer.decision.lines == (
        "Take U on Lambda: $1.00 (0.8–1.5), 60 min (48–90).",
        "Free: S on Lambda, 2.0 h.",
    )


def test_alternatives_are_clearly_cheaper_or_faster() -> None:
    """By hand: $2.70 for an hour; $1.40 less for twice the time; $3.80 more for 45 min less, $5.07 an hour saved.

    What saves less than 20 % or 10 minutes is not told, nor an hour saved for more than $100.
    """
    usual = offer("U", "2.8")
    answer = ask(
        usual, offer("S", "0.65"), offer("Q", "26"), offer("U", "2.7", purchase="spot"), wait_value_usd=2.0
    )
    assert [named(answer, role) for role in ("recommended", "cheaper", "faster")] == ["U-2.7", "S-0.65", "Q-26"]
    assert answer.decision.lines[1] == (
        "Cheaper: S on Lambda, $1.30, 2.0 h. Faster: Q on Lambda, $6.50, 15 min ($5.07 an hour saved)."
    )
    plain = ask(usual, offer("U", "3.1"), offer("S", "1.3"), offer("Q", "400"), wait_value_usd=2.0)
    assert plain.decision.roles() == {plain.decision.recommended: ("recommended",)}


def test_at_equal_totals_the_fastest_is_taken() -> None:
    """Of two that cost nothing, and nothing is valued, the faster one."""
    assert named(ask(offer("S", "0"), FREE, hour_value_usd=0.0, wait_value_usd=0.0), "recommended") == "U-0"


def test_values_that_decide_are_named() -> None:
    """At half the value of an hour of waiting ($1.50) the free one would be taken; at $100 nothing changes."""
    counted = "Counts an hour of yours as $20 and one of waiting as $3: --hour-value, --wait-value."

    assert ask(FREE, DEAR, wait_value_usd=3.0).decision.values == counted
    assert ask(FREE, DEAR, wait_value_usd=100.0).decision.values == ""
    # $1.60 more for 45 min less: double the value of $1.10, but not of $1.00, is above $2.13 an hour
    for wait_value, named_values in ((1.1, True), (1.0, False)):
        answer = ask(FREE, offer("Q", "6.4"), wait_value_usd=wait_value)
        assert bool(answer.decision.values) is named_values


def test_a_limit_is_kept_surely_or_likely_or_not() -> None:
    """By hand: a quarter of an hour, up to 22.5 min at 90 %: 30 min is sure, 20 min likely, 12 min too short.

    ln(20 / 15) is 0.709 of ln(22.5 / 15), or 0.909 standard deviations: 82 %.
    """
    sure = ask(FREE, CHEAP, DEAR, deadline_s=1800.0, budget_usd=3.5).decision
    likely = ask(FREE, CHEAP, DEAR, deadline_s=1200.0)
    question = {"deadline_s": 720.0, "budget_usd": 1.0}
    never = ask(FREE, CHEAP, DEAR, **question)

    assert sure.probability > 0.9
    assert sure.sentence.startswith("Take Q on Lambda: ")
    assert likely.decision.probability == pytest.approx(0.818, abs=0.001)
    assert likely.decision.lines[0] == "Likely (82 %): Q on Lambda, $2.00 (1.6–3.0), 15 min (12–22)."
    assert explain_no_answer(likely) is None
    assert never.decision.lines == (
        "No: nothing is likely to keep a deadline of 12 min and a budget of $1.",
        "The fastest is Q on Lambda, $2.00 (1.6–3.0), 15 min (12–22). The cheapest is U on Lambda, free, "
        "60 min (48–90).",
    )
    why = explain_no_answer(never)
    assert why is not None
    assert why.exit_code == 3


def test_most_of_a_doubt_is_named_with_what_settles_it() -> None:
    """The steps make all of the doubt about an hour; they are measured by a profile."""
    decision = ask(FREE, deadline_s=4000.0).decision

    assert decision.lines[1] == "Most of the doubt is the training: `gpuplan profile` there settles it."


def test_what_cannot_be_had_is_not_taken_unless_it_alone_is_named() -> None:
    """A retired or reserved offer at a tenth of the price; and scarce ones lose ties."""
    gone, usual = offer("U", "0.1", status="retired"), offer("U", "1")
    reserved, scarce = offer("U", "0.1"), offer("U", "1.0")
    rules = {
        state: AvailabilityRule(state=state, needs="luck", source="", as_of="2026", confidence="high")
        for state in ("reserved", "scarce")
    }

    def take(*pairs: tuple[Offer, str], is_named: bool = False) -> OfferEstimate:
        selection = make_selection(*((one, USUAL) for one, _ in pairs))
        offers = (
            context._replace(rule=rules.get(state))
            for context, (_, state) in zip(selection.offers, pairs, strict=True)
        )
        answer = estimate_workload(
            make_workload(),
            selection=replace(selection, offers=tuple(offers)),
            predictor=FakePredictor(),
            question=Question(filters=Filters(accelerators=("U",) if is_named else ())),
        )
        return answer.offers[answer.decision.recommended]

    assert take((gone, ""), (usual, "")).offer is usual
    assert take((reserved, "reserved"), (usual, ""), is_named=True).offer is usual
    assert take((reserved, "reserved"), is_named=True).selected.availability == "reserved"
    assert take((scarce, "scarce"), (usual, "")).offer is usual


def test_json_has_every_role_with_time_and_cost() -> None:
    """The numbers of a role are those of its offer; money is text."""
    offers = (offer("S", "0"), offer("U", "2.8"), offer("S", "0.65"), offer("Q", "26"))
    document = ask(*offers, wait_value_usd=4.0).to_json()
    decision = document["decision"]
    roles = [role for role in ("recommended", "free", "cheaper", "faster") if decision[role] is not None]
    for role in roles:
        pick = decision[role]
        row = document["offers"][pick["offer"]]
        assert {key: row[key] for key in pick if key != "offer"} == {
            key: value for key, value in pick.items() if key != "offer"
        }
    assert roles == ["recommended", "free", "faster"]
    assert (decision["probability"], decision["needs"]) == (None, [])
    assert decision["improvements"] == [{"change": "batch 128", "speedup": 4.0, "another_training": True}]


def test_values_of_hours_are_never_negative() -> None:
    """UsageError that names the flag; nor endless."""
    with pytest.raises(UsageError, match="--wait-value must be at least zero"):
        Question(wait_value_usd=-1.0)
    with pytest.raises(UsageError, match="--hour-value must be at least zero"):
        Question(hour_value_usd=float("inf"))


def test_each_term_of_a_total_grows_with_one_quantity() -> None:
    """Closed form: a dollar, half an hour at $20 and two hours at $3; a third more for an old price."""
    total = compute_total_usd(
        money_usd=1.0, own_h=0.5, wall_h=2.0, hour_value_usd=20.0, wait_value_usd=3.0, aged_share=1 / 3
    )

    assert total == pytest.approx(4 / 3 + 10 + 6)


def ask_with_quotas(states: dict[str, str], *offers: Offer, **asked: Any) -> Estimate:
    """Estimate with the states of some instance types' quotas."""
    checks = {
        name: QuotaCheck(state=state, why="no quota: https://form", link=f"https://form/{name}")  # type: ignore[arg-type]
        for name, state in states.items()
    }
    selection = make_selection(*((one, BY_NAME[one.accelerator]) for one in offers))
    contexts = (one._replace(quota=checks.get(one.offer.instance_type)) for one in selection.offers)
    return estimate_workload(
        make_workload(),
        selection=replace(selection, offers=tuple(contexts)),
        predictor=FakePredictor(),
        question=Question(**asked),
    )


def test_what_the_account_may_not_start_is_not_taken_and_told() -> None:
    """The next one is taken, and the way to ask is told."""
    answer = ask_with_quotas({"S-0.5": "too_small"}, CHEAP, DEAR, wait_value_usd=0.0)

    assert named(answer, "recommended") == "Q-8"
    assert answer.decision.sentence == (
        "Take Q on Lambda: $2.00 (1.6–3.0), 15 min (12–22). "
        "Ruled out by your quota: S on Lambda, $1.00, 2.0 h; no quota: https://form"
    )
    cheapest = answer.recommendation.cheapest
    assert cheapest is not None
    assert answer.offers[cheapest].offer.instance_type == "Q-8"
    refused = next(one for one in answer.offers if one.offer.instance_type == "S-0.5")
    assert refused.to_json()["availability"] == "quota"


def test_a_refused_offer_that_nobody_would_take_is_not_mentioned() -> None:
    """Free stays free."""
    answer = ask_with_quotas({"S-9": "too_small"}, FREE, CHEAP, DEAR, offer("S", "9"))

    assert "quota" not in answer.decision.sentence


def test_an_unknown_quota_of_the_pick_is_said() -> None:
    """It is taken, but not without a word."""
    decision = ask_with_quotas({"S-0.5": "unknown"}, CHEAP, DEAR, wait_value_usd=0.0).decision

    assert decision.sentence.startswith("Take S on Lambda")
    assert decision.needs == ("no quota: https://form",)


def test_nothing_that_may_be_started_is_no_answer() -> None:
    """Exit code 3, with the way to ask."""
    answer = ask_with_quotas({"S-0.5": "too_small", "Q-8": "too_small"}, CHEAP, DEAR)
    why = explain_no_answer(answer)

    assert why is not None
    assert "quotas allow none" in str(why)
    assert "https://form" in (why.hint or "")
