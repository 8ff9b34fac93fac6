"""One workload on a hand-made catalog, followed by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from factories import (
    FakePredictor,
    estimate_workload,
    make_accelerator,
    make_limits,
    make_offer,
    make_selection,
    make_workload,
)
from gpuplan.errors import UsageError
from gpuplan.plan.estimate import Estimate, explain_no_answer
from gpuplan.plan.preemption import SpotTerms
from gpuplan.plan.question import Filters, OfferContext, Question, Selection
from gpuplan.predict.sharding import Sharding
from gpuplan.workload.model import Workload
from hypothesis import given
from hypothesis import strategies as st

SLOW, FAST = make_accelerator("T4"), make_accelerator("A100-40GB", tflop_per_s=4.0)
SLOW_OFFER = make_offer("T4", usd_per_hour=Decimal("0.5"))
FAST_OFFER = make_offer("A100-40GB", usd_per_hour=Decimal("4.0"))
HOUR_S = 3600.0


def run(
    selection: Selection, *, workload: Workload | None = None, unknown: tuple[str, ...] = (), **question: object
) -> Estimate:
    """Return the estimate of the made-up workload: an hour on the slow one, 15 min on the fast."""
    return estimate_workload(
        workload or make_workload(),
        selection=selection,
        predictor=FakePredictor(unknown=unknown),
        question=Question(**question),  # type: ignore[arg-type]
    )


BOTH = make_selection((FAST_OFFER, FAST), (SLOW_OFFER, SLOW))


def test_time_and_cost_by_hand() -> None:
    """Closed form: 3,600 steps of 1 s at $0.50 are 1 h and $0.50; of 0.25 s at $4 are 15 min and $1."""
    slow, fast = run(BOTH).offers

    assert slow.device_estimate.train_time_s is not None
    assert slow.device_estimate.train_time_s.mid == HOUR_S
    assert slow.bill is not None
    assert slow.bill.total.mid == Decimal("0.5")
    assert slow.bill.total.high == Decimal("0.75")
    assert fast.bill is not None
    assert fast.bill.total.mid == Decimal("1")


def test_sorted_by_cost_or_time() -> None:
    """`--sort cost` puts the T4 first, `--sort time` the A100."""
    assert [one.offer.accelerator for one in run(BOTH, sort="cost").offers] == ["T4", "A100-40GB"]
    assert [one.offer.accelerator for one in run(BOTH, sort="time").offers] == ["A100-40GB", "T4"]


def test_recommendation_by_hand() -> None:
    """The T4 is cheapest, the A100 fastest; at 1.5 times the mid, the T4 needs 90 min and the A100 $1.50."""
    chosen = run(BOTH, deadline_s=1.4 * HOUR_S, budget_usd=1.4).recommendation

    assert (chosen.cheapest, chosen.fastest, chosen.free) == (0, 1, None)
    assert chosen.within_deadline == 1, "the T4's upper end is 1.5 h"
    assert chosen.within_budget == 0, "the A100's upper end is $1.50"
    assert chosen.pareto == (1, 0)


def test_each_kind_and_number_of_devices_is_predicted_once() -> None:
    """Three regions of one machine ask the predictor once, eight devices of it once more."""
    places = [make_offer("T4", region=region) for region in ("a", "b", "c")]
    eight = make_offer("T4", instance_type="eight_T4", devices=8.0)
    predictor = FakePredictor()

    estimate_workload(
        make_workload(mode="infer"),  # without improvements, which are predicted again
        selection=make_selection(*((offer, SLOW) for offer in (*places, eight))),
        predictor=predictor,
        question=Question(scaling="weak"),
    )

    assert predictor.calls == [("T4", 1.0), ("T4", 8.0)]


def test_offers_that_do_not_fit_come_last_and_are_not_recommended() -> None:
    """1 GiB fixed + 1 GiB a batch + 0.5 GiB reserve need 2.5 GiB; 2 GiB hold 16 samples of 32."""
    small = make_accelerator("T4", tflop_per_s=100.0, memory_gib=2.0)
    estimate = run(make_selection((SLOW_OFFER, small), (FAST_OFFER, FAST)))

    assert [one.device_estimate.memory.fits for one in estimate.offers] == [True, False]
    assert estimate.offers[1].device_estimate.memory.largest_batch_size == 16
    assert estimate.recommendation.fastest == 0


def test_parts_of_machines_are_not_recommended() -> None:
    """A GPU without its host cannot be rented alone, however cheap."""
    part = make_offer("T4", usd_per_hour=Decimal("0.01"), complete=False)
    estimate = run(make_selection((part, SLOW), (FAST_OFFER, FAST)))

    assert estimate.offers[estimate.recommendation.cheapest or 0].offer.accelerator == "A100-40GB"


def test_free_offers_are_recommended_separately() -> None:
    """A free notebook is not "cheapest" while guaranteed machines are selected."""
    gift = make_offer("T4", provider="kaggle", usd_per_hour=Decimal(0))
    chosen = run(make_selection((gift, SLOW), (FAST_OFFER, FAST))).recommendation

    assert (chosen.free, chosen.cheapest) == (0, 1)
    assert run(make_selection((gift, SLOW))).recommendation.cheapest == 0, "unless nothing else was asked for"


def test_offers_with_too_short_sessions_are_not_recommended() -> None:
    """An hour's run in sessions of 25 minutes takes three of them."""
    short = Selection(
        offers=(OfferContext(SLOW_OFFER, SLOW, limits=make_limits(session_hours_max=1500 / 3600)),),
        catalog_as_of="2026",
    )
    estimate = run(short)

    assert estimate.offers[0].sessions == 3
    assert any("this run takes 3" in note for note in estimate.offers[0].notes)
    assert estimate.recommendation.cheapest is None


