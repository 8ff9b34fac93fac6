"""Environment of a measurement: device, driver, clocks, processor, versions. Unknown values are null."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["device_of", "host", "resident_bytes", "smi", "software", "versions"]

PACKAGES = (
    "keras", "jax", "jaxlib", "torch", "numpy", "triton",
    "jax-cuda12-plugin", "jax-cuda12-pjrt", "jax-cuda13-plugin", "jax-cuda13-pjrt", "libtpu",
    "nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13",
    "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-nccl-cu12", "nvidia-nccl-cu13",
)  # fmt: skip
# Variables of the environment that change what runs, or how fast.
TELLING = (
    "CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS", "XLA_FLAGS", "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_ALLOCATOR", "NVIDIA_TF32_OVERRIDE", "LIBTPU_INIT_ARGS",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_LAUNCH_BLOCKING", "KERAS_NNX_ENABLED",
)  # fmt: skip
# nvidia-smi's names of what stays the same while a device is measured, and of what moves.
FIXED = (
    "name", "driver_version", "vbios_version", "compute_cap", "memory.total", "power.limit", "power.max_limit",
    "clocks.max.sm", "clocks.max.memory", "clocks.applications.graphics", "clocks.applications.memory",
    "persistence_mode", "compute_mode", "ecc.mode.current", "mig.mode.current",
    "pcie.link.gen.max", "pcie.link.width.max",
)  # fmt: skip
MOVING = (
    "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "utilization.gpu", "memory.used", "pstate",
    "clocks_event_reasons.active", "pcie.link.gen.current", "pcie.link.width.current",
)  # fmt: skip
NOT_KNOWN = ("[N/A]", "[Not Supported]", "[Unknown Error]", "N/A", "[GPU requires reset]", "")


def smi(fields: tuple[str, ...]) -> dict[str, str | None] | None:
    """Return the output of nvidia-smi on the first visible GPU, with units; None without nvidia-smi."""
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    command = ["nvidia-smi", "-i", device, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return _smi_by_field(fields) if len(fields) > 1 else None
    values = [value.strip() for value in done.stdout.strip().splitlines()[0].split(",")]
    return {name: None if value in NOT_KNOWN else value for name, value in zip(fields, values, strict=False)}


def _smi_by_field(fields: tuple[str, ...]) -> dict[str, str | None] | None:
    """Ask one by one: a driver that does not know a field refuses them all."""
    if smi(("name",)) is None:
        return None
    return {name: (smi((name,)) or {}).get(name) for name in fields}


def device_of(backend: str) -> dict[str, Any]:
    """Return the device that a backend computes on; run it in a process of its own, for it takes the device."""
    found = _jax_device() if backend == "jax" else _torch_device()
    return {**found, "nvidia_smi": smi(FIXED) if found["platform"] == "gpu" else None}


def _jax_device() -> dict[str, Any]:
    import jax

    device = jax.devices()[0]
    text = getattr(device, "compute_capability", None)
    memory = (device.memory_stats() or {}).get("bytes_limit")
    capability = [int(part) for part in str(text).split(".")] if text else None
    name = processor() if device.platform == "cpu" else device.device_kind
    return {
        "platform": device.platform,
        "name": name,
        "compute_capability": capability,
        "memory_bytes": memory,
    }


def _torch_device() -> dict[str, Any]:
    import torch

    if not torch.cuda.is_available() or os.environ.get("KERAS_TORCH_DEVICE") == "cpu":
        return {"platform": "cpu", "name": processor(), "compute_capability": None, "memory_bytes": None}
    facts = torch.cuda.get_device_properties(0)
    return {
        "platform": "gpu",
        "name": facts.name,
        "compute_capability": [facts.major, facts.minor],
        "memory_bytes": facts.total_memory,
        "multiprocessors": facts.multi_processor_count,
    }


def host() -> dict[str, Any]:
    """Return the processor, memory and operating system."""
    return {
        "processor": processor(),
        "logical_cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_bytes": memory_bytes(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def processor() -> str:
    """Return the processor's name; its architecture where the system does not tell."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def memory_bytes() -> int | None:
    """Return the memory of the machine [bytes]."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return None


def resident_bytes(process: int) -> int | None:
    """Return the resident memory of a process [bytes]; None when it ended, or where the system does not tell."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def versions() -> dict[str, str]:
    """Return the installed packages that matter."""
    found = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def software(backend: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return versions, libraries, threads and telling variables; run where the backend is loaded."""
    import keras

    return {
        "backend": backend,
        "packages": versions(),
        "libraries": _torch_libraries() if backend == "torch" else _jax_libraries(),
        "image_data_format": keras.config.image_data_format(),
        "environment": {name: environment[name] for name in TELLING if name in environment},
    }


def _jax_libraries() -> dict[str, Any]:
    import jax

    return {"platform_version": jax.devices()[0].client.platform_version}


def _torch_libraries() -> dict[str, Any]:
    import torch

    return {
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "threads": torch.get_num_threads(),
    }
