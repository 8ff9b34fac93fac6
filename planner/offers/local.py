"""The local machine as an offer at $0, as described by the operating system and the NVIDIA driver.

``probe_local_offer`` probes files and processes; everything else is pure.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..limits import count_usable_cores
from ..records import Frozen
from ..units import GIB
from .aliases import AcceleratorNames
from .catalog import GENERIC_HOST, Catalog, load_catalog
from .cpu import build_cpu_accelerator
from .rows import Accelerator, CpuFamily, Offer

PROVIDER = "local"
INSTANCE_TYPE = "this-machine"
CPUINFO = Path("/proc/cpuinfo")
PROBE_TIMEOUT_S = 10.0
_NVIDIA_SMI = ("--query-gpu=name,mig.mode.current", "--format=csv,noheader")


class LocalCpu(Frozen):
    """The processor as reported by the operating system."""

    model_name: str  # model name
    cpu_id: str  # vendor-family-model-stepping, matched against ``cpu_ids`` of a host; empty if unknown
    threads_per_core: float = 1.0  # logical processors per physical core [-]
    sockets: int = 1  # physical packages [-]
    virtual: bool = False  # whether it is virtualized


def probe_local_offer(catalog: Catalog | None = None) -> tuple[Offer, Accelerator]:
    """Return this machine as an offer, and its accelerator: its NVIDIA GPUs if in the catalog, else its CPU.

    Missing information is not an error; the offer's note lists the assumptions.
    """
    catalog = catalog or load_catalog()
    text = CPUINFO.read_text(encoding="utf-8", errors="replace") if CPUINFO.exists() else ""
    return build_local_offer(
        catalog,
        cpu=parse_cpuinfo(text) if text else LocalCpu(model_name=platform.processor(), cpu_id=""),
        logical_cores=count_usable_cores(),
        memory_gib=_read_memory_gib(),
        gpu_names=_read_gpu_names(),
    )


def build_local_offer(
    catalog: Catalog, *, cpu: LocalCpu, logical_cores: int, memory_gib: float | None, gpu_names: Sequence[str] = ()
) -> tuple[Offer, Accelerator]:
    """Build an offer at $0 and its accelerator from a machine's parts."""
    notes = ["your own machine: power and wear are not counted"]
    gpu, count = _resolve_gpu(gpu_names, catalog.names, notes)
    if gpu is None:
        accelerator = _build_local_cpu(cpu, logical_cores, memory_gib, catalog.hosts, notes)
    else:
        accelerator = catalog.accelerators[gpu]
    offer = Offer(
        provider=PROVIDER,
        instance_type=INSTANCE_TYPE,
        accelerator=accelerator.name,
        devices=float(count),
        vcpus=float(logical_cores),
        memory_gib=memory_gib,
        region=PROVIDER,
        purchase="on_demand",
        usd_per_hour=Decimal(0),
        price_as_of=None,
        price_source="owned by the user",
        status="active",
        note="; ".join(notes),
    )
    return offer, accelerator


def parse_cpuinfo(text: str) -> LocalCpu:
    """Parse ``/proc/cpuinfo`` (x86 and Arm).

    Example:
        >>> parse_cpuinfo("vendor_id : GenuineIntel\\ncpu family : 6\\nmodel : 85\\nstepping : 7\\n").cpu_id
        'GenuineIntel-6-55-7'
    """
    pairs = ((line.split(":", 1) for line in b.splitlines() if ":" in line) for b in text.strip().split("\n\n"))
    blocks = [{key.strip(): value.strip() for key, value in block} for block in pairs]
    first = blocks[0]
    cores = {(b["physical id"], b["core id"]) for b in blocks if "physical id" in b and "core id" in b}
    sockets = {b["physical id"] for b in blocks if "physical id" in b}
    return LocalCpu(
        model_name=first.get("model name", ""),
        cpu_id=_format_cpu_id(first),
        threads_per_core=len(blocks) / len(cores) if cores else 1.0,
        sockets=max(1, len(sockets)),
        virtual="hypervisor" in first.get("flags", "").split(),
    )


def find_host(cpu_id: str, hosts: Mapping[str, CpuFamily]) -> CpuFamily | None:
    """Find the CPU family of a processor; None if it is not in the catalog."""
    for host in hosts.values():
        if any(re.fullmatch(rf"{pattern}(-[0-9A-F]+)?", cpu_id) for pattern in host.cpu_ids):
            return host
    return None


def _build_local_cpu(
    cpu: LocalCpu, logical_cores: int, memory_gib: float | None, hosts: Mapping[str, CpuFamily], notes: list[str]
) -> Accelerator:
    """Build an accelerator from this machine's CPU; an unknown CPU is treated as the generic desktop."""
    host = find_host(cpu.cpu_id, hosts)
    if host is None:
        host = hosts[GENERIC_HOST]
        notes.append(f"CPU `{cpu.model_name or 'unknown'}` is not in the catalog: treated as {GENERIC_HOST}")
    changes: dict[str, Any] = {"vcpu_is": "hyperthread" if cpu.threads_per_core > 1 else "core"}
    if not cpu.virtual:  # the whole socket and its memory bandwidth are available
        changes["physical_cores_per_socket"] = max(1, round(logical_cores / cpu.threads_per_core / cpu.sockets))
    return build_cpu_accelerator(replace(host, **changes), logical_cores, memory_gib)


def _resolve_gpu(gpu_names: Sequence[str], names: AcceleratorNames, notes: list[str]) -> tuple[str | None, int]:
    """Return the canonical name and number of the most frequent GPU; (None, 1) if there is none."""
    if not gpu_names:
        return None, 1
    (name, count), *others = Counter(gpu_names).most_common()
    try:
        canonical = names.resolve(name)
    except UsageError as error:
        notes.append(f"GPU `{name}` is ignored: {error}")
        return None, 1
    notes += [f"GPU `{other}` is ignored: only one model is used" for other, _ in others]
    return canonical, count


def _format_cpu_id(first: Mapping[str, str]) -> str:
    """Return vendor-family-model-stepping (x86) or ARM-implementer-part; empty for other processors."""
    if {"vendor_id", "cpu family", "model"} <= first.keys():
        model, stepping = int(first["model"]), int(first.get("stepping", "0") or 0)
        return f"{first['vendor_id']}-{first['cpu family']}-{model:X}-{stepping:X}"
    if {"CPU implementer", "CPU part"} <= first.keys():
        return f"ARM-{first['CPU implementer']}-{first['CPU part']}"
    return ""


def _read_memory_gib() -> float | None:
    """Return the main memory [GiB]; None if the system does not report it."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 1)
    except (AttributeError, ValueError, OSError):
        return None


def _read_gpu_names() -> list[str]:
    """Return the names of the GPUs listed by ``nvidia-smi``; empty if it is missing or fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        done = subprocess.run(
            [program, *_NVIDIA_SMI], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_nvidia_smi(done.stdout)


def parse_nvidia_smi(text: str) -> list[str]:
    """Parse names from ``nvidia-smi --query-gpu=name,mig.mode.current --format=csv,noheader``.

    Example:
        >>> parse_nvidia_smi("Tesla T4, [N/A]\\nNVIDIA A100-SXM4-40GB, Enabled\\n")
        ['Tesla T4', 'NVIDIA A100-SXM4-40GB MIG']
    """
    names = []
    for line in text.splitlines():
        name, _, mig = line.partition(",")
        if name.strip():
            names.append(f"{name.strip()} MIG" if mig.strip() == "Enabled" else name.strip())
    return names
