"""One batch shared by several devices: by hand on a made-up catalog, and as laws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

import pytest
from factories import make_accelerator, make_offer, make_selection, make_workload
from gpuplan.errors import UsageError
from gpuplan.offers.rows import Accelerator
from gpuplan.plan.estimate_workload import estimate_workload
from gpuplan.plan.question import Question
from gpuplan.plan.run_length import BatchScaling, compute_weak_run_length, share_batch
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


def asked(*offers: object, scaling: str = "strong", batch_size: int = 64, mode: str = "train") -> object:
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


def test_many_devices_are_recommended_only_where_the_training_stays_the_same() -> None:
    """32 devices at three times the price are recommended with one shared batch, but not with 32 batches."""
    strong, weak = asked(SINGLE, MANY), asked(SINGLE, MANY, scaling="weak")

    assert strong.offers[strong.recommendation.fastest].offer is MANY
    assert weak.offers[weak.recommendation.fastest].offer is SINGLE
    assert strong.to_json()["options"]["scaling"] == "strong"


def test_many_devices_are_recommended_for_predictions() -> None:
    """32 devices predict 32 batches without an optimizer step that grows."""
    answer = asked(SINGLE, MANY, scaling="weak", mode="infer")

    assert answer.offers[answer.recommendation.fastest].offer is MANY


def test_a_batch_cannot_be_shared_by_more_devices_than_it_has_samples() -> None:
    """Sixteen samples, 32 devices: no time, and the reason."""
    many = next(one for one in asked(SINGLE, MANY, batch_size=16).offers if one.offer is MANY)

    assert many.device_estimate.step_time_s is None
    assert "a batch of 16 cannot be divided among 32 devices" in many.notes


def test_what_was_saved_at_one_batch_size_cannot_be_shared() -> None:
    """Without a function for other batch sizes, a usage error with a hint."""
    with pytest.raises(UsageError, match="smaller batch sizes"):
        BatchScaling(scaling="strong").split(make_workload(), 2.0)


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
    one = compute_weak_run_length(**run, devices=1)
    shared, own = (share_batch(one, devices), compute_weak_run_length(**run, devices=devices))

    assert (shared.steps, shared.global_batch_size) == (one.steps, one.global_batch_size)
    assert own.steps <= one.steps
