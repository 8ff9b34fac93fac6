"""Time of a step whose products devices share, by tensor parallelism or a layout in the user's code.

The collectives are those of the divided step (`workload.trace.division`): all-reduces of activations and of their
gradients where a product is divided along the dimension that it sums over (Shoeybi et al., 2019, "Megatron-LM:
Training Multi-Billion Parameter Language Models Using Model Parallelism", arXiv:1909.08053, section 3), sums of
gradients among replicas, and gathers where a layer needs a whole array.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ...offers.rows import Accelerator
from ...units import GIGA, MS_PER_S
from ...workload.collective import Collective
from ...workload.model import DividedStep
from ..step_time import NoPrediction, StepTime
from .collectives import exposed_s
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
from .interconnect import UNKNOWN_HOST, HostSpec, Link
from .sharded_step import compute_latency_s, count_messages
from .sharding import Sharding, format_place


class RingLinks:
    """Links of the rings of a mesh over the devices of one or more machines.

    Args:
        inside: Slowest link within a machine.
        whole: Slowest link between all devices.
        host_devices: Devices of a machine [-].
        parallel: Constants with the share of the datasheet rate that a collective reaches, by kind of link.
    """

    def __init__(
        self, *, inside: Link, whole: Link, host_devices: float, parallel: ParallelCoefficients
    ) -> None:
        self.inside, self.whole, self._host_devices = inside, whole, host_devices
        self._shares = parallel.shares.links

    def count_hosts(self, one: Collective) -> int:
        """Return the machines that a ring passes [-]."""
        return min(one.devices, max(1, math.ceil(one.devices * one.stride / self._host_devices)))

    def compute_transfer_s(self, one: Collective) -> float:
        """Return the time of the data of a collective, all its executions [s].

        Rings within a machine have links of their own. Those that leave it share its network ports: as many as lie
        side by side in it.
        """
        if self.count_hosts(one) == 1:
            return one.sent_bytes / (self.inside.bytes_per_s * self._shares[self.inside.kind])
        rings = min(one.stride, self._host_devices) if self.whole.kind == "network" else 1.0
        return rings * one.sent_bytes / (self.whole.bytes_per_s * self._shares[self.whole.kind])

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
    collectives: Sequence[Collective],
    *,
    single_s: float,
    devices: float,
    links: RingLinks,
    parallel: ParallelCoefficients,
) -> float:
    """Return the time that the collectives of a divided step add to the work of a device [s].

    A product waits for the sum of its operands, so that nothing hides the collectives between devices that share
    it. Sums of gradients and gathers of variables among replicas run beside the backward pass, as in data
    parallelism; small ones are sent together, as are those of the update.

    Args:
        collectives: Of one step.
        single_s: Work of a device [s].
        devices: Of all machines [-].
        links: Links of their rings.
        parallel: Constants fitted on all-reduces: shares of the rates, overlap, waiting, start.

    Not fitted on such steps.
    """
    way = parallel.method(ANY_METHOD)
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
    link_s = compute_divided_link_s(
        collectives, single_s=single.time_s.mid, devices=devices, links=links, parallel=constants
    )
    note = _format_note(sharding, collectives, link_s, links, devices=devices, hosts=hosts)
    return extend_step(single, {"link": link_s}, parallel=constants, note=note)


def _format_note(
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
        sum(one.sent_bytes for one in collectives if one.replicas is replicas) / GIGA
        for replicas in (False, True)
    )
    replicas = f", and {between:.3g} GB for its replicas" if between else ""
    own = f"; {sharding.duty}" if sharding.duty else ""
    place = format_place(sharding, devices=devices, hosts=hosts)
    return (
        f"{place}: in a step, each sends {shared:.3g} GB for the products that "
        f"it shares{replicas} over {LINK_NAMES[links.whole.kind]}{unfitted}, which adds "
        f"{link_s * MS_PER_S:.3g} ms{own}"
    )
