"""The decision between free and paid offers; times and dollars are computed by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from factories import FakePredictor, make_accelerator, make_offer, make_selection, make_workload
from gpuplan.errors import UsageError
from gpuplan.offers.refresh.quotas import QuotaCheck
from gpuplan.offers.rows import Offer
from gpuplan.plan.decision import compute_total_usd
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.estimate_workload import estimate_workload
from gpuplan.plan.question import Question, explain_no_answer

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


def test_free_comes_first_and_an_hour_saved_has_a_price() -> None:
    """By hand: a quarter of an hour at $8 is $2, for three quarters of an hour: $2.67 an hour."""
    answer = ask(FREE, CHEAP, DEAR)

    assert [named(answer, role) for role in ("recommended", "free", "cheapest_paid", "fastest_paid")] == [
        "U-0", "U-0", "S-0.5", "Q-8",
    ]  # fmt: skip
    assert answer.decision.sentence == (
        "Take lambda U-0 (U, us-east-1): free, 60 min. Paying saves at most 45 min: lambda Q-8 (Q, us-east-1): "
        "$2.00, 15 min; each hour saved costs $2.67."
    )


@pytest.mark.parametrize(("wait_value", "taken"), [(2.6, "U-0"), (2.7, "Q-8")])
def test_waiting_has_a_price(wait_value: float, taken: str) -> None:
    """An hour saved costs $2.67: it is bought where waiting costs more."""
    assert named(ask(FREE, CHEAP, DEAR, wait_value_usd=wait_value), "recommended") == taken


def test_a_free_offer_that_is_faster_is_said_to_be() -> None:
    """Nothing that is paid is called the fastest above a free offer that is faster."""
    answer = ask(offer("Q", "0"), CHEAP)

    assert answer.decision.sentence == "Take lambda Q-0 (Q, us-east-1): free, 15 min. No paid offer is faster."


def test_of_two_free_offers_the_faster_is_taken() -> None:
    """Ties in money are broken by time."""
    assert named(ask(offer("S", "0"), FREE), "recommended") == "U-0"


def test_without_a_free_offer_the_cheapest_is_taken() -> None:
    """By hand: $1 for two hours, $2 for a quarter: a dollar more for 1.75 hours is $0.57 an hour."""
    answer = ask(CHEAP, DEAR)

    assert named(answer, "recommended") == "S-0.5"
    assert named(answer, "free") is None
    assert answer.decision.sentence.endswith("saves 105 min; each hour saved costs $0.57.")


def test_the_best_in_between_has_the_least_product() -> None:
    """Of $1 and 2 h, $1.20 and 1 h, $1.90 and 1 h (dominated) and $2 and 0.25 h the second is between."""
    answer = ask(CHEAP, offer("U", "1.2"), offer("U", "1.9", provider="other"), DEAR)

    assert named(answer, "in_between") == "U-1.2"


def test_deadline_and_budget_are_kept_together() -> None:
    """A quarter of an hour (at most 22.5 min) for $2 (at most $3)."""
    kept = {"deadline_s": 1800.0, "budget_usd": 3.5}
    assert named(ask(FREE, CHEAP, DEAR, **kept), "recommended") == "Q-8"

    question = {"deadline_s": 1800.0, "budget_usd": 1.8}
    answer = ask(FREE, CHEAP, DEAR, **question)
    why = explain_no_answer(answer, Question(**question))
    assert answer.decision.recommended is None
    assert answer.decision.sentence.startswith(
        "No offer is likely to meet a deadline of 30 min and a budget of $1.8: the fastest is"
    )
    assert why is not None
    assert why.exit_code == 3


def test_a_free_offer_in_time_is_an_answer() -> None:
    """No paid offer is in time; the free one is."""
    question = Question(deadline_s=1800.0)
    answer = ask(offer("Q", "0"), CHEAP, deadline_s=1800.0)

    assert named(answer, "recommended") == "Q-0"
    assert explain_no_answer(answer, question) is None


def test_short_deadlines_are_told_in_seconds() -> None:
    """Ten seconds are no 0.00278 h."""
    question = Question(deadline_s=10.0)
    why = explain_no_answer(ask(CHEAP, deadline_s=10.0), question)

    assert "within 10 s" in str(why)


def test_json_has_every_role_with_time_and_cost() -> None:
    """The numbers of a role are those of its offer."""
    document = ask(FREE, CHEAP, DEAR).to_json()
    for role in ("recommended", "free", "cheapest_paid", "fastest_paid"):
        pick = document["decision"][role]
        row = document["offers"][pick["offer"]]
        assert {key: row[key] for key in pick if key != "offer"} == {
            key: value for key, value in pick.items() if key != "offer"
        }
    assert document["decision"]["in_between"] is None


def test_values_of_hours_are_never_negative() -> None:
    """UsageError that names the flag."""
    with pytest.raises(UsageError, match="--wait-value must be at least zero"):
        Question(wait_value_usd=-1.0)


def test_own_hours_are_not_counted_twice() -> None:
    """Half an hour at $20, the other two at $3, and a dollar."""
    total = compute_total_usd(money_usd=1.0, own_h=0.5, elapsed_h=2.5, hour_value_usd=20.0, wait_value_usd=3.0)

    assert total == 17.0


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


def test_what_the_account_may_not_start_is_passed_over_and_said() -> None:
    """The next alternative is taken, and the way to ask is told; both orders of picks leave it out."""
    answer = ask_with_quotas({"S-0.5": "too_small"}, CHEAP, DEAR)

    assert [named(answer, role) for role in ("recommended", "cheapest_paid", "fastest_paid")] == ["Q-8"] * 3
    assert answer.decision.sentence.startswith("Take lambda Q-8 ")
    assert answer.decision.sentence.endswith(
        "Not recommended because of your quota: lambda S-0.5 (S, us-east-1): $1.00, 2.0 h; no quota: https://form"
    )
    (passed,) = answer.decision_json()["passed_over"]
    assert passed["instance_type"] == "S-0.5"
    cheapest = answer.recommendation.cheapest
    assert cheapest is not None
    assert answer.offers[cheapest].offer.instance_type == "Q-8"


def test_a_refused_offer_that_nobody_would_take_is_not_mentioned() -> None:
    """Free stays free."""
    slower = offer("S", "9")
    answer = ask_with_quotas({"S-9": "too_small"}, FREE, CHEAP, DEAR, slower)

    assert "Passed over" not in answer.decision.sentence
    assert answer.decision.passed_over == ()


def test_an_unknown_quota_of_the_pick_is_said() -> None:
    """It is taken, but not without a word."""
    sentence = ask_with_quotas({"S-0.5": "unknown"}, CHEAP, DEAR).decision.sentence

    assert sentence.startswith("Take lambda S-0.5 ")
    assert sentence.endswith("Whether your quota allows it is unknown: no quota: https://form.")


def test_nothing_that_may_be_started_is_no_answer() -> None:
    """Exit code 3, with the way to ask."""
    answer = ask_with_quotas({"S-0.5": "too_small", "Q-8": "too_small"}, CHEAP, DEAR)
    why = explain_no_answer(answer, Question())

    assert why is not None
    assert "quotas allow none" in str(why)
    assert "https://form" in (why.hint or "")


def test_spot_is_compared_with_the_same_machine_on_demand() -> None:
    """Whichever is taken, the other's cost and time are told; another region is another machine."""
    spot = replace(CHEAP, purchase="spot", usd_per_hour=Decimal("0.2"))
    taken = ask(CHEAP, spot).decision
    assert taken.spot.startswith("On demand it is $1.00, 2.0 h")
    assert taken.spot in taken.sentence

    dear = replace(spot, usd_per_hour=Decimal("0.9"))
    steady = ask(CHEAP, dear).decision
    assert steady.spot.startswith("On spot it is $1.80, 2.0 h")
    assert steady.spot not in steady.sentence
    assert ask(CHEAP, replace(spot, region="eu-west-1")).decision.spot == ""
