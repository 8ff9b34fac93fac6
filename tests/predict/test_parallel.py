"""Several devices: closed forms and laws."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.collectives import list_gradient_sums, scale_to_devices
from gpuplan.predict.data_parallel import (
    ExchangeCoefficients,
    MethodCoefficients,
    ParallelCoefficients,
    load_parallel_coefficients,
    ratio_scale,
)
from gpuplan.predict.interconnect import HOST_SPECS, HostSpec, Link, exposed_s, find_slowest_link
from gpuplan.predict.step_time import NoPrediction, StepTime
from gpuplan.units import Interval
from hypothesis import given
from hypothesis import strategies as st

from lab.multi_device.fit import compute_overhead_parts_s, compute_parallel_step_s
from lab.quantiles import compute_nested_log_bounds

ACCELERATORS = load_catalog().accelerators
NVLINK = Link(kind="nvlink", bytes_per_s=100e9)
BARE = ParallelCoefficients(  # nothing hides, nothing waits: the ring alone
    shares=ExchangeCoefficients(links={"nvlink": 0.5}, decoded_per_s_per_core=100.0, sharpness=8.0),
    methods={"": MethodCoefficients(slowdown=0.0, sync_s=0.0, overlap=0.0)},
)
SINGLE = StepTime(
    time_s=Interval(low=0.08, mid=0.1, high=0.125), basis="modelled", limiter="compute", parts_s={"compute": 0.1}
)


def test_without_overlap_the_ring_adds_up() -> None:
    """Four devices, 1 GB at half of 100 GB/s: 0.1 s of work and 2 x 3/4 x 1 / 50 s of ring."""
    step_s = compute_parallel_step_s(single_s=0.1, devices=4, gradient_bytes=1e9, link=NVLINK, parallel=BARE)
    assert step_s == pytest.approx(0.1 + 0.03)


def test_accumulation_shares_one_exchange_among_passes() -> None:
    """Ten passes to an exchange: each carries a tenth of it."""
    parts = compute_overhead_parts_s(
        single_s=0.1, devices=4, gradient_bytes=1e9, link=NVLINK, parallel=BARE, accumulation=10
    )
    assert parts["link"] == pytest.approx(0.003)


def test_a_host_that_decodes_too_slowly_sets_the_pace() -> None:
    """8 x 256 images at 100 a second on each of 10 cores take 2.048 s, whatever the devices can do."""
    step_s = compute_parallel_step_s(
        single_s=0.1,
        devices=8,
        gradient_bytes=0.0,
        link=NVLINK,
        parallel=BARE,
        decoded_samples=256.0,
        cpu_cores=10,
    )
    assert step_s == pytest.approx(8 * 256 / 1000, rel=1e-3)


def test_what_hides_is_a_smooth_minimum() -> None:
    """Exchange and room of equal length: 1 / cbrt(2) hides. No exchange: nothing is exposed."""
    assert exposed_s(exchange_s=1.0, hidden_at_most_s=1.0) == pytest.approx(1 - 2 ** (-1 / 3))
    assert exposed_s(exchange_s=0.0, hidden_at_most_s=1.0) == 0.0


@pytest.mark.parametrize(
    ("accelerator", "machine", "devices", "hosts", "kind", "gb_per_s"),
    [
        ("V100-16GB", "DGX-1", 8, 1, "nvlink", 150.0),  # six links of 25 GB/s
        ("V100-16GB", "DGX-1", 2, 1, "nvlink", 25.0),  # one of them joins two neighbours
        ("V100-32GB", "DGX-2", 2, 1, "nvlink", 150.0),  # a switch: all of them
        ("P100-SXM2", "DGX-1", 4, 1, "nvlink", 60.0),  # three of four links of 20 GB/s
        ("A100-40GB-PCIe", "", 4, 1, "pcie", 31.5),
        ("K80", "p2.8xlarge", 4, 1, "pcie", 15.75 / 2),  # two dies behind a slot
        ("K80", "p2.8xlarge", 16, 2, "network", 1.25),
        ("T4", "g4dn.12xlarge", 4, 1, "pcie", 15.75),
        ("TPU-v3", "", 4, 1, "ici", 328.0),
        ("A100-40GB", "DGX A100", 16, 2, "network", 200.0),  # eight adapters of 200 Gbit/s
    ],
)
def test_the_slowest_link_of_published_machines(  # noqa: PLR0917
    accelerator: str, machine: str, devices: int, hosts: int, kind: str, gb_per_s: float
) -> None:
    """Datasheets and topologies named in the module's docstring."""
    link = find_slowest_link(
        ACCELERATORS[accelerator], devices=devices, machine=HOST_SPECS.get(machine, HostSpec()), hosts=hosts
    )
    assert link is not None
    assert (link.kind, link.bytes_per_s) == (kind, pytest.approx(gb_per_s * 1e9))


