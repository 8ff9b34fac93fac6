"""Time of a step whose layers devices divide among them in stages, as a pipeline of micro-batches."""

from __future__ import annotations

from dataclasses import replace

from ...frozen import Frozen
from ...offers.rows import Accelerator
from ...units import GIGA, MS_PER_S
from ...workload.collective import Collective
from ..step_time import StepTime
from .data_parallel import (
    ANY_METHOD,
    IN_STEP,
    LINK_NAMES,
    ParallelCoefficients,
    compute_waiting_s,
    extend_step,
    load_parallel_coefficients,
)
from .divided_step import RingLinks
from .interconnect import HostSpec, Link, LinkKind, find_slowest_link
from .pipeline_schedule import compute_bubble_share, compute_pipeline_s
from .sharded_step import compute_latency_s
from .sharding import Sharding

NEIGHBOURS = 2  # devices that a boundary between stages joins [-]


class PipelineTraffic(Frozen):
    """Data that the stages of a pipeline send in one step.

    Args:
        boundary_bytes: Activations of one micro-batch at each boundary; their gradients are as large [bytes].
        shared_bytes: Gradients of weights that more than one stage holds [bytes].
        gradient_bytes: Gradients of the stage with most of them [bytes].
        replicas: Pipelines side by side, each with samples of its own [-].
    """

    boundary_bytes: tuple[int, ...]
    shared_bytes: int
    gradient_bytes: int
    replicas: int


class PipelineLinks:
    """Links between the stages of a pipeline, which follow each other machine by machine.

    Args:
        inside: Link between two devices of a machine.
        whole: Slowest link between all devices.
        stages: Stages of a pipeline [-].
        replicas: Pipelines side by side [-].
        hosts: Machines [-].
        parallel: Constants with the share of the datasheet rate that an exchange reaches, by kind of link.
    """

    def __init__(
        self,
        *,
        inside: Link,
        whole: Link,
        stages: int,
        replicas: int,
        hosts: int,
        parallel: ParallelCoefficients,
    ) -> None:
        self.parallel, self.stages, self.replicas, self.hosts = parallel, stages, replicas, hosts
        host_devices = stages * replicas / hosts
        self._rings = RingLinks(inside=inside, whole=whole, host_devices=host_devices, parallel=parallel)
        self._between = [
            any((first * stages + number) % host_devices == 0 for first in range(replicas))
            for number in range(1, stages)
        ]

    @property
    def kind(self) -> LinkKind:
        """Kind of the slowest link."""
        return self._rings.whole.kind

    def compute_boundary_s(self, boundary: int, size_bytes: float) -> float:
        """Return the time of the transfers of one micro-batch over a boundary [s].

        Activations go one way while gradients come the other, so that the time of one direction counts.

        Args:
            boundary: Number of the boundary, from 0 [-].
            size_bytes: Activations of a micro-batch [bytes].
        """
        between = self._between[boundary] and self.hosts > 1
        link = self._rings.whole if between else self._rings.inside
        hosts = NEIGHBOURS if between else 1
        latency_s = compute_latency_s(inside=self._rings.inside.kind, devices=NEIGHBOURS, hosts=hosts)
        return size_bytes / (link.bytes_per_s * self.parallel.shares.links[link.kind]) + latency_s

    def compute_reduction_s(self, *, message_bytes: int, devices: int, stride: int) -> float:
        """Return the time of the sum of gradients over a ring of devices; 0 for nothing to sum [s]."""
        if devices <= 1 or not message_bytes:
            return 0.0
        summed = Collective(
            kind="all_reduce",
            devices=devices,
            stride=stride,
            message_bytes=message_bytes,
            count=1.0,
            phase="backward",
            replicas=True,
        )
        return self._rings.compute_transfer_s(summed) + self._rings.compute_latency_s(summed)


