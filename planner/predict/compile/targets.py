"""Compilation targets: the compiler's name and description of an accelerator."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Literal

from ...offers.rows import Accelerator
from ...units import GIB, GIGA, KILO, MIB
from ..kernels.executed_ops import CORES_PER_CHIP
from ..xla_recomputation import JAX_POOL_SHARE, XLA_SHARE

# NVIDIA, "CUDA C++ Programming Guide" 12.9, tables "Technical specifications per compute capability" and
# "Throughput of native arithmetic instructions": single-precision units of a core, its shared memory, the part of
# it that a block may opt in to, and resident threads of a core.
CORE_PROPERTIES = {
    "6.0": {"lanes": 64, "shared_kib": 64, "block_kib": 48, "threads": 2048},
    "7.0": {"lanes": 64, "shared_kib": 96, "block_kib": 96, "threads": 2048},
    "7.5": {"lanes": 64, "shared_kib": 64, "block_kib": 64, "threads": 1024},
    "8.0": {"lanes": 64, "shared_kib": 164, "block_kib": 163, "threads": 2048},
    "8.6": {"lanes": 128, "shared_kib": 100, "block_kib": 99, "threads": 1536},
    "8.9": {"lanes": 128, "shared_kib": 100, "block_kib": 99, "threads": 1536},
    "9.0": {"lanes": 128, "shared_kib": 228, "block_kib": 227, "threads": 2048},
    "10.0": {"lanes": 128, "shared_kib": 228, "block_kib": 227, "threads": 2048},
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
        cores=accelerator.sms_or_cores,
        lanes=generation["lanes"],
        shared=generation["shared_kib"] * 1024,
        block=generation["block_kib"] * 1024,
        clock=clock_mhz / KILO,
        bandwidth=int(bandwidth * GIGA),
        l2=int((accelerator.l2_mib or 4.0) * MIB),
        memory=int(memory_gib * GIB * JAX_POOL_SHARE / XLA_SHARE),  # XLA uses `XLA_SHARE` of it: JAX's pool
        major=major,
        minor=minor,
        threads=generation["threads"],
        name=accelerator.name,
    )


Platform = Literal["tpu", "cuda"]

INSTALL = {
    "tpu": "pip install 'gpuplan[tpu-compile]'",
    "cuda": "pip install 'gpuplan[cuda-compile]'",
}
PACKAGES = {  # `jax.export` writes flatbuffers, which JAX itself does not require
    "tpu": ("libtpu", "jax", "jaxlib", "flatbuffers"),
    "cuda": ("jax-cuda12-plugin", "jax-cuda12-pjrt", "jax", "jaxlib", "flatbuffers"),
}

# Slices by number of chips: 2D for v2, v3, v5e and v6e; 3D for v4 and v5p
# (docs.cloud.google.com/tpu/docs/v5e, v6e, v4 and v5p: "Configurations").
PLANES = {4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
CUBES = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4"}
SQUARES = {4: "2x2", 16: "4x4", 64: "8x8", 256: "16x16"}
SHAPES = {
    "TPU-v2": SQUARES, "TPU-v3": SQUARES, "TPU-v4": CUBES, "TPU-v5e": PLANES, "TPU-v5p": CUBES,
    "TPU-v6e": PLANES,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileTarget:
    """Target of a compilation.

    Args:
        accelerator: Name in the catalog.
        platform: Compiler platform.
        topology: Compiler's name of a slice, or of one device on CUDA.
        description: Text of a `GpuTargetConfigProto`; empty on a TPU.
        cores: JAX devices per accelerator, each processing a share of the batch [-].
        note: Stand-in for the accelerator; empty if there is none.
        devices: JAX devices over which one program is sharded; 1 for separate programs [-].
    """

    accelerator: str
    platform: Platform
    topology: str
    description: str = ""
    cores: int = 1
    note: str = ""
    devices: int = 1

    @property
    def digest(self) -> str:
        """Digest of everything that the compiler sees."""
        seen = {**asdict(self), "accelerator": "", "note": ""}
        if self.devices == 1:
            del seen["devices"]
        return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()


def find_target(accelerator: Accelerator) -> CompileTarget | None:
    """Return the compilation target of an accelerator; None if no compiler supports it."""
    if accelerator.name in SHAPES:
        smallest = SHAPES[accelerator.name][4]  # that libtpu supports
        return CompileTarget(
            accelerator=accelerator.name,
            platform="tpu",
            topology=f"{accelerator.name.removeprefix('TPU-')}:{smallest}",
            cores=CORES_PER_CHIP.get(accelerator.name, 1),
        )
    description = build_description(accelerator) if accelerator.vendor == "NVIDIA" else None
    if description is None:
        return None
    stand_in = STAND_IN_CAPABILITY.get(accelerator.compute_capability or "", "")
    note = (
        f"not supported by the current compiler: scheduled for compute capability {stand_in}"
        if stand_in
        else ""
    )
    return CompileTarget(
        accelerator=accelerator.name, platform="cuda", topology="1x1x1", description=description, note=note
    )


def build_sharded_target(target: CompileTarget, accelerators: int) -> CompileTarget | None:
    """Return a target of several accelerators that run one program; None if there is no such slice.

    Example:
        >>> v3 = CompileTarget(accelerator="TPU-v3", platform="tpu", topology="v3:2x2", cores=2)
        >>> whole = build_sharded_target(v3, 16)
        >>> whole.topology, whole.devices, build_sharded_target(v3, 8)
        ('v3:4x4', 32, None)
    """
    devices = accelerators * target.cores
    if target.platform == "cuda":
        return replace(target, topology=f"1x1x{accelerators}", devices=devices)
    shape = SHAPES.get(target.accelerator, {}).get(accelerators)
    name = target.topology.split(":")[0]
    return None if shape is None else replace(target, topology=f"{name}:{shape}", devices=devices)


def find_compiler_version(platform: Platform) -> str | None:
    """Return the versions of a compiler's packages without importing them; None if one is missing."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return " ".join(f"{package} {version(package)}" for package in PACKAGES[platform])
    except PackageNotFoundError:
        return None
