"""Installed packages, available extras, and the devices that each Keras backend reports.

Each backend is loaded in a child process (`profile.machine`): loading takes seconds,
may allocate GPU memory, or crash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from ..offers.clouds import CLOUDS
from ..profile import machine
from ..profile.measuring_process import ask_device
from ..profile.run import BACKENDS

# Optional packages that may affect results or failures.
OPTIONAL_PACKAGES = (
    "jaxlib", "tensorflow", "tensorflow-cpu", "torch", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin",
    "nvidia-ml-py", "boto3", "google-auth", "google-cloud-billing", "skypilot",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """An extra of the package, `pip install 'gpuplan[NAME]'`, and the modules that it installs."""

    name: str
    purpose: str
    modules: tuple[str, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """Modules that are not installed."""
        return tuple(module for module in self.modules if not _is_installed(module))


EXTRAS = (
    *(Extra(name=cloud.name, purpose=cloud.extra, modules=cloud.modules) for cloud in CLOUDS if cloud.extra),
    Extra(name="skypilot", purpose="pass a plan to SkyPilot", modules=("sky",)),
    Extra(name="tensorflow", purpose="measure and capture Keras on TensorFlow", modules=("tensorflow",)),
    Extra(name="torch", purpose="measure and capture Keras on PyTorch", modules=("torch",)),
    Extra(name="tpu-compile", purpose="compile for TPUs not in this machine", modules=("libtpu", "flatbuffers")),
    Extra(
        name="cuda-compile", purpose="compile for NVIDIA GPUs not in this machine",
        modules=("jax_cuda12_plugin", "jax_plugins.xla_cuda12", "flatbuffers"),
    ),
    Extra(name="nvidia", purpose="names, clocks and temperature of NVIDIA GPUs", modules=("pynvml",)),
    Extra(name="keras-hub", purpose="presets of Keras Hub as MODEL", modules=("keras_hub",)),
    Extra(name="mcp", purpose="estimates for an assistant: `gpuplan mcp`", modules=("mcp",)),
    Extra(name="pandas", purpose="an estimate as a data frame", modules=("pandas",)),
)  # fmt: skip


def read_versions() -> dict[str, str | None]:
    """Return the versions of required packages (None if missing) and of other relevant ones."""
    required = tuple(parse_required_packages(metadata.requires("gpuplan") or ()))
    return dict.fromkeys(required) | machine.read_versions((*required, *OPTIONAL_PACKAGES))


def parse_required_packages(requirements: Iterable[str]) -> Iterator[str]:
    """Yield the names of requirements outside extras.

    Example:
        >>> list(parse_required_packages(["keras>=3.9", 'boto3>=1.35; extra == "aws"']))
        ['keras']
    """
    for requirement in requirements:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if name is not None and "extra ==" not in requirement:
            yield name[0]


def _is_installed(module: str) -> bool:
    """Return whether a module is installed, importing only its parent packages."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendReport:
    """Platform, device, number and memory of a backend; None if it failed, with the reason in one line."""

    name: str
    facts: Mapping[str, Any] | None
    error: str | None = None


def find_installed_backends() -> tuple[str, ...]:
    """Return the installed backends without loading them."""
    return tuple(name for name in BACKENDS if find_spec(name) is not None)


def probe_backends(names: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> list[BackendReport]:
    """Probe the devices of backends in parallel."""
    if not names:
        return []
    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        return list(pool.map(lambda name: _probe(name, timeout_s), names))


def _probe(name: str, timeout_s: float) -> BackendReport:
    """Probe one backend in a child process."""
    found = ask_device(name, timeout_s=timeout_s)
    if isinstance(found, str):
        return BackendReport(name=name, facts=None, error=found)
    return BackendReport(name=name, facts=found)
