"""Predictor whose steps carry the memory that a compiler states, and the targets of the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ...offers.rows import Accelerator
from ...records import Frozen
from ...units import GIB, GIGA, KILO, MIB
from ...workload.model import Workload
from ..interconnect import UNKNOWN_HOST, HostSpec
from ..step_time import NoPrediction, StatedMemory, StepPredictor, StepTime, join_notes
from ..xla_recomputation import JAX_POOL_SHARE, XLA_SHARE


class CoreProperties(Frozen):
    """Core properties of a compute capability."""

    lanes: int  # single-precision units per core [-]
    shared_kib: int  # shared memory per core [KiB]
    block_kib: int  # maximum opt-in shared memory per block [KiB]
    threads: int  # maximum resident threads per core [-]


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


def _build_description(accelerator: Accelerator, capability: str) -> str:
    """Return the text of a `GpuTargetConfigProto`; empty if the catalog lacks data."""
    generation = CORE_PROPERTIES.get(capability)
    clock_mhz, bandwidth = accelerator.boost_mhz, accelerator.memory_gb_per_s
    memory_gib = accelerator.usable_gib or accelerator.memory_gib
    if generation is None or not accelerator.sms_or_cores:
        return ""
    if clock_mhz is None or bandwidth is None or memory_gib is None:
        return ""
    major, minor = capability.split(".")
    return _TEXT.format(
        cores=accelerator.sms_or_cores,
        lanes=generation.lanes,
        shared=generation.shared_kib * 1024,
        block=generation.block_kib * 1024,
        clock=clock_mhz / KILO,
        bandwidth=int(bandwidth * GIGA),
        l2=int((accelerator.l2_mib or 4.0) * MIB),
        memory=int(memory_gib * GIB * JAX_POOL_SHARE / XLA_SHARE),  # XLA uses `XLA_SHARE` of it: JAX's pool
        major=major,
        minor=minor,
        threads=generation.threads,
        name=accelerator.name,
    )


Platform = Literal["tpu", "cuda"]

PACKAGES = {  # `jax.export` writes flatbuffers, which JAX itself does not require
    "tpu": ("libtpu", "jax", "jaxlib", "flatbuffers"),
    "cuda": ("jax-cuda12-plugin", "jax-cuda12-pjrt", "jax", "jaxlib", "flatbuffers"),
}


class CompileTarget(Frozen):
    """Target of a compilation."""

    accelerator: str
    platform: Platform  # compiler platform
    topology: str  # compiler's name of a slice, or of one device on CUDA
    description: str = ""  # text of a `GpuTargetConfigProto`; empty on a TPU
    cores: int = 1  # JAX devices per accelerator, each processing a share of the batch [-]
    note: str = ""  # stand-in for the accelerator; empty if there is none


def find_target(accelerator: Accelerator) -> CompileTarget | None:
    """Return the compilation target of an accelerator; None if no compiler supports it."""
    if accelerator.smallest_slice is not None:
        return CompileTarget(
            accelerator=accelerator.name,
            platform="tpu",
            topology=accelerator.smallest_slice,
            cores=accelerator.cores_per_chip,
        )
    capability = accelerator.compute_capability or ""
    stand_in = STAND_IN_CAPABILITY.get(capability)
    description = _build_description(accelerator, stand_in or capability)
    if accelerator.vendor != "NVIDIA" or not description:
        return None
    note = f"not supported by the current compiler: scheduled for compute capability {stand_in}"
    return CompileTarget(
        accelerator=accelerator.name,
        platform="cuda",
        topology="1x1x1",
        description=description,
        note=note if stand_in else "",
    )


def find_compiler_version(platform: Platform) -> str | None:
    """Return the versions of a compiler's packages without importing them; None if one is missing."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return " ".join(f"{package} {version(package)}" for package in PACKAGES[platform])
    except PackageNotFoundError:
        return None


Fault = Literal["missing", "does not fit", "timed out", "out of memory", "killed", "failed"]


class CompiledStep(Frozen):
    """A step as compiled for one device, or the reason why it is not."""

    compiler: str = ""  # compiler and package versions; empty if it failed
    # peak memory including arguments; None if the compiler does not state it [bytes]
    needed_bytes: int | None = None
    # reason; `does not fit` is a result of the compiler, the others are failures; None for none
    fault: Fault | None = None
    message: str = ""  # one-line description of the fault
    hint: str = ""  # remedy; empty if there is none

    @property
    def has_failed(self) -> bool:
        """Whether the compiler gave no result, so that another attempt may succeed."""
        return self.fault not in (None, "does not fit")


@dataclass(frozen=True, eq=False)
class CompiledPredictor:
    """Predictor that adds the compilers' memory to the steps of one workload, and nothing to others."""

    inner: StepPredictor  # of the times
    workload: Workload  # that was compiled
    known: Mapping[str, tuple[CompileTarget, CompiledStep]]  # results by accelerator

    def step_time(
        self,
        workload: Workload,
        accelerator: Accelerator,
        *,
        devices: float = 1,
        machine: HostSpec = UNKNOWN_HOST,
        hosts: int = 1,
    ) -> StepTime | NoPrediction:
        """Return the time of one step, every device processing ``workload.batch_size`` samples.

        At another batch size than the compiled one, a step that does not fit does not at a larger one either,
        and a failed compilation has no memory at any.
        """
        plain = self.inner.step_time(workload, accelerator, devices=devices, machine=machine, hosts=hosts)
        known = self.known.get(accelerator.name)
        names = ("model", "mode", "precision", "compiled", "parameters", "trainable_parameters")
        differs = any(getattr(workload, name) != getattr(self.workload, name) for name in names)
        if known is None or devices < 1 or differs:
            return plain
        target, found = known
        if workload.batch_size != self.workload.batch_size:
            is_smaller = workload.batch_size < self.workload.batch_size
            if found.fault is None or (is_smaller and not found.has_failed):
                return plain
            found = replace(found, needed_bytes=None)
        return _add_memory(plain, target, found)


def _add_memory(
    plain: StepTime | NoPrediction, target: CompileTarget, found: CompiledStep
) -> StepTime | NoPrediction:
    """Return a prediction with the compiler's memory, or with the reason why there is none."""
    if found.has_failed:
        note = f"not compiled: {found.message}"
        if isinstance(plain, NoPrediction):
            return NoPrediction(f"{plain.reason}; {note}")
        return replace(plain, note=join_notes(plain.note, note))
    if isinstance(plain, NoPrediction):
        return plain
    if found.fault is not None:
        note = f"memory: does not fit according to the compiler for {target.accelerator}"
        fits: bool | None = False
    else:
        note = f"memory as compiled for {target.accelerator} by {found.compiler.split(' jax')[0]}"
        fits = True if target.platform == "tpu" else None  # the TPU compiler rejects steps that do not fit
    needed = None if found.needed_bytes is None else found.needed_bytes * target.cores
    memory = StatedMemory(needed_bytes=needed, fits=fits)
    return replace(plain, memory=memory, note=join_notes(plain.note, note, target.note))