def test_an_unknown_network_is_not_guessed() -> None:
    """Two hosts of an unknown kind: no link, no prediction."""
    found = scale_to_devices(
        SINGLE, list_gradient_sums(1e8, devices=2), accelerator=ACCELERATORS["T4"], devices=2, hosts=2
    )
    assert isinstance(found, NoPrediction)


circumstances = {
    "single_s": st.floats(1e-3, 10.0),
    "devices": st.integers(2, 64),
    "gradient_bytes": st.floats(1e3, 1e11),
    "rate": st.floats(1e8, 1e12),
    "method": st.sampled_from(["", "ddp", "horovod", "mirrored", "in_graph", "new"]),
}


@given(**circumstances)
def test_several_devices_are_never_faster_than_their_number(
    single_s: float, devices: int, gradient_bytes: float, rate: float, method: str
) -> None:
    """Parallel efficiency is at most one: a step is never shorter than one device's."""
    step_s = compute_parallel_step_s(
        single_s=single_s,
        devices=devices,
        gradient_bytes=gradient_bytes,
        method=method,
        link=Link(kind="nvlink", bytes_per_s=rate),
        parallel=load_parallel_coefficients()["all_reduce"],
    )
    assert step_s >= single_s


@given(**circumstances, faster=st.floats(1.0, 100.0))
def test_more_bandwidth_is_never_slower(  # noqa: PLR0917
    single_s: float, devices: int, gradient_bytes: float, rate: float, method: str, faster: float
) -> None:
    """The same step over a faster link of the same kind takes at most as long."""

    def over(bytes_per_s: float) -> float:
        return compute_parallel_step_s(
            single_s=single_s,
            devices=devices,
            gradient_bytes=gradient_bytes,
            method=method,
            link=Link(kind="pcie", bytes_per_s=bytes_per_s),
            parallel=load_parallel_coefficients()["all_reduce"],
        )

    assert over(rate * faster) <= over(rate) * (1 + 1e-9)


@given(message=st.floats(0.0, 1e11), devices=st.integers(1, 128))
def test_a_ring_never_sends_more_than_twice_the_message(message: float, devices: int) -> None:
    """2 (N - 1) / N is below two for any number of devices."""
    assert sum(one.sent_bytes for one in list_gradient_sums(message, devices=devices)) <= 2 * message


def test_one_device_is_the_single_step() -> None:
    """N = 1 returns the very step."""
    found = scale_to_devices(
        SINGLE, list_gradient_sums(1e8, devices=1), accelerator=ACCELERATORS["V100-16GB"], devices=1
    )
    assert found is SINGLE


def test_the_parts_add_up_and_the_interval_widens() -> None:
    """Parts sum to the central estimate; eight devices are known less well than one."""
    found = scale_to_devices(
        SINGLE, list_gradient_sums(1e8, devices=8), accelerator=ACCELERATORS["V100-16GB"], devices=8
    )
    assert isinstance(found, StepTime)
    time_s = found.time_s
    assert sum(found.parts_s.values()) == pytest.approx(time_s.mid)
    assert time_s.high / time_s.mid > SINGLE.time_s.high / SINGLE.time_s.mid
    assert time_s.mid / time_s.low > SINGLE.time_s.mid / SINGLE.time_s.low


def test_a_broken_file_of_constants_is_named(tmp_path: Path) -> None:
    """One line with the file and the command to rebuild it."""
    path = tmp_path / "parallel.json"
    path.write_text("{}")
    with pytest.raises(UsageError, match=r"parallel\.json"):
        load_parallel_coefficients(path)


def test_predictions_wait_for_nobody() -> None:
    """No gradients, no exchange: eight devices take as long as one, each for its own batch."""
    v100 = ACCELERATORS["V100-16GB"]
    several = scale_to_devices(SINGLE, list_gradient_sums(0, devices=8), accelerator=v100, devices=8)
    trained = scale_to_devices(SINGLE, list_gradient_sums(1e8, devices=8), accelerator=v100, devices=8)
    assert several == SINGLE
    assert isinstance(trained, StepTime)
    assert trained.time_s.mid > SINGLE.time_s.mid


@pytest.mark.parametrize(("ratio", "scale"), [(1.0, 0.05), (0.9, 0.05), (math.e, 1.05)])
def test_what_devices_add_is_known_to_a_share_of_itself(ratio: float, scale: float) -> None:
    """By hand: the logarithm of the ratio and a twentieth."""
    assert ratio_scale(ratio) == pytest.approx(scale)


def test_intervals_of_few_groups_reach_out_to_the_odd_one() -> None:
    """Three like groups and one apart: its interval holds more than the plain percentiles would."""
    logs = [0.01 * i for i in range(-5, 6)] * 3 + [0.4 + 0.01 * i for i in range(-5, 6)]
    groups = [name for name in "abcd" for _ in range(11)]
    low, high = compute_nested_log_bounds(logs, groups)
    assert low <= -0.05
    assert high >= 0.45
