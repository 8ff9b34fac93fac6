"""Defaults from the distribution of a script, by hand and without a script."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from factories import make_product, make_workload
from gpuplan.errors import NoAnswerError
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.context import follow_script, select_mesh_offers, select_named_machines
from gpuplan.plan.memory import build_device_workload, compute_device_memory
from gpuplan.plan.question import EstimateContext, Filters, Question, select
from gpuplan.predict.collectives import RingLinks, add_replicas, compute_link_s, count_hosts, list_mesh_exchanges
from gpuplan.predict.data_parallel import load_parallel_coefficients
from gpuplan.predict.interconnect import Link
from gpuplan.predict.sharding import Sharding
from gpuplan.workload.model import Collective, DeviceLayout, DividedStep, Memory, VariableBytes, Workload

WHOLE = VariableBytes(parameters=800, optimizer=1600, state=8)
EACH = VariableBytes(parameters=200, optimizer=400, state=8)
COPIES = DeviceLayout(devices=8, replicas=8, takes_all=False, whole=WHOLE, each=WHOLE)
DIVIDED = DeviceLayout(devices=8, replicas=2, takes_all=False, whole=WHOLE, each=EACH)


def lay_out(layout: DeviceLayout | None, **facts: object) -> Workload:
    return replace(make_workload(**facts), layout=layout, distribution="ModelParallel")


@pytest.mark.parametrize(
    ("layout", "question", "expected"),
    [
        (None, Question(), ("strong", Sharding.NONE)),
        (COPIES, Question(), ("strong", Sharding.NONE)),
        (replace(COPIES, keeps_batch=True), Question(), ("weak", Sharding.NONE)),
        (replace(COPIES, keeps_batch=True), Question(scaling="strong"), ("strong", Sharding.NONE)),
        (DIVIDED, Question(), ("strong", Sharding.SCRIPT)),
        (DIVIDED, Question(scaling="weak"), ("weak", Sharding.SCRIPT)),
        (DIVIDED, Question(shard=(Sharding.NONE,)), ("strong", Sharding.NONE)),
        (COPIES, Question(shard=(Sharding.FSDP,)), ("strong", Sharding.FSDP)),
    ],
)
def test_the_script_fills_in_what_the_user_left_open(
    layout: DeviceLayout | None, question: Question, expected: tuple[str, Sharding]
) -> None:
    followed = follow_script(question, lay_out(layout))

    assert (followed.scaling, *(followed.shard or ())) == expected


def test_offers_are_those_with_the_devices_of_the_mesh() -> None:
    """A chip of TPU v3 is two devices to JAX: a mesh of eight is one of v3-8, with four chips."""
    everything = select(Filters(include_local=False), catalog=load_catalog())

    left = select_mesh_offers(everything, Filters(), lay_out(DIVIDED)).offers
    assert {one.mesh_devices for one in left} == {8.0}
    assert {one.offer.devices for one in left if one.offer.accelerator == "TPU-v3"} == {4.0}
    for layout, filters in ((DIVIDED, Filters(devices=(4,))), (replace(COPIES, takes_all=True), Filters())):
        assert select_mesh_offers(everything, filters, lay_out(layout)) is everything
    with pytest.raises(NoAnswerError, match="over 7 devices, which none of the selected offers has"):
        select_mesh_offers(everything, Filters(), lay_out(replace(DIVIDED, devices=7)))


def test_a_device_runs_the_step_of_its_own_shapes() -> None:
    """A quarter of the weights, of their gradients and of their state; operations and activations are its own."""
    memory = Memory(
        parameter_bytes=800,
        gradient_bytes=800,
        optimizer_bytes=1600,
        state_bytes=8,
        input_bytes=64,
        activation_bytes=640,
    )
    whole = tuple(make_product(flops=100.0, phase=phase, layer="dense") for phase in ("forward", "update"))
    local = tuple(replace(op, flops=30.0) for op in whole)
    divided = DividedStep(
        layout=DIVIDED,
        ops=local,
        memory=replace(memory, activation_bytes=200),
        fused_attention=None,
        collectives=(),
    )
    workload = lay_out(DIVIDED, memory=memory, ops=whole, divided=divided)

    held = compute_device_memory(workload, Sharding.SCRIPT, 8)
    assert (held.weights, held.gradients, held.optimizer, held.state) == (200, 200, 400, 8)
    each = build_device_workload(workload, Sharding.SCRIPT, 8)
    assert each.ops == local
    assert (each.memory.compute_fixed_bytes(compiled=True), each.memory.batch_bytes) == (held.total_bytes, 264)


def make_collective(**facts: object) -> Collective:
    known = {"kind": "all_reduce", "devices": 8, "stride": 1, "message_bytes": 0, "count": 1.0}
    return Collective(**{**known, "phase": "forward", "replicas": False, **facts})


def test_collectives_take_what_they_send_over_the_link_and_are_not_hidden() -> None:
    """Law: without collectives, waiting and start alone; twice the bytes take twice the time without latency."""
    parallel = load_parallel_coefficients()["all_reduce"]
    nvlink = Link(kind="nvlink", bytes_per_s=100e9)
    links = RingLinks(inside=nvlink, whole=nvlink, host_devices=8, parallel=parallel)

    def added_s(*collectives: Collective) -> float:
        exchanges = list_mesh_exchanges(collectives, host_devices=8)
        with_them, without = (
            compute_link_s(some, single_s=0.1, devices=8, links=links) for some in (exchanges, ())
        )
        return with_them - without

    rate, latency_s = 100e9 * parallel.shares.links["nvlink"], 2 * (8.4e-6 + 7 * 3.4e-6)
    assert added_s(make_collective(message_bytes=10**9)) == pytest.approx(2 * 7 / 8 * 1e9 / rate + latency_s)
    assert added_s(make_collective(count=10.0)) == pytest.approx(10 * latency_s)
    small = make_collective(phase="update", count=10.0)
    assert added_s(small) == pytest.approx(latency_s)
    gradients = make_collective(message_bytes=10**9, phase="backward", replicas=True)
    assert 0 < added_s(gradients) < added_s(make_collective(message_bytes=10**9))


def test_rings_side_by_side_share_the_network_of_a_machine() -> None:
    """Groups of 4 on machines of 8: 4 rings of their replicas pass a port; the groups stay within a machine."""
    parallel = load_parallel_coefficients()["all_reduce"]
    inside, network = Link(kind="nvlink", bytes_per_s=100e9), Link(kind="network", bytes_per_s=50e9)
    links = RingLinks(inside=inside, whole=network, host_devices=8, parallel=parallel)
    group = make_collective(devices=4, message_bytes=10**9)
    between = make_collective(devices=4, stride=4, message_bytes=10**9)

    assert (count_hosts(group, 8), count_hosts(between, 8)) == (1, 2)
    shares = parallel.shares.links
    assert links.compute_transfer_s(group) == pytest.approx(1.5e9 / (100e9 * shares["nvlink"]))
    assert links.compute_transfer_s(between) == pytest.approx(4 * 1.5e9 / (50e9 * shares["network"]))


def test_copies_of_a_mesh_sum_their_gradients() -> None:
    """Three meshes of eight devices: one more all-reduce over three, eight devices apart; none for one mesh."""
    own = make_collective(message_bytes=64)
    memory = make_workload().memory
    divided = DividedStep(layout=DIVIDED, ops=(), memory=memory, fused_attention=None, collectives=(own,))

    assert add_replicas(divided, 4096, copies=1) == (own,)
    assert add_replicas(divided, 0, copies=3) == (own,)
    expected = make_collective(devices=3, stride=8, message_bytes=4096, phase="backward", replicas=True)
    assert add_replicas(divided, 4096, copies=3) == (own, expected)
    assert add_replicas(divided, 4096, copies=2) == (own, replace(expected, devices=2))


def name_machines(named: tuple[str, ...], filters: Filters) -> EstimateContext:
    """Return a context of a script that names machines, of which only workload and offers are looked at."""
    selection = select(replace(filters, include_local=False), catalog=load_catalog())
    workload: Any = replace(make_workload(), named_machines=named)
    unused: Any = None
    return EstimateContext(
        workload=workload, selection=selection, options=unused, predictor=unused, catalog=unused, terms=unused
    )


@pytest.mark.parametrize(
    ("named", "filters", "expected"),
    [
        (("tpu-v5e-8",), Filters(), {("TPU-v5e", 8.0, "on_demand")}),
        (("gpu-l4:spot",), Filters(), {("L4", 1.0, "spot")}),
        (("gpu-l4",), Filters(purchase="spot"), {("L4", 1.0, "spot")}),
        (("l4", "a100x2"), Filters(), {("L4", 1.0, "on_demand"), ("A100-40GB", 2.0, "on_demand")}),
    ],
)
def test_the_machines_that_kinetic_names(
    named: tuple[str, ...], filters: Filters, expected: set[tuple[str, float, str]]
) -> None:
    """At Google Cloud alone, bought as the decorator says unless `--purchase` says otherwise; a note says so."""
    found = select_named_machines(name_machines(named, filters), filters)
    left = [one.offer for one in found.selection.offers]

    assert {(one.accelerator, one.devices, one.purchase) for one in left} == expected
    assert {one.provider for one in left} == {"gcp"}
    assert all(f"`{name}`" in found.workload.notes[-1] for name in named)


@pytest.mark.parametrize(
    ("named", "filters"),
    [
        ((), Filters()), (("cpu",), Filters()), (("l4",), Filters(accelerators=("T4",))),
        (("l4",), Filters(providers=("aws",))), (("l4",), Filters(devices=(1.0,))),
    ],
)  # fmt: skip
def test_what_the_user_chose_comes_before_kinetic(named: tuple[str, ...], filters: Filters) -> None:
    """And a script without a name, or on a CPU, is planned everywhere."""
    everything = name_machines(named, Filters())

    assert select_named_machines(everything, filters) is everything
