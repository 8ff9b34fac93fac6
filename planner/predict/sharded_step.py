"""Time of a step whose weights, optimizer state or products several devices share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..offers.rows import Accelerator
from ..records import Frozen
from ..units import GIGA, MIB, MICRO, MS_PER_S
from ..workload.model import Collective, DividedStep
from .data_parallel import (
    ANY_METHOD,
    BACKWARD_SHARE,
    LINK_NAMES,
    ParallelCoefficients,
    compute_waiting_s,
    extend_step,
    find_ring_links,
    load_parallel_coefficients,
)
from .interconnect import UNKNOWN_HOST, HostSpec, Link, LinkKind, exposed_s, ring_pass_s
from .sharding import Sharding, format_place
from .step_time import NoPrediction, StepTime

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


class ShardedTraffic(Frozen):
    """Data that the devices exchange in one step.

    Args:
        sharding: Sharding of the model.
        reduced_bytes: Gradients of the whole model, as they are summed [bytes].
        gathered_bytes: Weights of the whole model, as they are gathered once [bytes].
        messages: Messages in which they are sent, each way [-].
    """

    sharding: Sharding
    reduced_bytes: float
    gathered_bytes: float
    messages: int

    @property
    def gathers(self) -> int:
        """How often a step gathers the weights: after the update, or in the forward and the backward pass."""
        return 2 if self.sharding.shards_weights else 1


def count_messages(layer_bytes: Sequence[float]) -> int:
    """Return the number of messages that send layers in their order, small neighbours together; at least 1 [-].

    Args:
        layer_bytes: Size of each layer as it is sent [bytes].

    Example:
        >>> count_messages([10 * MIB, 10 * MIB, 10 * MIB, 100 * MIB])
        2
    """
    messages, filled = 1, 0.0
    for size in layer_bytes:
        if filled and filled + size > COMBINED_BYTES:
            messages, filled = messages + 1, 0.0
        filled += size
    return messages


def compute_latency_s(*, inside: LinkKind, devices: float, hosts: int) -> float:
    """Return the latency of one all-gather or reduce-scatter over a ring, without its data [s].

    N - 1 steps, of which H - 1 cross between machines (NCCL, `ncclTopoTuneModel`).

    Args:
        inside: Kind of the links within a machine.
        devices: Of all machines, N [-].
        hosts: Machines, H [-].
    """
    between = hosts - 1
    return MESSAGE_S + (devices - 1.0 - between) * HOP_S[inside] + between * HOP_S["network"]


def _compute_pipelined_s(exchange_s: float, *, pass_s: float, messages: int) -> float:
    """Return the part of an exchange that the work of its pass does not hide [s].

    One message has no work beside it: the first gather of a pass, the last scatter ("The 1st all-gather will not
    be able to overlap with anything", PyTorch, "FSDP Notes", docs.pytorch.org/docs/stable/notes/fsdp.html). Every
    other one runs beside the work of the layer before it (Zhao et al., 2023, section 3.3).
    """
    first_s = exchange_s / messages
    return first_s + exposed_s(exchange_s=exchange_s - first_s, hidden_at_most_s=pass_s)


def compute_sharded_link_s(
    *,
    single_s: float,
    devices: float,
    traffic: ShardedTraffic,
    link: Link,
    inside: LinkKind,
    parallel: ParallelCoefficients,
    hosts: int = 1,
    backward_share: float = BACKWARD_SHARE,
) -> float:
    """Return the time that sharing a step among devices adds to the work of each [s].

    An all-gather or a reduce-scatter of M bytes over N devices sends (N - 1) / N of M from each device, half of an
    all-reduce (Patarasuk and Yuan, 2009, doi:10.1016/j.jpdc.2008.09.002, section 3). ZeRO's stages 1 and 2 scatter
    the gradients and gather the updated weights: as much as the all-reduce (Rajbhandari et al., 2020, section
    7.2.1), and as little of it is taken to be hidden. FSDP gathers the weights twice and scatters the gradients:
    1.5 times as much where all have one type (section 7.2.2), beside the whole of both passes.

    Args:
        single_s: Work of a device on its batch, with its part of the update [s].
        devices: Of all machines [-].
        traffic: Data exchanged in a step.
        link: The slowest of the ring.
        inside: Kind of the links within a machine.
        parallel: Constants fitted on all-reduces: shares of the rates, overlap, waiting, start.
        hosts: Machines [-].
        backward_share: Backward share of the work, 0..1 [-].

    Not fitted on sharded steps. Valid for gathers that are issued ahead of their use, as FSDP and XLA do.
    """
    if devices <= 1:
        return 0.0
    way = parallel.method(ANY_METHOD)
    rate = link.bytes_per_s * parallel.shares.links[link.kind]
    latency_s = traffic.messages * compute_latency_s(inside=inside, devices=devices, hosts=hosts)
    gather_s = latency_s + ring_pass_s(
        message_bytes=traffic.gathered_bytes, devices=devices, link_bytes_per_s=rate
    )
    scatter_s = latency_s + ring_pass_s(
        message_bytes=traffic.reduced_bytes, devices=devices, link_bytes_per_s=rate
    )
    backward_s = backward_share * single_s
    if traffic.sharding.shards_weights:
        forward_s = single_s - backward_s
        open_s = _compute_pipelined_s(gather_s, pass_s=forward_s, messages=traffic.messages)
        open_s += _compute_pipelined_s(gather_s + scatter_s, pass_s=backward_s, messages=traffic.messages)
    else:
        open_s = exposed_s(exchange_s=gather_s + scatter_s, hidden_at_most_s=way.overlap * backward_s)
    waiting_s = compute_waiting_s(single_s, devices=devices, kind=link.kind, way=way)
    return waiting_s + open_s + way.sync_s


def scale_to_sharded_devices(
    single: StepTime,
    *,
    traffic: ShardedTraffic,
    accelerator: Accelerator,
    devices: float,
    machine: HostSpec = UNKNOWN_HOST,
    hosts: int = 1,
) -> StepTime | NoPrediction:
    """Return the step of sharded devices, each working on the batch of the single one.

    Args:
        single: The work of one device: forward and backward pass, and its part of the update.
        traffic: Data exchanged in a step.
        accelerator: Each of the devices.
        devices: Of all hosts; 1 and less: the single step [-].
        machine: How the devices of a host are joined; by default as the accelerator usually is.
        hosts: Machines [-].
    """
    if devices <= 1:
        return single
    links = find_ring_links(accelerator, devices=devices, machine=machine, hosts=hosts)
    if isinstance(links, NoPrediction):
        return links
    inside, link = links
    constants = load_parallel_coefficients()["all_reduce"]
    link_s = compute_sharded_link_s(
        single_s=single.time_s.mid,
        devices=devices,
        traffic=traffic,
        link=link,
        inside=inside.kind,
        parallel=constants,
        hosts=hosts,
    )
    note = _format_note(traffic, link_s, kind=link.kind, devices=devices, hosts=hosts)
    return extend_step(single, {"link": link_s}, parallel=constants, note=note)


def _format_note(traffic: ShardedTraffic, link_s: float, *, kind: LinkKind, devices: float, hosts: int) -> str:
    gathered, reduced = (size / GIGA for size in (traffic.gathered_bytes, traffic.reduced_bytes))
    when = "in the forward and the backward pass" if traffic.gathers == 2 else "after the update"
    place = format_place(traffic.sharding, devices=devices, hosts=hosts)
    unfitted = ", its share of the datasheet rate assumed" if kind == "ici" else ""
    return (
        f"{place}: a step gathers {gathered:.3g} GB of weights {when} "
        f"and scatters {reduced:.3g} GB of gradients over {LINK_NAMES[kind]}{unfitted}, which adds "
        f"{link_s * MS_PER_S:.3g} ms; {traffic.sharding.duty}"
    )


class RingLinks(Frozen):
    """Links of the rings of a mesh over the devices of one or more machines.

    Args:
        inside: Slowest link within a machine.
        whole: Slowest link between all devices.
        host_devices: Devices of a machine [-].
        parallel: Constants with the share of the datasheet rate that a collective reaches, by kind of link.
    """

    inside: Link
    whole: Link
    host_devices: float
    parallel: ParallelCoefficients

    def count_hosts(self, one: Collective) -> int:
        """Return the machines that a ring passes [-]."""
        return min(one.devices, max(1, math.ceil(one.devices * one.stride / self.host_devices)))

    def compute_transfer_s(self, one: Collective) -> float:
        """Return the time of the data of a collective, all its executions [s].

        Rings within a machine have links of their own. Those that leave it share its network ports: as many as lie
        side by side in it.
        """
        if self.count_hosts(one) == 1:
            return one.sent_bytes / (self.inside.bytes_per_s * self.parallel.shares.links[self.inside.kind])
        rings = min(one.stride, self.host_devices) if self.whole.kind == "network" else 1.0
        return rings * one.sent_bytes / (self.whole.bytes_per_s * self.parallel.shares.links[self.whole.kind])

    def compute_latency_s(self, one: Collective) -> float:
        """Return the latency of one message of a collective [s]."""
        hosts = self.count_hosts(one)
        return one.passes * compute_latency_s(inside=self.inside.kind, devices=one.devices, hosts=hosts)


def add_replicas(divided: DividedStep, gradient_bytes: int, *, copies: int) -> tuple[Collective, ...]:
    """Return the collectives of a divided step whose mesh is repeated, each copy with samples of its own.

    Args:
        divided: Step of one device of the mesh.
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


def compute_divided_link_s(
    collectives: Sequence[Collective], *, single_s: float, devices: float, links: RingLinks
) -> float:
    """Return the time that the collectives of a divided step add to the work of a device [s].

    A product waits for the sum of its operands, so that nothing hides the collectives between devices that share
    it. Sums of gradients and gathers of variables among replicas run beside the backward pass, as in data
    parallelism; small ones are sent together, as are those of the update.

    Args:
        collectives: Of one step.
        single_s: Work of a device [s].
        devices: Of all machines [-].
        links: Links of their rings, with constants fitted on all-reduces: overlap, waiting, start.

    Not fitted on such steps.
    """
    way = links.parallel.method(ANY_METHOD)
    waited = [one for one in collectives if not one.replicas]
    hidden = [one for one in collectives if one.replicas]
    at_once = [one for one in waited if one.phase != "update"]
    open_s = sum(links.compute_transfer_s(one) for one in waited)
    open_s += sum(one.count * links.compute_latency_s(one) for one in at_once)
    open_s += _compute_merged_latency_s((one for one in waited if one.phase == "update"), links)
    replicas_s = sum(links.compute_transfer_s(one) for one in hidden)
    replicas_s += _compute_merged_latency_s(hidden, links)
    open_s += exposed_s(exchange_s=replicas_s, hidden_at_most_s=way.overlap * BACKWARD_SHARE * single_s)
    waiting_s = compute_waiting_s(single_s, devices=devices, kind=links.whole.kind, way=way)
    return open_s + waiting_s + way.sync_s


def _compute_merged_latency_s(collectives: Iterable[Collective], links: RingLinks) -> float:
    """Return the latency of collectives that are merged to larger messages [s]."""
    sizes: dict[float, list[float]] = {}
    for one in collectives:
        sizes.setdefault(links.compute_latency_s(one), []).extend([one.message_bytes] * round(one.count))
    return sum(latency_s * count_messages(messages) for latency_s, messages in sizes.items())


def scale_to_divided_devices(
    single: StepTime,
    *,
    sharding: Sharding,
    collectives: Sequence[Collective],
    accelerator: Accelerator,
    devices: float,
    machine: HostSpec = UNKNOWN_HOST,
    hosts: int = 1,
) -> StepTime | NoPrediction:
    """Return the step of devices that share its products.

    Args:
        single: The work of one device.
        sharding: Sharding of the model.
        collectives: Collectives of a step.
        accelerator: Each of the devices.
        devices: Of all machines [-].
        machine: How the devices of a host are joined; by default as the accelerator usually is.
        hosts: Machines [-].
    """
    found = find_ring_links(accelerator, devices=devices, machine=machine, hosts=hosts)
    if isinstance(found, NoPrediction):
        return found
    inside, whole = found
    constants = load_parallel_coefficients()["all_reduce"]
    links = RingLinks(inside=inside, whole=whole, host_devices=devices / hosts, parallel=constants)
    link_s = compute_divided_link_s(collectives, single_s=single.time_s.mid, devices=devices, links=links)
    note = _format_division_note(sharding, collectives, link_s, links, devices=devices, hosts=hosts)
    return extend_step(single, {"link": link_s}, parallel=constants, note=note)


def _format_division_note(
    sharding: Sharding,
    collectives: Sequence[Collective],
    link_s: float,
    links: RingLinks,
    *,
    devices: float,
    hosts: int,
) -> str:
    unfitted = ", its share of the datasheet rate assumed" if links.whole.kind == "ici" else ""
    shared, between = (
        sum(one.sent_bytes for one in collectives if one.replicas is replicas) / GIGA for replicas in (False, True)
    )
    replicas = f", and {between:.3g} GB for its replicas" if between else ""
    own = f"; {sharding.duty}" if sharding.duty else ""
    place = format_place(sharding, devices=devices, hosts=hosts)
    return (
        f"{place}: in a step, each sends {shared:.3g} GB for the products that "
        f"it shares{replicas} over {LINK_NAMES[links.whole.kind]}{unfitted}, which adds "
        f"{link_s * MS_PER_S:.3g} ms{own}"
    )
