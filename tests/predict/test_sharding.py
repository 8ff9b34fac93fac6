"""Time of sharded steps: closed forms by hand, ZeRO's volumes, and laws."""

from __future__ import annotations

import math

import pytest
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.collectives import (
    HOP_S,
    MESSAGE_S,
    Exchange,
    RingLinks,
    compute_link_s,
    count_messages,
    list_mesh_exchanges,
    list_shard_exchanges,
    scale_to_devices,
)
from gpuplan.predict.data_parallel import (
    ExchangeCoefficients,
    MethodCoefficients,
    ParallelCoefficients,
    load_parallel_coefficients,
)
from gpuplan.predict.interconnect import HOST_SPECS, HostSpec, Link
from gpuplan.predict.sharding import (
    EVERY_SHARDING,
    Sharding,
    describe_sharding,
    format_sharding,
    parse_sharding,
    read_sharding,
)
from gpuplan.predict.step_time import NoPrediction, StepTime
from gpuplan.units import MIB, Interval
from gpuplan.workload.model import Collective
from hypothesis import given
from hypothesis import strategies as st

from lab.multi_device.fit import compute_overhead_parts_s

ACCELERATORS = load_catalog().accelerators
NVLINK = Link(kind="nvlink", bytes_per_s=100e9)
BARE = ParallelCoefficients(  # nothing hides, nothing waits: the ring alone
    shares=ExchangeCoefficients(
        links={"nvlink": 0.5, "network": 0.5}, decoded_per_s_per_core=100.0, sharpness=8.0
    ),
    methods={"": MethodCoefficients(slowdown=0.0, sync_s=0.0, overlap=0.0)},
)
FITTED = load_parallel_coefficients()["all_reduce"]
SINGLE = StepTime(
    time_s=Interval(low=0.08, mid=0.1, high=0.125), basis="modelled", limiter="compute", parts_s={"compute": 0.1}
)
SHARDED = EVERY_SHARDING[1:]


def share(
    sharding: Sharding, size_bytes: float = 1e9, messages: int = 1, *, devices: int = 8
) -> tuple[Exchange, ...]:
    """Return what is exchanged of weights and gradients of one size and type."""
    return list_shard_exchanges(
        sharding, devices=devices, reduced_bytes=size_bytes, gathered_bytes=size_bytes, messages=messages
    )


@pytest.mark.parametrize(("sharding", "times"), [("zero1", 1.0), ("zero2", 1.0), ("fsdp", 1.5)])
def test_volumes_are_those_of_zero(sharding: str, times: float) -> None:
    """Rajbhandari et al., 2020, section 7.2: stages 1 and 2 send as much as an all-reduce, stage 3 1.5 times.

    Where there is no work to hide behind, all the rest is the latency of the messages: 2, or 3.
    """
    links = RingLinks(inside=NVLINK, whole=NVLINK, host_devices=8, parallel=BARE)
    link_s = compute_link_s(share(parse_sharding(sharding)[0]), single_s=0.0, devices=8, links=links)
    all_reduce_s = 2 * 7 / 8 * 1e9 / 50e9
    latency_s = 2 * times * (MESSAGE_S + 7 * HOP_S["nvlink"])

    assert link_s == pytest.approx(times * all_reduce_s + latency_s)


def test_latency_of_machines_by_hand() -> None:
    """16 devices in 2 machines: 14 hops inside, one between, for each of 10 messages in 3 exchanges."""
    network = Link(kind="network", bytes_per_s=50e9)
    links = RingLinks(inside=NVLINK, whole=network, host_devices=8, parallel=BARE)
    exchanges = share(Sharding.FSDP, size_bytes=0.0, messages=10, devices=16)
    link_s = compute_link_s(exchanges, single_s=0.0, devices=16, links=links)

    assert link_s == pytest.approx(30 * (8.4e-6 + 14 * 3.4e-6 + 9.6e-6))


