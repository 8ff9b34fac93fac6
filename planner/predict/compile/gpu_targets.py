"""Device descriptions of NVIDIA GPUs for XLA, made of the catalog's rows: no GPU has to be asked."""

from __future__ import annotations

from dataclasses import dataclass

from ...offers.rows import Accelerator
from ...units import GIB, GIGA, KILO, MIB

__all__ = ["STAND_IN", "description_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What the cores of a compute capability have in common.

    Args:
        lanes: Single-precision units of a core [-].
        shared_kib: Shared memory of a core [KiB].
        block_kib: Shared memory that one block may opt in to [KiB].
        threads: Resident threads of a core [-].
    """

    lanes: int
    shared_kib: int
    block_kib: int
    threads: int


# NVIDIA, "CUDA C++ Programming Guide" 12.9, tables "Technical specifications per compute capability" and
# "Throughput of native arithmetic instructions".
GENERATIONS = {
    "6.0": Generation(lanes=64, shared_kib=64, block_kib=48, threads=2048),
    "7.0": Generation(lanes=64, shared_kib=96, block_kib=96, threads=2048),
    "7.5": Generation(lanes=64, shared_kib=64, block_kib=64, threads=1024),
    "8.0": Generation(lanes=64, shared_kib=164, block_kib=163, threads=2048),
    "8.6": Generation(lanes=128, shared_kib=100, block_kib=99, threads=1536),
    "8.9": Generation(lanes=128, shared_kib=100, block_kib=99, threads=1536),
    "9.0": Generation(lanes=128, shared_kib=228, block_kib=227, threads=2048),
    "10.0": Generation(lanes=128, shared_kib=228, block_kib=227, threads=2048),
}
# Compute capabilities that CUDA 12's assembler refuses, and the oldest that it takes.
STAND_IN = {"3.5": "6.0", "3.7": "6.0", "5.0": "6.0", "5.2": "6.0"}

_TEXT = """gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  core_count: {cores} fpus_per_core: {lanes}
  shared_memory_per_core: {shared} shared_memory_per_block_optin: {block}
  clock_rate_ghz: {clock} memory_bandwidth: {bandwidth} l2_cache_size: {l2} device_memory_size: {memory}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  threads_per_core_limit: {threads} registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{name}"
"""


def description_of(accelerator: Accelerator) -> str | None:
    """Return the text of a `GpuTargetConfigProto`; None where the catalog does not know enough.

    A capability that the assembler refuses is described with the cores of the oldest one that it takes.
    """
    capability = accelerator.compute_capability or ""
    capability = STAND_IN.get(capability, capability)
    generation = GENERATIONS.get(capability)
    clock_mhz, bandwidth = accelerator.boost_mhz, accelerator.memory_gb_per_s
    if generation is None or not accelerator.sms_or_cores or clock_mhz is None or bandwidth is None:
        return None
    memory_gib = accelerator.usable_gib or accelerator.memory_gib
    if memory_gib is None:
        return None
    major, minor = capability.split(".")
    return _TEXT.format(
        cores=accelerator.sms_or_cores, lanes=generation.lanes, shared=generation.shared_kib * 1024,
        block=generation.block_kib * 1024, clock=clock_mhz / KILO, bandwidth=int(bandwidth * GIGA),
        l2=int((accelerator.l2_mib or 4.0) * MIB), memory=int(memory_gib * GIB), major=major, minor=minor,
        threads=generation.threads, name=accelerator.name,
    )  # fmt: skip
