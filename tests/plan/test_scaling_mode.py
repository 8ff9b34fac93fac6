"""One batch shared by several devices: by hand on a made-up catalog, and as laws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

import pytest
from factories import estimate_workload, make_accelerator, make_offer, make_product, make_selection, make_workload
from gpuplan.offers.rows import Accelerator
from gpuplan.plan.device_estimate import compute_run_length
from gpuplan.plan.question import Question
from gpuplan.predict.resize import Resizer
from gpuplan.predict.step_time import NoPrediction, StepTime
from gpuplan.units import Interval
from gpuplan.workload.model import Workload
from hypothesis import given
from hypothesis import strategies as st

T4 = make_accelerator("T4")
SINGLE = make_offer("T4", usd_per_hour=Decimal("1.0"))
PAIR = make_offer("T4", instance_type="two_T4", devices=2.0, usd_per_hour=Decimal("2.0"))
MANY = make_offer("T4", instance_type="many_T4", devices=32.0, usd_per_hour=Decimal("3.0"))


@dataclass
class FakeStep:
    """Predicts 0.1 s + 0.01 s for each sample of a device."""

    def step_time(self, workload: Workload, accelerator: Accelerator, **_: object) -> StepTime | NoPrediction:
        """Return the time of one step."""
        mid = 0.1 + 0.01 * workload.batch_size
        return StepTime(
            time_s=Interval(low=mid, mid=mid, high=mid),
            basis="modelled",
            limiter="compute",
            parts_s={"compute": mid},
        )


def smaller(workload: Workload) -> object:
    """Return the workload at another batch size, with memory in proportion."""

    def at(batch_size: int) -> Workload:
        share = batch_size / workload.batch_size
        memory = replace(workload.memory, activation_bytes=int(workload.memory.activation_bytes * share))
        return replace(workload, batch_size=batch_size, memory=memory)

    return at


def asked(*offers: object, scaling: str | None = "strong", batch_size: int = 64, mode: str = "train") -> object:
    """Return the estimate of 100 epochs of 6,400 samples."""
    workload = make_workload(batch_size=batch_size, samples=6400, epochs=100, steps=None, mode=mode)
    return estimate_workload(
        workload,
        selection=make_selection(*((offer, T4) for offer in offers)),
        predictor=FakeStep(),
        question=Question(scaling=scaling),
        resized=smaller(workload),
    )


def test_two_devices_that_share_a_batch_by_hand() -> None:
    """0.74 s for 64 samples on one, 0.42 s for 32 each on two: 1.76x, at twice the price 14 % more expensive."""
    answer = asked(SINGLE, PAIR)
    pair = next(one for one in answer.offers if one.offer.devices == 2)
    single = next(one for one in answer.offers if one.offer.devices == 1)

    assert pair.device_estimate.run.global_batch_size == single.device_estimate.run.global_batch_size == 64
    assert pair.device_estimate.run.steps == single.device_estimate.run.steps == 10_000
    assert pair.device_estimate.step_time_s.mid == pytest.approx(0.42)
    assert pair.scaling.speedup == pytest.approx(0.74 / 0.42)
    assert "2 devices: 1.8x as fast as one, 14 % more expensive" in pair.notes
    assert "a batch of 64 shared by 2 devices: 32 samples each" in pair.notes
    assert pair.device_estimate.memory.needed_bytes < single.device_estimate.memory.needed_bytes
    assert pair.to_json()["batch_size_per_device"] == 32


def test_a_larger_batch_is_another_training() -> None:
    """32 devices share the batch unless they are to keep it, and the answer says what that means."""
    strong, weak = asked(SINGLE, MANY, scaling=None), asked(SINGLE, MANY, scaling="weak")

    assert strong.to_json()["options"]["scaling"] == "strong"
    assert "another training" not in strong.decision.sentence
    assert weak.offers[weak.decision.recommended].offer is MANY
    assert "Global batch 2,048 instead of 64: another training." in weak.decision.sentence


def test_many_devices_are_recommended_for_predictions() -> None:
    """32 devices predict 32 batches without an optimizer step that grows."""
    answer = asked(SINGLE, MANY, scaling="weak", mode="infer")

    assert answer.offers[answer.recommendation.fastest].offer is MANY


def test_a_batch_cannot_be_shared_by_more_devices_than_it_has_samples() -> None:
    """Sixteen samples, 32 devices: no time, and the reason."""
    many = next(one for one in asked(SINGLE, MANY, batch_size=16).offers if one.offer is MANY)

    assert many.device_estimate.step_time_s is None
    assert "a batch of 16 cannot be divided among 32 devices" in many.notes


def test_the_answer_says_that_a_batch_cannot_be_shared_where_one_device_is_too_small() -> None:
    """One device of 2 GiB does not hold it; where it fits, of 17 and of 32 devices, the fewest are named."""
    workload = make_workload(batch_size=16, samples=6400, epochs=100, steps=None)
    small = make_accelerator("T4", memory_gib=2.0)
    fewest = replace(MANY, instance_type="fewest_T4", devices=17.0)
    answer = estimate_workload(
        workload,
        selection=make_selection((SINGLE, small), (MANY, T4), (fewest, T4)),
        predictor=FakeStep(),
        question=Question(scaling="strong"),
        resized=smaller(workload),
    )

    assert answer.decision.sentence == (
        "No: no step time can be predicted on any of 2 offers that hold it: "
        "a batch of 16 cannot be divided among 17 devices."
    )


def test_what_was_saved_at_one_batch_size_is_scaled() -> None:
    """By hand: without another trace half of the operations' work, and the update as it is."""
    ops = (make_product(m=64), make_product(phase="update", m=64))
    half = Resizer(make_workload(batch_size=64, ops=ops))(32)

    assert [(one.m, one.flops) for one in half.ops] == [(32, 1024.0**3), (64, 2 * 1024.0**3)]
    assert half.memory.activation_bytes == make_workload().memory.activation_bytes // 2
    assert half.memory.parameter_bytes == make_workload().memory.parameter_bytes
    assert "scaled from one trace" in half.notes[-1]