def test_no_price_gives_a_time_and_no_cost() -> None:
    """Unknown is null: an unpublished price is neither $0 nor the price of another offer."""
    row = run(make_selection((make_offer("T4", usd_per_hour=None), SLOW))).offers[0].to_json(breakdown=True)

    assert row["usd_per_hour"] is None
    assert row["cost_usd"] is None
    assert row["bill"] == []
    assert row["train_time_s"]["mid"] == HOUR_S


def test_no_step_time_gives_the_reason() -> None:
    """Unknown is null, with the reason in the notes."""
    row = run(make_selection((SLOW_OFFER, SLOW), (FAST_OFFER, FAST)), unknown=("T4",)).offers[1].to_json()

    assert (row["step_time_s"], row["train_time_s"], row["basis"], row["limiter"]) == (None,) * 4
    assert row["notes"] == ["no peak of T4 is known"]


def test_a_run_of_unknown_length_still_ranks_by_the_sample() -> None:
    """Without samples there is no run time; the T4 is still cheaper per step, the A100 faster."""
    endless = make_workload(samples=None, epochs=None, steps=None)
    estimate = run(BOTH, workload=endless)

    assert [one.device_estimate.train_time_s for one in estimate.offers] == [None, None]
    # $500 and $1000 / 3600
    assert [one.usd_per_1000_steps for one in estimate.offers] == ["0.138888889", "0.277777778"]
    assert (estimate.recommendation.cheapest, estimate.recommendation.fastest) == (0, 1)


@pytest.mark.parametrize("limit", [{"deadline_s": 1.0}, {"budget_usd": 1.0}])
def test_a_limit_needs_the_length_of_the_run(limit: dict[str, float]) -> None:
    """A deadline for an endless run is a usage error with the flags to add."""
    endless = make_workload(samples=None, epochs=None, steps=None)
    with pytest.raises(UsageError, match="needs the length of the run") as caught:
        run(BOTH, workload=endless, **limit)

    assert caught.value.hint == "add `--samples N --epochs N`, or `--steps N`"


@given(factor=st.integers(min_value=2, max_value=1000))
def test_more_epochs_cost_more_in_proportion(factor: int) -> None:
    """Law: n times the epochs, n times the cost, to a nano-dollar a bill."""
    once, more = run(BOTH), run(BOTH, workload=make_workload(epochs=36 * factor, steps=3600 * factor))

    assert len(once.offers) == 2
    for before, after in zip(once.offers, more.offers, strict=True):
        assert before.bill is not None
        assert after.bill is not None
        assert abs(after.bill.total.mid - factor * before.bill.total.mid) <= factor * Decimal("1e-9")


def test_an_answered_question_raises_no_error() -> None:
    """No error if an offer fits and meets deadline and budget."""
    assert explain_no_answer(run(BOTH, deadline_s=10 * HOUR_S, budget_usd=100.0)) is None


def test_why_nothing_fits() -> None:
    """Exit code 3, with the batch size that would fit."""
    small = make_accelerator("T4", memory_gib=2.0)
    why = explain_no_answer(run(make_selection((SLOW_OFFER, small))))

    assert why is not None
    assert str(why) == "No: `made-up.json` at batch size 32 fits on none of 1 offers: it needs 2.5 GiB a device."
    assert (why.hint, why.exit_code) == ("try `--batch-size 16` or less", 3)


def test_a_device_of_unknown_memory_does_not_count_as_one_that_fits() -> None:
    """A step that is not known to fit does not answer the question."""
    small = make_accelerator("T4", memory_gib=2.0)
    unknown = replace(FAST, memory_gib=None, usable_gib=None)
    why = explain_no_answer(run(make_selection((SLOW_OFFER, small), (FAST_OFFER, unknown))))

    assert "fits on none of 1 offers" in str(why)


def test_a_chip_that_keras_does_not_run_on_never_wins() -> None:
    """A Trainium at a tenth of the price ranks below the T4, and its note names the supported software."""
    chip = replace(make_accelerator("Trainium1"), kind="npu", vendor="AWS")
    cheap = make_offer("Trainium1", usd_per_hour=Decimal("0.01"))
    estimate = run(make_selection((cheap, chip), (SLOW_OFFER, SLOW)))

    assert [one.offer for one in estimate.offers] == [SLOW_OFFER, cheap]
    assert (estimate.recommendation.cheapest, estimate.recommendation.pareto) == (0, (0,))
    row = estimate.offers[1].to_json()
    assert row["runs"] is False
    assert row["compatibility"].startswith("Keras 3 does not support it: torch torch-neuronx")