def test_small_layers_share_a_message() -> None:
    """Up to 30 MiB go together; a larger one goes alone; nothing at all is one message."""
    assert count_messages([MIB] * 60) == 2
    assert count_messages([100 * MIB, MIB, MIB, 100 * MIB]) == 3
    assert count_messages([]) == 1


sizes = st.floats(1e3, 1e12)
seconds = st.floats(1e-4, 1e3)


def compute_added_s(
    exchanges: tuple[Exchange, ...], *, single_s: float, devices: int, backward: float = 2 / 3
) -> float:
    """Return what NVLink adds by the fitted constants."""
    links = RingLinks(inside=NVLINK, whole=NVLINK, host_devices=devices, parallel=FITTED)
    return compute_link_s(exchanges, single_s=single_s, devices=devices, links=links, backward_share=backward)


@given(
    sharding=st.sampled_from(SHARDED),
    reduced=sizes,
    gathered=sizes,
    messages=st.integers(1, 1000),
    single_s=seconds,
    devices=st.integers(2, 1024),
    backward=st.floats(0.05, 0.95),
)
def test_no_sharding_is_faster_than_perfect_scaling(
    *,
    sharding: Sharding,
    reduced: float,
    gathered: float,
    messages: int,
    single_s: float,
    devices: int,
    backward: float,
) -> None:
    """Law: to the work of each device something is added, and never more than if nothing were hidden."""
    exchanges = list_shard_exchanges(
        sharding, devices=devices, reduced_bytes=reduced, gathered_bytes=gathered, messages=messages
    )
    link_s = compute_added_s(exchanges, single_s=single_s, devices=devices, backward=backward)
    nothing_hidden_s = compute_added_s(exchanges, single_s=0.0, devices=devices)
    waiting_s = FITTED.methods[""].slowdown * single_s * math.log2(devices)

    assert 0.0 < link_s <= (nothing_hidden_s + waiting_s) * (1 + 1e-9)


@given(size=sizes, devices=st.integers(2, 1024), messages=st.integers(1, 1000))
def test_without_work_to_hide_behind_more_sharding_takes_longer(size: float, devices: int, messages: int) -> None:
    """Law for one type of weights and gradients: an all-reduce, ZeRO 1 and 2, FSDP."""
    copies = compute_overhead_parts_s(
        single_s=1e-12, devices=devices, gradient_bytes=size, link=NVLINK, parallel=FITTED
    )["link"]
    zero1, zero2, fsdp = (
        compute_added_s(share(one, size, messages, devices=devices), single_s=1e-12, devices=devices)
        for one in SHARDED
    )

    assert copies <= zero1 * (1 + 1e-9)
    assert zero1 == zero2 <= fsdp * (1 + 1e-9)


def test_the_step_says_what_is_sent_and_what_it_costs() -> None:
    """Parts add up to the middle of the interval; the note names sharding, devices, sizes and link."""
    step = scale_to_devices(
        SINGLE,
        share(Sharding.FSDP, 2e9, devices=16),
        sharding=Sharding.FSDP,
        accelerator=ACCELERATORS["A100-80GB"],
        devices=16,
        machine=HOST_SPECS["p4d.24xlarge"],
        hosts=2,
    )

    assert isinstance(step, StepTime)
    assert sum(step.parts_s.values()) == pytest.approx(step.time_s.mid)
    assert step.note.startswith(
        "fsdp over 16 devices in 2 machines: a step gathers 2 GB of weights in the forward"
    )
    assert "over the network" in step.note


def test_one_device_shares_with_none_and_an_unknown_network_has_no_time() -> None:
    """The single step itself; and the reason."""
    asked = {"sharding": Sharding.ZERO2, "accelerator": ACCELERATORS["A100-80GB"]}
    exchanges = share(Sharding.ZERO2)

    assert scale_to_devices(SINGLE, exchanges, devices=1, **asked) is SINGLE  # type: ignore[arg-type]
    unknown = scale_to_devices(SINGLE, exchanges, devices=16, hosts=2, machine=HostSpec(), **asked)  # type: ignore[arg-type]
    assert isinstance(unknown, NoPrediction)
    assert "the rate of the link" in unknown.reason


