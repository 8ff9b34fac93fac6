"""CPU hosts as training devices, derived from the figures of their CPU family."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from .rows import CPU, Accelerator, CpuFamily, CpuSeries, Offer

HYPERTHREADS_PER_CORE = 2


def compute_fp32_tflop_per_s(*, cores: float, clock_ghz: float, flop_per_cycle_per_core: float) -> float:
    """Return a CPU's peak rate [TFLOP/s]: cores × clock × FLOP per cycle and core / 1000.

    Args:
        cores: Physical cores [-].
        clock_ghz: All-core turbo clock [GHz].
        flop_per_cycle_per_core: Peak of the vector units; a fused multiply-add counts 2 [FLOP].

    An upper bound: clocks drop under wide vector instructions, and virtual machines share a socket.

    Example:
        >>> compute_fp32_tflop_per_s(cores=4, clock_ghz=3.0, flop_per_cycle_per_core=32)
        0.384
    """
    return cores * clock_ghz * flop_per_cycle_per_core / 1e3


def build_cpu_accelerator(host: CpuFamily, vcpus: float, memory_gib: float | None) -> Accelerator:
    """Build an accelerator named ``CPU`` from part of a host.

    Args:
        host: The CPU family.
        vcpus: Logical processors of the machine [-].
        memory_gib: Main memory of the machine [GiB]; None when unknown.

    Memory bandwidth is that of the socket times the share of its cores, and of several sockets for larger
    machines. A few cores on an idle host can draw more; this is each core's share of a fully used host.
    """
    cores = vcpus / (HYPERTHREADS_PER_CORE if host.vcpu_is == "hyperthread" else 1.0)
    peaks = {
        precision: compute_fp32_tflop_per_s(
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


def find_offer_host(offer: Offer, hosts: Mapping[str, CpuFamily], series: Iterable[CpuSeries]) -> CpuFamily | None:
    """Find the CPU family of an offer; None if unknown.

    It has the series' definition of a vCPU, the lower confidence, and both notes.
    """
    for entry in series:
        if entry.provider == offer.provider and re.fullmatch(entry.pattern, offer.instance_type):
            host, ranks = hosts[entry.host], ("high", "medium", "low")
            return replace(
                host,
                vcpu_is=entry.vcpu_is or host.vcpu_is,
                confidence=max(host.confidence, entry.confidence, key=ranks.index),
                note="; ".join(filter(None, (host.note, entry.note))),
            )
    return None


def build_unknown_cpu(template: CpuFamily) -> Accelerator:
    """Build an accelerator named ``CPU`` with no figures, for use before an offer determines the CPU."""
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