def test_the_own_machine_is_a_kind_of_its_own() -> None:
    """The best offer of each kind of device is shown, and this machine in addition."""
    here = make_offer("T4", provider="local", usd_per_hour=Decimal(0), region="local")
    dear = make_offer("T4", usd_per_hour=Decimal("9.0"), region="eu-west-1")
    estimate = run(make_selection((dear, SLOW), (here, SLOW), (SLOW_OFFER, SLOW)))

    shown = [estimate.offers[index].offer for index in estimate.best_per_devices()]
    assert shown == [here, SLOW_OFFER]


def test_why_nothing_is_in_time_or_in_budget() -> None:
    """The nearest offer is named, with its upper end."""
    late = explain_no_answer(run(BOTH, deadline_s=600.0))
    dear = explain_no_answer(run(BOTH, budget_usd=0.1))

    assert str(late) == (
        "No: nothing is likely to keep a deadline of 10 min. The fastest is A100-40GB on Lambda, $1.00 (0.8–1.5), "
        "15 min (12–22)."
    )
    assert str(dear) == (
        "No: nothing is likely to keep a budget of $0.1. The cheapest is T4 on Lambda, $0.50 (0.4–0.75), "
        "60 min (48–90)."
    )


def test_the_fastest_that_is_late_may_be_free() -> None:
    """The error names the same fastest offer as the decision, free or paid."""
    free = make_offer("A100-40GB", instance_type="gift", usd_per_hour=Decimal(0))
    late = run(make_selection((free, FAST), (SLOW_OFFER, SLOW)), deadline_s=600.0)

    assert str(explain_no_answer(late)) == late.decision.sentence
    assert "The fastest is A100-40GB on Lambda, free, 15 min (12–22)." in late.decision.sentence


def test_why_no_time_is_known() -> None:
    """If no accelerator can be predicted, the error states the reason."""
    why = explain_no_answer(run(BOTH, unknown=("T4", "A100-40GB")))

    assert why is not None
    assert "no step time can be predicted on any of 2 offers: no peak of" in str(why)


NO_PRICE = make_selection((make_offer("T4", usd_per_hour=None), SLOW))


@pytest.mark.parametrize("limits", [{}, {"budget_usd": 5.0}, {"deadline_s": 10 * HOUR_S}])
def test_without_a_price_nothing_is_taken(limits: dict[str, float]) -> None:
    """The decision says it, with a limit and without."""
    why = explain_no_answer(run(NO_PRICE, **limits))  # type: ignore[arg-type]

    assert why is not None
    assert (str(why), why.hint) == (
        "No: no offer that can be had runs made-up.json at batch 32 in a known time at a known price.",
        None,
    )


def test_the_question_is_told_in_plain_types() -> None:
    """By hand: a life of two hours is 7,200 s; what was not asked is None, or what holds without it."""
    asked = run(
        BOTH,
        shard=(Sharding.ZERO1, Sharding.FSDP),
        spot=SpotTerms(up_hours=2.0, interval_s=600.0, save_s=5.0, restart_s=60.0),
        budget_usd=1.5,
        deadline_s=HOUR_S,
        filters=Filters(accelerators=("T4",)),
    ).options
    plain = run(BOTH).options

    assert asked["spot"] == {"life_s": 7200.0, "checkpoint_every_s": 600.0, "checkpoint_s": 5.0, "restart_s": 60.0}
    assert plain["spot"] == dict.fromkeys(asked["spot"])
    keys = ("shard", "budget_usd", "deadline_s", "accelerators", "quota", "fit", "sort")
    assert [asked[key] for key in keys] == ["zero1,fsdp", "1.5", 3600.0, ["T4"], False, False, "cost"]
    assert [plain[key] for key in keys] == ["none", None, None, [], False, False, "cost"]


def test_only_training_can_be_sharded() -> None:
    """Predictions have no gradients, and may be asked for as copies."""
    infer = make_workload(mode="infer")
    with pytest.raises(UsageError, match="`--shard` divides a training step"):
        run(BOTH, workload=infer, shard=(Sharding.NONE, Sharding.FSDP))

    assert run(BOTH, workload=infer, shard=(Sharding.NONE,)).offers
    assert run(BOTH, shard=(Sharding.FSDP,)).offers


def test_a_sharding_that_was_asked_for_is_tried() -> None:
    """On eight devices; copies without the question."""
    eight = make_selection((make_offer("T4", devices=8.0), SLOW))

    assert run(eight, shard=(Sharding.FSDP,)).offers[0].device_estimate.sharding == Sharding.FSDP
    assert run(eight).offers[0].device_estimate.sharding == Sharding.NONE
