"""Time of a step that XLA divides over devices by the layout in the user's code (`keras.distribution`).

The collectives are those of the divided program: all-reduces of activations and of their gradients where a
product is divided along the dimension that it sums over (Shoeybi et al., 2019, "Megatron-LM: Training
Multi-Billion Parameter Language Models Using Model Parallelism", arXiv:1909.08053, section 3), all-reduces of
gradients among replicas, and gathers where a layer needs a whole array.
"""

from __future__ import annotations

from ...offers.rows import Accelerator
from ...units import GIGA, MS_PER_S
from ..compile.compiled import CompiledStep
from ..step_time import NoPrediction, StepTime
from .data_parallel import (
    ANY_METHOD,
    IN_STEP,
    LINK_NAMES,
    ParallelCoefficients,
    compute_waiting_s,
    extend_step,
    load_parallel_coefficients,
)
from .interconnect import UNKNOWN_HOST, HostSpec, Link, LinkKind, find_slowest_link
from .sharded_step import compute_latency_s

__all__ = ["compute_laid_out_link_s", "scale_to_laid_out_devices"]


def compute_laid_out_link_s(
    *,
    single_s: float,
    devices: float,
    sent_bytes: float,
    messages: float,
    link: Link,
    inside: LinkKind,
    parallel: ParallelCoefficients,
    hosts: int = 1,
) -> float:
    """Return the time that the collectives of a divided step add to the work of a device [s].

    Nothing is hidden: a product waits for the sum of its operands. Gradients of replicas could be summed beside
    the backward pass, so that this is an upper bound where the mesh has several.

    Args:
        single_s: Work of a device [s].
        devices: Of the mesh [-].
        sent_bytes: Data that a device sends in the rings of all collectives [bytes].
        messages: Collectives of a step [-].
        link: The slowest between the devices.
        inside: Kind of the links within a machine.
        parallel: Constants fitted on all-reduces: shares of the rates, waiting, start.
        hosts: Machines [-].

    Not fitted on such steps. Each ring is taken to pass all devices of the mesh.
    """
    way = parallel.method(ANY_METHOD)
    rate = link.bytes_per_s * parallel.shares.links[link.kind]
    latency_s = messages * compute_latency_s(inside=inside, devices=devices, hosts=hosts)
    waiting_s = 0.0 if link.kind in IN_STEP else compute_waiting_s(single_s, devices=devices, way=way)
    return sent_bytes / rate + latency_s + waiting_s + way.sync_s


def scale_to_laid_out_devices(
    single: StepTime,
    *,
    partition: CompiledStep,
    accelerator: Accelerator,
    devices: float,
    machine: HostSpec = UNKNOWN_HOST,
    hosts: int = 1,
) -> StepTime | NoPrediction:
    """Return the step of all devices of a mesh.

    Args:
        single: The work of one device: its part of the products, and its part of the update.
        partition: The step as XLA divided it.
        accelerator: Each of the devices.
        devices: Of the mesh [-].
        machine: How the devices of a host are joined; by default as the accelerator usually is.
        hosts: Machines [-].
    """
    link = find_slowest_link(accelerator, devices=devices, machine=machine, hosts=hosts)
    inside = find_slowest_link(accelerator, devices=devices / hosts, machine=machine)
    if link is None or inside is None:
        where = f"{hosts} such machines" if hosts > 1 else f"{accelerator.name} devices"
        return NoPrediction(f"the rate of the link between {where} is not known")
    constants = load_parallel_coefficients()["all_reduce"]
    link_s = compute_laid_out_link_s(
        single_s=single.time_s.mid,
        devices=devices,
        sent_bytes=partition.sent_bytes,
        messages=partition.messages,
        link=link,
        inside=inside.kind,
        parallel=constants,
        hosts=hosts,
    )
    unfitted = ", its share of the datasheet rate assumed" if link.kind == "ici" else ""
    note = (
        f"script over {devices:g} devices: the collectives of XLA's division ({partition.messages:g}) send "
        f"{partition.sent_bytes / GIGA:.3g} GB from each device over {LINK_NAMES[link.kind]}{unfitted}, which "
        f"adds {link_s * MS_PER_S:.3g} ms, nothing of it hidden; activations are counted as if undivided within "
        "a replica"
    )
    return extend_step(single, {"link": link_s}, parallel=constants, devices=devices, note=note)