def test_a_script_uses_the_devices_that_it_says() -> None:
    """Without a distribution, one: a machine with two is timed on one and priced whole, and is not taken.

    A strategy in the script's text, a question how it would be with one, and a MODEL that is no script use both.
    """
    script = make_workload(model="train.py", batch_size=64, samples=6400, epochs=100, steps=None)
    for workload, question, used in (
        (script, Question(), 1),
        (replace(script, distribution="MirroredStrategy"), Question(), 2),
        (script, Question(scaling="strong"), 2),
        (replace(script, model="models.py:build"), Question(), 2),
    ):
        answer = estimate_workload(
            workload,
            selection=make_selection((SINGLE, T4), (replace(PAIR, usd_per_hour=Decimal("0.1")), T4)),
            predictor=FakeStep(),
            question=question,
            resized=smaller(workload),
        )
        pair = next(one for one in answer.offers if one.offer.devices == 2)
        taken = answer.offers[answer.decision.recommended].offer
        assert pair.device_estimate.run.replicas == used
        assert taken.devices == used
    assert pair.offer.usd_per_hour == Decimal("0.1")


def test_a_tpu_runs_jax_and_scripts_with_its_strategy() -> None:
    """A TensorFlow script needs a TPUStrategy; PyTorch has no time there."""
    tpu = replace(make_accelerator("TPU-v5e"), kind="tpu")
    offer = make_offer("TPU-v5e")
    for backend, distribution, runs in (
        ("jax", "", True),
        ("tensorflow", "", False),
        ("tensorflow", "TPUStrategy", True),
        ("torch", "", False),
    ):
        workload = make_workload(versions={"keras": "3.15.0", backend: "1"}, distribution=distribution)
        answer = estimate_workload(
            workload, selection=make_selection((offer, tpu)), predictor=FakeStep(), question=Question()
        )
        assert (answer.offers[0].device_estimate.step_time_s is not None) is runs


@given(
    batch_size=st.integers(1, 4096),
    samples=st.integers(1, 10**6),
    epochs=st.integers(1, 100),
    devices=st.integers(1, 64),
)
def test_a_shared_batch_is_the_same_training_everywhere(
    batch_size: int, samples: int, epochs: int, devices: int
) -> None:
    """Law: strong scaling keeps steps and samples per step; weak scaling never takes more steps."""
    run = {"batch_size": batch_size, "samples": samples, "epochs": epochs, "steps": None}
    one = compute_run_length(make_workload(**run), 1, "weak")
    shared = compute_run_length(make_workload(**run), devices, "strong")
    own = compute_run_length(make_workload(**run), devices, "weak")

    assert (shared.steps, shared.global_batch_size) == (one.steps, one.global_batch_size)
    assert own.steps <= one.steps
