"""XLA device descriptions of NVIDIA GPUs from catalog rows, without access to a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ...offers.rows import Accelerator
from ...units import GIB, GIGA, KILO, MIB

__all__ = ["STAND_IN_CAPABILITY", "build_description"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreProperties:
    """Core properties of a compute capability.

    Args:
        lanes: Single-precision units per core [-].
        shared_kib: Shared memory per core [KiB].
        block_kib: Maximum opt-in shared memory per block [KiB].
        threads: Maximum resident threads per core [-].
    """

    lanes: int
    shared_kib: int
    block_kib: int
    threads: int


# NVIDIA, "CUDA C++ Programming Guide" 12.9, tables "Technical specifications per compute capability" and
# "Throughput of native arithmetic instructions".
CORE_PROPERTIES = {
    "6.0": CoreProperties(lanes=64, shared_kib=64, block_kib=48, threads=2048),
    "7.0": CoreProperties(lanes=64, shared_kib=96, block_kib=96, threads=2048),
    "7.5": CoreProperties(lanes=64, shared_kib=64, block_kib=64, threads=1024),
    "8.0": CoreProperties(lanes=64, shared_kib=164, block_kib=163, threads=2048),
    "8.6": CoreProperties(lanes=128, shared_kib=100, block_kib=99, threads=1536),
    "8.9": CoreProperties(lanes=128, shared_kib=100, block_kib=99, threads=1536),
    "9.0": CoreProperties(lanes=128, shared_kib=228, block_kib=227, threads=2048),
    "10.0": CoreProperties(lanes=128, shared_kib=228, block_kib=227, threads=2048),
}
# Compute capabilities that CUDA 12's assembler rejects, and the oldest one it supports.
STAND_IN_CAPABILITY = {"3.5": "6.0", "3.7": "6.0", "5.0": "6.0", "5.2": "6.0"}

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


def build_description(accelerator: Accelerator) -> str | None:
    """Return the text of a `GpuTargetConfigProto`; None if the catalog lacks data.

    A capability that the assembler rejects is described with the cores of the oldest supported one.
    """
    capability = accelerator.compute_capability or ""
    capability = STAND_IN_CAPABILITY.get(capability, capability)
    generation = CORE_PROPERTIES.get(capability)
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
