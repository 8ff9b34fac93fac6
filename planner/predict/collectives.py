"""Step on several devices: what they exchange, and what of it the work of each device does not hide.

Data parallelism, ZeRO, FSDP and tensor parallelism are lists of collectives. One law gives the time that they add,
with constants fitted on the all-reduces of data parallelism; steps of the others were not fitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..offers.rows import Accelerator
from ..records import Frozen
from ..units import GIGA, MIB, MICRO, MS_PER_S, Interval
from ..workload.model import Collective, DividedStep
from .data_parallel import (
    ANY_METHOD,
    BACKWARD_SHARE,
    ParallelCoefficients,
    compute_waiting_s,
    load_parallel_coefficients,
    ratio_scale,
)
from .interconnect import UNKNOWN_HOST, HostSpec, Link, LinkKind, exposed_s, find_slowest_link
from .sharding import Sharding, format_place
from .step_time import NoPrediction, StepTime, find_limiter, join_notes

Beside = Literal["", "backward pass", "layers"]
LINK_NAMES: Mapping[LinkKind, str] = {"nvlink": "NVLink", "pcie": "PCIe", "ici": "ICI", "network": "the network"}
# XLA merges smaller all-gathers and reduce-scatters of a program up to 30 MiB a message (openxla/xla@9b2cf8eb,
# `kDefaultAllGatherCombineThreshold` in xla/service/collective_utils.h).
COMBINED_BYTES = 30 * MIB
# Start of a message and latency of a step of its ring: NCCL's own model of its rings with large messages
# (NVIDIA/nccl@01afd20, src/graph/tuning.cc, `baseLat` and `hwLat`, Ring, Simple). A hop of a TPU's ICI takes about
# 1 microsecond, half of it on v5e (Austin et al., 2025, "How to Scale Your Model", chapter 3, questions 2 and 3,
# jax-ml/scaling-book@04d8de58 sharding.md).
MESSAGE_S = 8.4 * MICRO
HOP_S: Mapping[LinkKind, float] = {
    "nvlink": 3.4 * MICRO,
    "pcie": 5.7 * MICRO,
    "network": 9.6 * MICRO,
    "ici": 1.0 * MICRO,
}


class Exchange(Collective):
    """A collective of a step, with the work that runs beside it."""

    # work that may hide it: none, the `backward pass` as it hides a fitted all-reduce, or the `layers` of its own
    # phase, which hide all but one message
    beside: Beside = ""
    # messages one after the other, each with the latency of the ring; 0 if the fitted start of an exchange
    # contains it [-]
    messages: float = 0.0


def list_gradient_sums(gradient_bytes: float, *, devices: float) -> tuple[Exchange, ...]:
    """Return the all-reduce of data parallelism, of gradients as they are sent [bytes]; none without."""
    facts: dict[str, Any] = {"devices": devices, "message_bytes": gradient_bytes, "beside": "backward pass"}
    return (_build_exchange("all_reduce", "backward", **facts),) if gradient_bytes else ()


def list_shard_exchanges(
    sharding: Sharding, *, devices: float, reduced_bytes: float, gathered_bytes: float, messages: int
) -> tuple[Exchange, ...]:
    """Return the collectives of ZeRO or FSDP: gathers of weights, and a scatter of gradients.

    An all-gather or a reduce-scatter sends half as much as an all-reduce. ZeRO's stages 1 and 2 scatter the
    gradients and gather the updated weights: as much as the all-reduce (Rajbhandari et al., 2020, section 7.2.1),
    and as little of it is taken to be hidden. FSDP gathers the weights twice and scatters the gradients: 1.5 times
    as much where all have one type (section 7.2.2), beside the whole of both passes. Valid for gathers that are
    issued ahead of their use, as FSDP and XLA do.

    Args:
        reduced_bytes: Gradients of the whole model, as they are summed [bytes].
        gathered_bytes: Weights of the whole model, as they are gathered once [bytes].
        messages: Messages in which they are sent, each way [-].
    """
    phases: tuple[Any, ...] = ("forward", "backward") if sharding.shards_weights else ("update",)
    beside = "layers" if sharding.shards_weights else "backward pass"
    facts: dict[str, Any] = {"devices": devices, "beside": beside, "messages": messages}
    gathers = (_build_exchange("all_gather", one, message_bytes=gathered_bytes, **facts) for one in phases)
    return (*gathers, _build_exchange("reduce_scatter", "backward", message_bytes=reduced_bytes, **facts))


def _build_exchange(kind: Any, phase: Any, **facts: Any) -> Exchange:
    return Exchange(kind=kind, phase=phase, stride=1, count=1.0, replicas=True, **facts)


def list_mesh_exchanges(collectives: Sequence[Collective], *, host_devices: float) -> tuple[Exchange, ...]:
    """Return the collectives of a divided step with what hides them.

    A product waits for the sum of its operands, so that nothing hides the collectives between devices that share
    it. Sums of gradients and gathers of variables among replicas run beside the backward pass, as in data
    parallelism; small ones are sent together, as are those of the update.
    """
    found: list[Exchange] = []
    merged: dict[tuple[object, ...], list[Collective]] = {}
    for one in collectives:
        if one.replicas or one.phase == "update":
            ring = (one.replicas, one.passes, one.devices, count_hosts(one, host_devices))
            merged.setdefault(ring, []).append(one)
        else:
            found.append(Exchange(**vars(one), messages=one.count))
    for members in merged.values():
        messages = count_messages([one.message_bytes for one in members for _ in range(round(one.count))])
        for one in members:
            beside: Beside = "backward pass" if one.replicas else ""
            found.append(Exchange(**vars(one), beside=beside, messages=messages if one is members[0] else 0))
    return tuple(found)


def add_replicas(divided: DividedStep, gradient_bytes: int, *, copies: int) -> tuple[Collective, ...]:
    """Return the collectives of a divided step whose mesh is repeated, each copy with samples of its own.

    Args:
        gradient_bytes: Gradients that it holds, which are summed over the copies [bytes].
        copies: Meshes side by side [-].
    """
    if copies <= 1 or not gradient_bytes:
        return divided.collectives
    summed = Collective(
        kind="all_reduce",
        devices=copies,
        stride=divided.layout.devices,
        message_bytes=gradient_bytes,
        count=1.0,
        phase="backward",
        replicas=True,
    )
    return (*divided.collectives, summed)


def count_messages(layer_bytes: Sequence[float]) -> int:
    """Return the number of messages that send layers in their order, small neighbours together; at least 1 [-]."""
    messages, filled = 1, 0.0
    for size in layer_bytes:
        if filled and filled + size > COMBINED_BYTES:
            messages, filled = messages + 1, 0.0
        filled += size
    return messages


def count_hosts(one: Collective, host_devices: float) -> float:
    """Return the machines that the ring of a collective passes [-]."""
    return min(one.devices, max(1, math.ceil(one.devices * one.stride / host_devices)))


class RingLinks(Frozen):
    """Links of the rings of a mesh over the devices of one or more machines."""

    inside: Link  # slowest link within a machine
    whole: Link  # slowest link between all devices
    host_devices: float  # devices of a machine [-]
    # constants with the share of the datasheet rate that a collective reaches, by kind of link
    parallel: ParallelCoefficients

    def compute_transfer_s(self, one: Collective) -> float:
        """Return the time of the data of a collective, all its executions [s].

        Rings within a machine have links of their own. Those that leave it share its network ports: as many as lie
        side by side in it.
        """
        if count_hosts(one, self.host_devices) == 1:
            return one.sent_bytes / (self.inside.bytes_per_s * self.parallel.shares.links[self.inside.kind])
        rings = min(one.stride, self.host_devices) if self.whole.kind == "network" else 1.0
        return rings * one.sent_bytes / (self.whole.bytes_per_s * self.parallel.shares.links[self.whole.kind])

    def compute_latency_s(self, one: Collective) -> float:
        """Return the latency of one message of a collective, without its data [s].

        N - 1 steps a pass, of which H - 1 cross between machines (NCCL, `ncclTopoTuneModel`).
        """
        between = count_hosts(one, self.host_devices) - 1
        inside = one.devices - 1.0 - between
        return one.passes * (MESSAGE_S + inside * HOP_S[self.inside.kind] + between * HOP_S["network"])


def compute_link_s(
    exchanges: Sequence[Exchange],
    *,
    single_s: float,
    devices: float,
    links: RingLinks,
    backward_share: float = BACKWARD_SHARE,
    method: str = ANY_METHOD,
) -> float:
    """Return the time that the exchanges of a step add to the work of a device [s].

    What runs beside `layers` has one message without work beside it: the first gather of a pass, the last scatter
    ("The 1st all-gather will not be able to overlap with anything", PyTorch, "FSDP Notes",
    docs.pytorch.org/docs/stable/notes/fsdp.html). Every other one runs beside the work of the layer before it
    (Zhao et al., 2023, section 3.3).

    Args:
        links: Links of their rings, with constants fitted on all-reduces: overlap, waiting, start.
        backward_share: Backward share of the work, 0..1 [-].
        method: `ddp`, `horovod`, `mirrored`, `in_graph`, ...; others behave as the mean.
    """
    way, passes_s = links.parallel.method(method), {"backward": backward_share * single_s}
    passes_s["forward"] = single_s - passes_s["backward"]
    alone_s: dict[tuple[str, str], float] = {}
    messages: dict[tuple[str, str], float] = {}
    for one in exchanges:
        group = (one.beside, one.phase if one.beside == "layers" else "")
        one_s = links.compute_transfer_s(one) + one.messages * links.compute_latency_s(one)
        alone_s[group] = alone_s.get(group, 0.0) + one_s
        messages[group] = max(messages.get(group, 0.0), one.messages)
    open_s = 0.0
    for (beside, phase), exchange_s in alone_s.items():
        first_s, hidden_s = (exchange_s, 0.0) if not beside else (0.0, way.overlap * passes_s["backward"])
        if beside == "layers":
            first_s, hidden_s = exchange_s / messages[beside, phase], passes_s[phase]
        open_s += first_s + exposed_s(exchange_s=exchange_s - first_s, hidden_at_most_s=hidden_s)
    return compute_waiting_s(single_s, devices=devices, kind=links.whole.kind, way=way) + open_s + way.sync_s


def scale_to_devices(
    single: StepTime,
    exchanges: Sequence[Exchange],
    accelerator: Accelerator,
    *,
    devices: float,
    sharding: Sharding = Sharding.NONE,
    machine: HostSpec = UNKNOWN_HOST,
    hosts: int = 1,
) -> StepTime | NoPrediction:
    """Return the step on several devices, each with the work of the single one.

    Inference without gradients to sum is the step on one device. Batches are taken to be copied to all devices
    side by side, each over its own slot.

    Args:
        single: The work of one device: its batch, or its share of the products, and its part of the update.
        devices: Of all hosts; 1 and less: the single step, unless products are divided [-].
        machine: How the devices of a host are joined; by default as the accelerator usually is.
    """
    if (devices <= 1 and not sharding.divides_products) or (sharding == Sharding.NONE and not exchanges):
        return single
    inside = find_slowest_link(accelerator, devices=devices / hosts, machine=machine)
    whole = find_slowest_link(accelerator, devices=devices, machine=machine, hosts=hosts)
    if inside is None or whole is None:
        where = f"{hosts} such machines" if hosts > 1 else f"{accelerator.name} devices"
        return NoPrediction(f"the rate of the link between {where} is not known")
    constants = load_parallel_coefficients()["all_reduce"]
    links = RingLinks(inside=inside, whole=whole, host_devices=devices / hosts, parallel=constants)
    link_s = compute_link_s(exchanges, single_s=single.time_s.mid, devices=devices, links=links)
    if sharding == Sharding.NONE:
        over = LINK_NAMES[whole.kind] + " (its share of the datasheet rate is assumed)" * (whole.kind == "ici")
        where = f" in {hosts} machines" if hosts > 1 else ""
        note = f"data parallel: gradients of {devices:g} devices{where} summed over {over}"
    else:
        over = LINK_NAMES[whole.kind] + ", its share of the datasheet rate assumed" * (whole.kind == "ici")
        own = f"; {sharding.duty}" if sharding.duty else ""
        sent = f"{_describe_sent(exchanges, sharding)} over {over}, which adds {link_s * MS_PER_S:.3g} ms{own}"
        note = f"{format_place(sharding, devices=devices, hosts=hosts)}: {sent}"
    return extend_step(single, link_s, parallel=constants, note=note)


def _describe_sent(exchanges: Sequence[Exchange], sharding: Sharding) -> str:
    """Return in words what is sent in a step."""
    if sharding.divides_products:
        shared, between = (
            sum(one.sent_bytes for one in exchanges if one.replicas is replicas) / GIGA
            for replicas in (False, True)
        )
        replicas = f", and {between:.3g} GB for its replicas" if between else ""
        return f"in a step, each sends {shared:.3g} GB for the products that it shares{replicas}"
    gathered, reduced = (exchanges[place].message_bytes / GIGA for place in (0, -1))
    when = "in the forward and the backward pass" if sharding.shards_weights else "after the update"
    return f"a step gathers {gathered:.3g} GB of weights {when} and scatters {reduced:.3g} GB of gradients"


def extend_step(single: StepTime, link_s: float, *, parallel: ParallelCoefficients, note: str) -> StepTime:
    """Return the step of several devices: the step of one with a further part, and a wider interval."""
    one, parts = single.time_s, {**single.parts_s, "link": single.parts_s.get("link", 0.0) + link_s}
    mid = one.mid + link_s
    # The interval around a product of two independent factors: log widths add up as squares.
    shortest, longest = (end * ratio_scale(mid / one.mid) for end in parallel.interval)
    below = math.hypot(math.log(one.mid / one.low), min(shortest, 0.0))
    above = math.hypot(math.log(one.high / one.mid), max(longest, 0.0))
    return StepTime(
        time_s=Interval(low=mid * math.exp(-below), mid=mid, high=mid * math.exp(above)),
        basis=single.basis,
        parts_s=parts,
        limiter=find_limiter(parts),
        note=join_notes(single.note, note),
        memory=single.memory,
    )