@pytest.mark.parametrize("text", ["none", "zero1", "zero2", "fsdp", "auto", "fsdp,tensor:4"])
def test_words_are_read_and_written(text: str) -> None:
    """The words of the contract."""
    assert format_sharding(parse_sharding(text)) == text


@pytest.mark.parametrize(
    ("text", "held", "duty"),
    [
        ("zero1", "optimizer state in parts", "the script must shard them itself"),
        ("zero2", "gradients and optimizer state in parts", "the script must shard them itself"),
        ("fsdp", "weights, gradients and optimizer state in parts", "the script must shard them itself"),
        ("tensor:4", "products of layers in parts", "the script must divide them itself"),
        ("script", "in parts what the script's own layout divides", ""),
    ],
)
def test_a_plan_says_in_a_line_what_its_script_has_to_shard(text: str, held: str, duty: str) -> None:
    """What ZeRO's stages divide (Rajbhandari et al., 2020, figure 1); the duty in the words of the step's note."""
    sharding = read_sharding(text)
    line = describe_sharding(sharding, devices=16, hosts=2)

    assert str(sharding) == text
    assert line.startswith(f"{text} over 16 devices in 2 machines: {held}")
    assert "\n" not in line
    assert (duty in line, sharding.duty) == (True, duty)


def test_the_note_of_a_step_names_the_same_duty() -> None:
    step = scale_to_devices(
        SINGLE,
        share(Sharding.ZERO1),
        sharding=Sharding.ZERO1,
        accelerator=ACCELERATORS["A100-80GB"],
        devices=8,
        machine=HOST_SPECS["p4d.24xlarge"],
    )

    assert isinstance(step, StepTime)
    assert step.note.startswith("zero1 over 8 devices: ")
    assert step.note.endswith(Sharding.ZERO1.duty)


def test_copies_have_no_line() -> None:
    assert describe_sharding(Sharding.NONE, devices=8, hosts=1) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensor", "tensor parallelism needs a number of devices from 2"),
        ("tensor:1", "tensor parallelism needs a number of devices from 2"),
        ("tensor:x", "tensor parallelism needs a number of devices from 2"),
        ("tensor:2,tensor:4", "has several numbers of devices for tensor parallelism"),
        ("pipeline", "Keras runs no pipelines of layers"),
        ("fsdp,pipeline:4", "Keras runs no pipelines of layers"),
        ("zero3", "is none of none, zero1, zero2, fsdp, tensor:N, auto"),
        ("", "is none of"),
    ],
)
def test_other_words_are_refused(text: str, message: str) -> None:
    """One line with the way out, exit code 2."""
    with pytest.raises(UsageError, match=message) as caught:
        parse_sharding(text)
    assert caught.value.exit_code == 2
    assert caught.value.hint


@pytest.mark.parametrize(("name", "is_assumed"), [("TPU-v4", True), ("A100-80GB", False)])
def test_the_rate_between_tpus_is_said_to_be_assumed(name: str, is_assumed: bool) -> None:
    """No step of several TPUs that share their products was fitted; rings of GPUs were."""
    sums = Collective(
        kind="all_reduce", devices=4, stride=1, message_bytes=2**20, count=1.0, phase="forward", replicas=False
    )
    step = scale_to_devices(
        SINGLE,
        list_mesh_exchanges([sums], host_devices=4),
        sharding=Sharding(kind="tensor", ways=4),
        accelerator=ACCELERATORS[name],
        devices=4,
    )

    assert isinstance(step, StepTime)
    assert ("its share of the datasheet rate assumed" in step.note) is is_assumed
