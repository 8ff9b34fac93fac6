"""A share of a CPU as a training device, from the family's figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from .rows import CPU, Accelerator, Host, HostSeries, Offer, VcpuIs

__all__ = ["cpu_accelerator", "fp32_tflop_per_s", "host_of", "physical_cores", "unknown_cpu"]

HYPERTHREADS_PER_CORE = 2


def physical_cores(*, vcpus: float, vcpu_is: VcpuIs) -> float:
    """Return the physical cores behind vCPUs [-]: a hyperthread is half a core.

    Example:
        >>> physical_cores(vcpus=8, vcpu_is="hyperthread"), physical_cores(vcpus=8, vcpu_is="core")
        (4.0, 8.0)
    """
    return vcpus / (HYPERTHREADS_PER_CORE if vcpu_is == "hyperthread" else 1.0)


def fp32_tflop_per_s(*, cores: float, clock_ghz: float, flop_per_cycle_per_core: float) -> float:
    """Return the peak of a CPU [TFLOP/s]: cores × clock × FLOP per cycle and core.

    Args:
        cores: Physical cores [-].
        clock_ghz: Clock that all cores hold at once [GHz].
        flop_per_cycle_per_core: Width of the vector units; a fused multiply-add is 2 [FLOP].

    An upper bound: real clocks drop under wide vectors, and a guest shares its socket.

    Example:
        >>> fp32_tflop_per_s(cores=4, clock_ghz=3.0, flop_per_cycle_per_core=32)
        0.384
    """
    return cores * clock_ghz * flop_per_cycle_per_core / 1e3


def cpu_accelerator(host: Host, vcpus: float, memory_gib: float | None) -> Accelerator:
    """Return a share of a host as an accelerator named ``CPU``.

    Args:
        host: The CPU family.
        vcpus: Logical processors of the machine [-].
        memory_gib: Main memory of the machine [GiB]; None when unknown.

    Memory bandwidth is the socket's, in proportion to the cores; a machine that is larger than a socket has
    several. A few cores alone can draw more than their share, so this is what a full host leaves to each.
    """
    cores = physical_cores(vcpus=vcpus, vcpu_is=host.vcpu_is)
    peaks = {
        precision: fp32_tflop_per_s(
            cores=cores, clock_ghz=host.all_core_turbo_ghz, flop_per_cycle_per_core=flop_per_cycle
        )
        for precision, flop_per_cycle in (
            ("fp32", host.fp32_flop_per_cycle_per_core),
            ("bf16", host.bf16_flop_per_cycle_per_core),
        )
        if flop_per_cycle is not None
    }
    return Accelerator(
        name=CPU,
        vendor=host.vendor,
        kind="cpu",
        architecture=host.family,
        year=host.year,
        sms_or_cores=max(1, round(cores)),
        boost_mhz=host.all_core_turbo_ghz * 1e3,
        memory_gib=memory_gib,
        memory_gb_per_s=host.memory_gb_per_s_per_socket * cores / host.physical_cores_per_socket,
        fp32_tflop_per_s=peaks["fp32"],
        bf16_tensor_tflop_per_s=peaks.get("bf16"),
        source=host.source,
        read_on=host.read_on,
        confidence=host.confidence,
        note=host.note,
    )


def host_of(offer: Offer, hosts: Mapping[str, Host], series: Iterable[HostSeries]) -> Host | None:
    """Return the CPU family behind an offer, a vCPU meaning what it means there; None when it is unknown."""
    for entry in series:
        if entry.provider == offer.provider and re.fullmatch(entry.pattern, offer.instance_type):
            return _of_series(hosts[entry.host], entry)
    return None


def unknown_cpu(template: Host) -> Accelerator:
    """Return the name ``CPU`` alone, nothing known: which CPU it is follows from an offer only."""
    return Accelerator(
        name=CPU,
        vendor="unknown",
        kind="cpu",
        architecture="unknown",
        source="none: the CPU follows from the offer",
        read_on=template.read_on,
        confidence="low",
        note="a CPU host; its figures follow from the instance type",
    )


def _of_series(host: Host, entry: HostSeries) -> Host:
    """Return a family as a provider's series offers it: its vCPU, the lower confidence, both notes."""
    ranks = ("high", "medium", "low")
    confidence = max(host.confidence, entry.confidence, key=ranks.index)
    return replace(
        host,
        vcpu_is=entry.vcpu_is or host.vcpu_is,
        confidence=confidence,
        note="; ".join(note for note in (host.note, entry.note) if note),
    )
