"""Time of a pipeline: closed forms by hand, and laws."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.multi_device.collectives import ring_all_reduce_s
from gpuplan.predict.multi_device.data_parallel import (
    ANY_METHOD,
    compute_waiting_s,
    load_parallel_coefficients,
)
from gpuplan.predict.multi_device.interconnect import HostSpec
from gpuplan.predict.multi_device.pipeline_schedule import (
    compute_bubble_share,
    compute_pipeline_s,
    count_in_flight,
    cut_in_stages,
)
from gpuplan.predict.multi_device.pipeline_step import (
    PipelineLinks,
    PipelineTraffic,
    find_pipeline_links,
    scale_to_pipeline,
)
from gpuplan.predict.multi_device.sharded_step import compute_latency_s
from gpuplan.predict.multi_device.sharding import Sharding
from gpuplan.predict.step_time import StepTime
from gpuplan.units import Interval
from hypothesis import given
from hypothesis import strategies as st

ACCELERATORS = load_catalog().accelerators
FITTED = load_parallel_coefficients()["all_reduce"]
PASSES = StepTime(
    time_s=Interval(low=0.008, mid=0.01, high=0.0125),
    basis="modelled",
    limiter="compute",
    parts_s={"compute": 0.01},
)
QUIET = PipelineTraffic(boundary_bytes=(0, 0, 0), shared_bytes=0, gradient_bytes=10**9, replicas=1)
SWITCH = HostSpec(topology="switch", network_gbit_per_s=100.0)


def find_links(*, stages: int = 4, replicas: int = 1, hosts: int = 1) -> PipelineLinks:
    """Return links of pipelines over A100: NVSwitch, 300 GB/s each way, and a network of 12.5 GB/s a host."""
    found = find_pipeline_links(
        ACCELERATORS["A100-80GB"], stages=stages, replicas=replicas, machine=SWITCH, hosts=hosts
    )
    assert found is not None
    return found


def predict(links: PipelineLinks, traffic: PipelineTraffic = QUIET, *, micro_batches: int = 8) -> StepTime:
    return scale_to_pipeline(
        PASSES,
        update_s=0.003,
        transfer_s=0.001,
        micro_batches=micro_batches,
        sharding=Sharding(kind="pipeline", ways=links.stages),
        traffic=replace(traffic, replicas=links.replicas),
        links=links,
    )


@given(stages=st.integers(2, 64), micro_batches=st.integers(1, 512))
def test_more_micro_batches_never_wait_longer(stages: int, micro_batches: int) -> None:
    """(N - 1) / m of the work (Narayanan et al., 2021, section 2.2.1): (N - 1) / (m + N - 1) of the whole."""
    share = compute_bubble_share(stages=stages, micro_batches=micro_batches)

    assert compute_bubble_share(stages=stages, micro_batches=micro_batches + 1) < share
    assert share / (1.0 - share) == pytest.approx((stages - 1) / micro_batches)
    whole_s = compute_pipeline_s(1.0, stages=stages, micro_batches=micro_batches)
    assert whole_s * (1.0 - share) == pytest.approx(micro_batches)


@given(stages=st.integers(2, 64), micro_batches=st.integers(1, 512))
def test_the_first_stage_keeps_most_micro_batches(stages: int, micro_batches: int) -> None:
    """At most N of them, however many there are; the last stage one."""
    kept = [count_in_flight(one, stages=stages, micro_batches=micro_batches) for one in range(stages)]

    assert kept == sorted(kept, reverse=True)
    assert (kept[0], kept[-1]) == (min(stages, micro_batches), 1)


@given(
    costs=st.lists(st.floats(0.0, 100.0), min_size=4, max_size=8),
    cuts=st.lists(st.floats(0.0, 20.0), min_size=8, max_size=8),
    stages=st.integers(2, 4),
)
def test_no_other_partition_has_a_faster_slowest_stage(
    costs: list[float], cuts: list[float], stages: int
) -> None:
    """All partitions of up to eight layers, each cut with a cost on both of its sides."""

    def find_slowest(bounds: tuple[int, ...]) -> float:
        ends = [0.0, *(cuts[bound] for bound in bounds[1:-1]), 0.0]
        return max(
            sum(costs[first:end]) + ends[number] + ends[number + 1]
            for number, (first, end) in enumerate(pairwise(bounds))
        )

    found = cut_in_stages(costs, [cuts[: len(costs)]] * (stages - 1))
    every = combinations(range(1, len(costs)), stages - 1)
    best = min(find_slowest((0, *inner, len(costs))) for inner in every)
    assert len(set(found)) == stages + 1
    assert find_slowest(found) == pytest.approx(best)


def test_a_pipeline_by_hand() -> None:
    """(8 + 3) slots of 10 ms and 1 ms of transfers, and an update of 3 ms; one pipeline sums no gradients."""
    step = predict(find_links())

    assert step.time_s.mid == pytest.approx(11 * 0.011 + 0.003)
    assert step.parts_s["link"] == pytest.approx(11 * 0.001)
    assert sum(step.parts_s.values()) == pytest.approx(step.time_s.mid)
    assert step.note.startswith("pipeline:4 over 4 devices, by a schedule of your own, since Keras runs no")
    assert "4 stages work on 8 micro-batches in turn (1F1B), wait for 27% of the step" in step.note
    assert "torch.distributed.pipelining" in step.note


def test_replicas_and_shared_weights_sum_their_gradients() -> None:
    """A ring of two over NVLink for each, at the fitted share of 300 GB/s; nothing hides them."""
    links, way = find_links(replicas=2), FITTED.method(ANY_METHOD)
    shared = replace(QUIET, shared_bytes=10**9)
    rate = FITTED.shares.links["nvlink"] * 300e9
    latency_s = 2 * compute_latency_s(inside="nvlink", devices=2, hosts=1)
    ring_s = ring_all_reduce_s(message_bytes=1e9, devices=2, link_bytes_per_s=rate) + latency_s

    alone, twice, tied = predict(find_links()), predict(links), predict(links, shared)
    waiting_s = compute_waiting_s(11 * 0.01 + 0.003, devices=2, way=way)
    assert twice.time_s.mid - alone.time_s.mid == pytest.approx(ring_s + way.sync_s + waiting_s)
    assert tied.time_s.mid - twice.time_s.mid == pytest.approx(ring_s)
    assert "1 GB of gradients summed over 2 replicas" in twice.note
    assert "1 GB of gradients of shared weights" in tied.note


def test_boundaries_between_machines_take_their_network() -> None:
    """Four stages on two machines of two devices: the second of three boundaries leaves the machine."""
    links = find_links(hosts=2)
    inside_s = 1e9 / (FITTED.shares.links["nvlink"] * 300e9)
    inside_s += compute_latency_s(inside="nvlink", devices=2, hosts=1)
    between_s = 1e9 / (FITTED.shares.links["network"] * 12.5e9)
    between_s += compute_latency_s(inside="nvlink", devices=2, hosts=2)

    found = [links.compute_boundary_s(number, 1e9) for number in range(3)]
    assert found == pytest.approx([inside_s, between_s, inside_s])


def test_an_unknown_network_has_no_links() -> None:
    unknown = find_pipeline_links(
        ACCELERATORS["A100-80GB"], stages=4, replicas=1, machine=HostSpec(topology="switch"), hosts=2
    )
    assert unknown is None
