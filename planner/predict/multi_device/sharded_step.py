"""Time of a step whose weights, gradients or optimizer state are sharded over devices.

What is sent: Rajbhandari et al., 2020, "ZeRO", arXiv:1910.02054, section 7; what is hidden: Zhao et al., 2023,
"PyTorch FSDP", arXiv:2304.11277, section 3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...frozen import Frozen
from ...offers.rows import Accelerator
from ...units import GIGA, MIB, MICRO, MS_PER_S
from ..step_time import NoPrediction, StepTime
from .collectives import exposed_s, ring_pass_s
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
from .interconnect import UNKNOWN_HOST, HostSpec, Link, LinkKind
from .sharding import Sharding, format_place

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

    Args:
        exchange_s: All messages on their own [s].
        pass_s: Work of the pass, beside all of which messages can run [s].
        messages: Number of messages [-].
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


def _format_note(
    traffic: ShardedTraffic, link_s: float, *, kind: LinkKind, devices: float, hosts: int
) -> str:
    gathered, reduced = (size / GIGA for size in (traffic.gathered_bytes, traffic.reduced_bytes))
    when = "in the forward and the backward pass" if traffic.gathers == 2 else "after the update"
    place = format_place(traffic.sharding, devices=devices, hosts=hosts)
    unfitted = ", its share of the datasheet rate assumed" if kind == "ici" else ""
    return (
        f"{place}: a step gathers {gathered:.3g} GB of weights {when} "
        f"and scatters {reduced:.3g} GB of gradients over {LINK_NAMES[kind]}{unfitted}, which adds "
        f"{link_s * MS_PER_S:.3g} ms; {traffic.sharding.duty}"
    )
