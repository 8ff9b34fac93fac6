"""A second plan at the largest batch that fits, by hand on a made-up catalog."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from factories import make_accelerator, make_offer, make_selection, make_workload
from gpuplan.plan.estimate_model import add_best_batch
from gpuplan.plan.estimate_workload import estimate_workload
from gpuplan.plan.offer_estimate import choose_batch_sizes, with_run_length_of
from gpuplan.plan.question import Question
from gpuplan.predict.step_time import NoPrediction, StepTime
from gpuplan.units import GIB, Interval
from gpuplan.workload.model import Workload

# 2.5 GiB at a batch of 32, an 32nd of a GiB each: 40 GiB fit 1,232 samples, 4 GiB fit 80, 2.2 GiB fit 22.
LARGE, MIDDLE, SMALL = (
    make_accelerator(name, memory_gib=gib) for name, gib in (("A100-40GB", 40.0), ("T4", 4.0), ("K80", 2.2))
)
OFFERS = {one.name: make_offer(one.name) for one in (LARGE, MIDDLE, SMALL)}
SELECTION = make_selection(*((OFFERS[one.name], one) for one in (LARGE, MIDDLE, SMALL)))


class FakeStep:
    """Predicts 0.1 s + 0.01 s a sample; on the T4 a constant time a sample."""

    def step_time(self, workload: Workload, accelerator: object, **_: object) -> StepTime | NoPrediction:
        """Return the time of one step."""
        fixed_s = 0.1 if accelerator.name != "T4" else 0.0
        growing_s = (
            0.01 * workload.batch_size * (1.1 if accelerator.name == "T4" and workload.batch_size > 32 else 1)
        )
        time_s = Interval(low=fixed_s + growing_s, mid=fixed_s + growing_s, high=fixed_s + growing_s)
        return StepTime(time_s=time_s, basis="modelled", limiter="compute", parts_s={"compute": time_s.mid})


def resized(own: Workload, batch_size: int) -> Workload:
    """Return the workload at another batch size, its memory in proportion."""
    share = batch_size / own.batch_size
    memory = replace(
        own.memory,
        activation_bytes=int(own.memory.activation_bytes * share),
        input_bytes=int(own.memory.input_bytes * share),
    )
    return replace(own, batch_size=batch_size, memory=memory)


def plans() -> dict[str, object]:
    """Return the offers of 36 epochs of 3,200 samples by accelerator, each with its best batch."""
    own = make_workload()

    def estimate(workload: Workload) -> object:
        return estimate_workload(workload, selection=SELECTION, predictor=FakeStep(), question=Question()).offers

    offers = estimate(own)
    sizes = choose_batch_sizes({one.device_estimate.memory.largest_batch_size for one in offers}, own=32)
    assert sizes == [4, 8, 16, 64, 128, 256, 512, 1024]
    found = add_best_batch(offers, sizes, lambda size: estimate(with_run_length_of(resized(own, size), own)))
    return {one.offer.accelerator: one for one in found}


def test_best_batches_by_hand() -> None:
    """The largest that fits with a margin (5/6 of the memory): 512 on 40 GiB; 8 where 32 does not fit."""
    found = plans()
    large, small = found["A100-40GB"].best_batch, found["K80"].best_batch

    assert large.batch_size == 512
    assert large.step_time_s.mid == pytest.approx(0.1 + 0.01 * large.batch_size)
    steps = -(-3200 // large.batch_size) * 36
    assert large.run_time_s.mid == pytest.approx(steps * (0.1 + 0.01 * large.batch_size))
    assert large.speedup == pytest.approx((large.batch_size / large.step_time_s.mid) / (32 / 0.42))
    assert Decimal(large.cost_usd["mid"]) == pytest.approx(
        Decimal(large.run_time_s.mid) / 3600, rel=Decimal("1e-6")
    )
    assert found["K80"].device_estimate.memory.fits is False
    assert (small.batch_size, small.speedup) == (8, None)
    assert found["A100-40GB"].to_json()["best_batch"]["batch_size"] == large.batch_size


def test_a_batch_that_is_slower_per_sample_is_not_chosen() -> None:
    """The T4 takes 10 % longer per sample at a larger batch, so the user's batch stays."""
    assert plans()["T4"].best_batch is None
    assert plans()["T4"].to_json()["best_batch"] is None


def test_a_run_in_steps_keeps_its_samples() -> None:
    """1,000 steps of 32 are 250 of 128."""
    own = make_workload(samples=None, epochs=None, steps=1000)

    assert with_run_length_of(resized(own, 128), own).steps == 250


def test_memory_of_the_made_up_step() -> None:
    """Memory behind the sizes above: 1 GiB fixed, 0.5 GiB framework and 1/32 GiB a sample."""
    memory = make_workload().memory

    assert memory.compute_fixed_bytes(compiled=True) == GIB
    assert (memory.input_bytes + memory.activation_bytes) == GIB


@pytest.mark.parametrize(
    ("largest", "own", "sizes"),
    [
        ([64], 32, [64]),
        ([63], 32, []),
        ([32], 32, []),
        ([1], 2, [1]),
        ([1], 3, [1]),
        ([1], 4, [1, 2]),
        ([1], 64, [8, 16, 32]),
        ([10**6], 1, [2, 4, 8, 16, 32]),
        ([None, 0], 8, []),
    ],
)
def test_batch_sizes_to_try(largest: list[int | None], own: int, sizes: list[int]) -> None:
    """By hand: up to five doublings that fit somewhere, and three halvings where the user's own does not."""
    assert choose_batch_sizes(largest, own=own) == sizes
