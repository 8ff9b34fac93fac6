"""Environment of a measurement: processor, memory, device, driver, clocks, versions. Unknown values are null.

`python -m gpuplan.profile.machine FOLDER` sends the facts on a backend's device.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ..child_process import Parent
from ..errors import UsageError
from ..limits import count_usable_cores
from ..units import MIB

_READ = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
DOCTOR = "`gpuplan doctor` shows the devices of each backend"


def describe_environment(backend: str) -> dict[str, Any]:
    """Return the environment of a measurement; call it in the process that loads the backend."""
    return {
        "host": read_host_facts(),
        "device": read_backend_facts(backend),
        "device_state": read_device_state(),
        "packages": read_versions(_READ["packages"]),
        "variables": {name: os.environ[name] for name in _READ["variables"] if name in os.environ},
    }


def read_host_facts() -> dict[str, Any]:
    """Return the processor, memory, clocks, power and load of the host."""
    import psutil

    clock = battery = None
    with contextlib.suppress(OSError, NotImplementedError, RuntimeError):
        clock = psutil.cpu_freq()
    if hasattr(psutil, "sensors_battery") and os.path.exists("/sys/class/power_supply"):
        battery = psutil.sensors_battery()
    plugged = None if battery is None else battery.power_plugged
    return {
        "processor": read_processor_name(),
        "logical_cores": os.cpu_count(),
        "usable_cores": count_usable_cores(),
        "physical_cores": psutil.cpu_count(logical=False),
        "clock_mhz": round(clock.current, 1) if clock else None,
        "clock_max_mhz": clock.max or None if clock else None,
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "on_battery": None if plugged is None else not plugged,
        "memory_bytes": psutil.virtual_memory().total,
        "memory_available_bytes": psutil.virtual_memory().available,
        "load_1_min": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def read_processor_name() -> str:
    """Return the processor's model name, or else its architecture."""
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of packages, without those that are not installed."""
    from importlib import metadata  # loads half of `email`

    found = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


# --- the device according to the backend -------------------------------------------------------------------


def read_backend_facts(backend: str) -> dict[str, Any]:
    """Return platform (`cpu`, `gpu`, `tpu`), name, number, memory and threads of a backend's devices."""
    found = {"jax": _read_jax, "tensorflow": _read_tensorflow, "torch": _read_torch}[backend]()
    known = dict.fromkeys(("platform", "name", "count", "memory_bytes", "threads")) | found
    if known["platform"] == "cpu":
        known["name"] = read_processor_name()
    return {"backend": backend, **known}


def require_device(facts: Mapping[str, Any], wanted: str | None) -> None:
    """Raise UsageError unless a backend with these facts uses the wanted device."""
    if wanted is not None and facts["platform"] != wanted:
        backend = facts["backend"]
        raise UsageError(
            f"--device {wanted}: {backend} uses a {facts['platform']} on this machine",
            hint=f"install {backend} for that device, or leave out `--device`",
        )


def _read_jax() -> dict[str, Any]:
    import jax

    device = jax.devices()[0]
    return {
        "platform": device.platform,
        "name": device.device_kind,
        "count": jax.device_count(),
        "memory_bytes": (device.memory_stats() or {}).get("bytes_limit"),
        "compute_capability": getattr(device, "compute_capability", None),
        "libraries": device.client.platform_version,
    }


def _read_tensorflow() -> dict[str, Any]:
    import tensorflow as tf

    gpus, tpus = tf.config.list_physical_devices("GPU"), tf.config.list_logical_devices("TPU")
    threads = tf.config.threading.get_intra_op_parallelism_threads() or None
    if not gpus:
        kind = "tpu" if tpus else "cpu"
        return {"platform": kind, "name": kind, "count": len(tpus) or 1, "threads": threads}
    name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "unknown")
    return {"platform": "gpu", "name": name, "count": len(gpus), "threads": threads}


def _read_torch() -> dict[str, Any]:
    import torch

    threads = torch.get_num_threads()
    if not torch.cuda.is_available() or os.environ.get("KERAS_TORCH_DEVICE") == "cpu":
        return {"platform": "cpu", "count": 1, "threads": threads}
    gpu = torch.cuda.get_device_properties(0)
    return {
        "platform": "gpu",
        "name": gpu.name,
        "count": torch.cuda.device_count(),
        "memory_bytes": gpu.total_memory,
        "threads": threads,
        "compute_capability": f"{gpu.major}.{gpu.minor}",
        "libraries": f"cuda {torch.version.cuda}, cudnn {torch.backends.cudnn.version()}",
    }


# --- the device according to its driver --------------------------------------------------------------------


def read_device_state() -> dict[str, Any] | None:
    """Return driver, clocks, power, temperature and memory of the first visible NVIDIA GPU; None without one."""
    try:
        nvml: Any = import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # no package, no driver or a version mismatch: nothing is known
        return None
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    found: dict[str, Any] = {}
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(int(first) if first.isdigit() else 0)
        questions: dict[str, Callable[[], Any]] = {
            "name": lambda: nvml.nvmlDeviceGetName(handle),
            "driver": nvml.nvmlSystemGetDriverVersion,
            "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "sm_max_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
            "power_state": lambda: int(nvml.nvmlDeviceGetPerformanceState(handle)),
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            "memory_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
            "memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total,
            "ecc": lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
            "pcie_generation": lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
            "pcie_width": lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
        }
        for name, ask in questions.items():
            found[name] = None
            with contextlib.suppress(nvml.NVMLError, AttributeError):
                answer = ask()
                found[name] = answer.decode() if isinstance(answer, bytes) else answer
        return found
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def read_resident_peak_bytes() -> int:
    """Return the peak resident memory of this process [bytes]."""
    unit = 1 if sys.platform == "darwin" else MIB // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def read_device_peak_bytes(backend: str) -> int | None:
    """Return the peak device memory allocated by the backend [bytes]; None if not tracked (CPU)."""
    if backend == "jax":
        import jax

        return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    if backend == "tensorflow":
        import tensorflow as tf

        if not tf.config.list_physical_devices("GPU"):
            return None
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
    import torch

    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else None


if __name__ == "__main__":
    parent = Parent(sys.argv[1])
    parent.end_with()
    parent.finish("device", facts=read_backend_facts(parent.request["backend"]))