def find_pipeline_links(
    accelerator: Accelerator, *, stages: int, replicas: int, machine: HostSpec, hosts: int = 1
) -> PipelineLinks | None:
    """Return the links of pipelines over all devices; None when a rate on the way is unknown.

    Args:
        accelerator: Each of the devices.
        stages: Stages of a pipeline [-].
        replicas: Pipelines side by side [-].
        machine: How the devices of a host are joined.
        hosts: Machines [-].
    """
    inside = find_slowest_link(accelerator, devices=NEIGHBOURS, machine=machine)
    whole = find_slowest_link(accelerator, devices=stages * replicas, machine=machine, hosts=hosts)
    if inside is None or whole is None:
        return None
    return PipelineLinks(
        inside=inside,
        whole=whole,
        stages=stages,
        replicas=replicas,
        hosts=hosts,
        parallel=load_parallel_coefficients()["all_reduce"],
    )


def scale_to_pipeline(
    micro_batch: StepTime,
    *,
    update_s: float,
    transfer_s: float,
    micro_batches: int,
    sharding: Sharding,
    traffic: PipelineTraffic,
    links: PipelineLinks,
) -> StepTime:
    """Return the step of the devices of pipelines.

    A stage waits for its transfers before it goes on, activations one way and gradients the other at a time
    (Megatron-LM's schedule without interleaving: `send_forward_recv_backward` and `_communicate` in
    megatron/p2p_communication.py). Gradients are summed after the last micro-batch, when no work is left to hide
    them.

    Args:
        micro_batch: Forward and backward pass of one micro-batch on the slowest stage.
        update_s: Update of its variables [s].
        transfer_s: Its transfers of one micro-batch [s].
        micro_batches: Micro-batches of a step, m [-].
        sharding: The pipeline.
        traffic: What is sent.
        links: Links between the stages.
    """
    stages, parallel, replicas = sharding.ways, links.parallel, traffic.replicas
    slots = compute_pipeline_s(1.0, stages=stages, micro_batches=micro_batches)
    own = micro_batch.time_s.scaled(slots + update_s / micro_batch.time_s.mid)
    parts = {name: slots * part_s for name, part_s in micro_batch.parts_s.items()}
    parts["memory bandwidth"] = parts.get("memory bandwidth", 0.0) + update_s
    link_s = slots * transfer_s
    link_s += links.compute_reduction_s(message_bytes=traffic.gradient_bytes, devices=replicas, stride=stages)
    link_s += links.compute_reduction_s(
        message_bytes=traffic.shared_bytes, devices=NEIGHBOURS, stride=stages - 1
    )
    if replicas > 1:
        way = parallel.method(ANY_METHOD)
        link_s += way.sync_s
        if links.kind not in IN_STEP:
            link_s += compute_waiting_s(own.mid, devices=replicas, way=way)
    return extend_step(
        replace(micro_batch, time_s=own, parts_s=parts),
        {"link": link_s},
        parallel=parallel,
        note=_format_note(
            link_s, micro_batches=micro_batches, sharding=sharding, traffic=traffic, links=links
        ),
    )


def _format_note(
    link_s: float, *, micro_batches: int, sharding: Sharding, traffic: PipelineTraffic, links: PipelineLinks
) -> str:
    stages, replicas = sharding.ways, traffic.replicas
    where = f" in {links.hosts} machines" if links.hosts > 1 else ""
    bubble = compute_bubble_share(stages=stages, micro_batches=micro_batches)
    sent, shared, summed = (
        size / GIGA
        for size in (
            micro_batches * sum(traffic.boundary_bytes),
            traffic.shared_bytes,
            traffic.gradient_bytes if replicas > 1 else 0,
        )
    )
    tied = f", {shared:.3g} GB of gradients of shared weights" if shared else ""
    replicated = f", {summed:.3g} GB of gradients summed over {replicas} replicas" if summed else ""
    unfitted = ", its share of the datasheet rate assumed" if links.kind == "ici" else ""
    return (
        f"{sharding} over {stages * replicas} devices{where}, by a schedule of your own, since Keras runs no "
        f"pipeline (JAX, or PyTorch's torch.distributed.pipelining): {stages} stages work on {micro_batches} "
        f"micro-batches in turn (1F1B), wait for {bubble:.0%} of the step and send {sent:.3g} GB of activations, "
        f"as much of their gradients{tied}{replicated} over {LINK_NAMES[links.kind]}{unfitted}, which adds "
        f"{link_s * MS_PER_S:.3g} ms"
    )
