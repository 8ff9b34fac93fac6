"""One host feeds several devices: what each waits for its batch, the host does for all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpuplan.offers.load import load_catalog
from gpuplan.predict.links import Machine
from gpuplan.predict.parallel import several_devices
from gpuplan.predict.steptime import StepTime
from gpuplan.units import Interval

ACCELERATORS = load_catalog().accelerators
SINGLE = StepTime(
    time_s=Interval(low=0.08, mid=0.1, high=0.125), basis="modelled", limiter="compute",
    parts_s={"compute": 0.1},
)  # fmt: skip


def test_a_host_copies_the_batches_of_all_its_devices() -> None:
    """A quarter of the single step is its batch: eight of them take twice as long as a step, and say so."""
    copying = replace(
        SINGLE, parts_s={"compute": 0.75 * SINGLE.time_s.mid, "input": 0.25 * SINGLE.time_s.mid}
    )
    volta = ACCELERATORS["V100-16GB"]
    free, fed = (
        several_devices(one, gradient_bytes=1e8, accelerator=volta, devices=8) for one in (SINGLE, copying)
    )
    assert isinstance(free, StepTime)
    assert isinstance(fed, StepTime)
    assert fed.time_s.mid >= 2.0 * SINGLE.time_s.mid > free.time_s.mid
    assert fed.limiter == "input"
    assert "the host copies the batches of all devices" in fed.note
    assert sum(fed.parts_s.values()) == pytest.approx(fed.time_s.mid)


def test_two_hosts_copy_half_each() -> None:
    """Eight devices in two machines: each host has four to feed, so that a step waits less."""
    copying = replace(SINGLE, parts_s={"compute": 0.075, "input": 0.025})
    machine = Machine(topology="switch", network_gbit_per_s=3200.0)
    one, two = (
        several_devices(
            copying, gradient_bytes=1e8, accelerator=ACCELERATORS["A100-40GB"], devices=8, machine=machine,
            hosts=hosts,
        )
        for hosts in (1, 2)
    )  # fmt: skip
    assert isinstance(one, StepTime)
    assert isinstance(two, StepTime)
    assert two.parts_s["input"] < one.parts_s["input"]
