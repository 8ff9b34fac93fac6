"""Which packages are installed, in which version, and what the extras would add."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec

__all__ = ["EXTRAS", "Extra", "extras", "required_packages", "versions"]

# What a number or a failure may depend on, beside what gpuplan itself requires.
TELLING = (
    "jaxlib", "tensorflow", "tensorflow-cpu", "torch", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin",
    "nvidia-ml-py", "boto3", "google-auth", "google-cloud-billing", "skypilot", "kaggle",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """One extra of the package, `pip install 'gpuplan[NAME]'`.

    Args:
        name: As in brackets.
        purpose: What it is for.
        modules: What is imported; it is installed when all of them can be found.
    """

    name: str
    purpose: str
    modules: tuple[str, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """Modules that cannot be found."""
        return tuple(module for module in self.modules if not _found(module))


EXTRAS = (
    Extra(name="aws", purpose="prices with a key, quotas, launching on EC2", modules=("boto3",)),
    Extra(
        name="gcp", purpose="prices with a key, launching on Google Cloud",
        modules=("google.auth", "google.cloud.billing_v1"),
    ),
    Extra(name="azure", purpose="launching on Azure", modules=("azure.identity",)),
    Extra(name="skypilot", purpose="hand a plan to SkyPilot", modules=("sky",)),
    Extra(name="tensorflow", purpose="measure and capture Keras on TensorFlow", modules=("tensorflow",)),
    Extra(name="torch", purpose="measure and capture Keras on PyTorch", modules=("torch",)),
    Extra(name="tpu-compile", purpose="compile for TPUs that are not here", modules=("libtpu", "flatbuffers")),
    Extra(
        name="cuda-compile", purpose="compile for NVIDIA GPUs that are not here",
        modules=("jax_cuda12_plugin", "jax_plugins.xla_cuda12", "flatbuffers"),
    ),
    Extra(name="nvidia", purpose="names, clocks and heat of NVIDIA GPUs", modules=("pynvml",)),
)  # fmt: skip


def extras() -> tuple[Extra, ...]:
    """Return the extras that a user can install."""
    return EXTRAS


def versions() -> dict[str, str | None]:
    """Return the version of everything that gpuplan requires (None: absent), and of what else tells something."""
    required = {name: _version(name) for name in required_packages(metadata.requires("gpuplan") or ())}
    telling = {name: found for name in TELLING if (found := _version(name)) is not None}
    return required | telling


def required_packages(requirements: Iterable[str]) -> Iterator[str]:
    """Yield the names of requirements that belong to no extra.

    Example:
        >>> list(required_packages(["keras>=3.9", 'boto3>=1.35; extra == "aws"']))
        ['keras']
    """
    for requirement in requirements:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if name is not None and "extra ==" not in requirement:
            yield name[0]


def missing_packages(found: Mapping[str, str | None]) -> list[str]:
    """Return the packages that gpuplan requires and that are absent."""
    return [name for name, version in found.items() if version is None]


def _version(package: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _found(module: str) -> bool:
    """Return whether a module can be imported, without importing it (but for the packages around it)."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
