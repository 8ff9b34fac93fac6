"""Choice among shardings: the least that fits, and what is taken where none fits or no time is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpuplan.plan.device_estimate import DeviceEstimate, RunLength
from gpuplan.plan.estimate_device import choose_least_sharding
from gpuplan.plan.memory import count_groups, memory_verdict
from gpuplan.predict.sharding import Sharding
from gpuplan.predict.step_time import NoPrediction, StepTime
from gpuplan.units import GIB, Interval

AVAILABLE = 16 * GIB


def make_estimate(sharding: Sharding, *, step_s: float | None, needed_gib: float) -> DeviceEstimate:
    """Return an estimate of some time and memory on a device of 16 GiB."""
    step: StepTime | NoPrediction = NoPrediction("the rate of the link is not known")
    if step_s is not None:
        interval = Interval(low=step_s, mid=step_s, high=step_s)
        step = StepTime(time_s=interval, basis="modelled", limiter="compute")
    memory = memory_verdict(
        fixed_bytes=int(needed_gib * GIB), batch_bytes=0, batch_size=1, available_bytes=AVAILABLE
    )
    return DeviceEstimate(
        run=RunLength(replicas=8, global_batch_size=8, steps=1), step_time=step, memory=memory, sharding=sharding
    )


def choose(*rows: tuple[Sharding, float | None, float]) -> str:
    """Return the kind of sharding that is chosen among rows of sharding, step time and memory."""
    return choose_least_sharding(
        [make_estimate(one, step_s=s, needed_gib=gib) for one, s, gib in rows]
    ).sharding.kind


def test_the_least_sharding_that_fits_is_taken() -> None:
    """17 GiB do not fit; 14 fit without a margin, which counts less than 8 and 4 with one."""
    assert choose((Sharding.NONE, 1.0, 17), (Sharding.ZERO1, 3.0, 8), (Sharding.FSDP, 2.0, 4)) == "zero1"
    assert choose((Sharding.NONE, 1.0, 14), (Sharding.ZERO1, 2.0, 8), (Sharding.FSDP, 3.0, 4)) == "zero1"
    assert choose((Sharding.NONE, 1.0, 14), (Sharding.FSDP, 2.0, 17)) == "none"


def test_of_steps_that_xla_recomputes_that_of_least_memory_is_taken() -> None:
    """All three are tight, since XLA recomputes 3 GiB of each."""
    tried = [
        replace(one, memory=replace(one.memory, recomputed_bytes=3 * GIB))
        for needed_gib, kind in ((12, Sharding.NONE), (11, Sharding.ZERO1), (9, Sharding.FSDP))
        for one in (make_estimate(kind, step_s=1.0, needed_gib=needed_gib),)
    ]

    assert {one.memory.verdict for one in tried} == {"tight"}
    assert choose_least_sharding(tried).sharding.kind == "fsdp"


def test_equal_ones_shard_as_little_as_possible() -> None:
    """ZeRO 1 and 2 take the same time."""
    assert choose((Sharding.ZERO1, 1.0, 4), (Sharding.ZERO2, 1.0, 3)) == "zero1"


def test_without_a_time_or_room_memory_decides() -> None:
    """No time: the first that fits; no room: the one that needs least."""
    assert choose((Sharding.NONE, None, 17), (Sharding.ZERO1, None, 8), (Sharding.FSDP, None, 4)) == "zero1"
    assert choose((Sharding.NONE, 1.0, 60), (Sharding.FSDP, 2.0, 20)) == "fsdp"


@pytest.mark.parametrize(("ways", "devices", "groups"), [(1, 8, 1), (2, 8, 4), (4, 8, 2), (8, 8, 1), (8, 4, 1)])
def test_groups_of_devices_that_share_products(ways: int, devices: int, groups: int) -> None:
    """At least one; copies have none."""
    assert count_groups(Sharding(kind="tensor", ways=ways), devices) == groups
