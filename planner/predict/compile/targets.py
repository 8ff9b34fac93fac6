"""What a step can be compiled for: the compiler's name of an accelerator, and what it has to be told."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Literal

from ...offers.rows import Accelerator
from ..work import COPIES
from .gpu_targets import STAND_IN, description_of

__all__ = ["INSTALL", "Target", "compiler_version", "laid_out", "target_of"]

Platform = Literal["tpu", "cuda"]

INSTALL = {"tpu": "pip install 'gpuplan[tpu-compile]'", "cuda": "pip install 'gpuplan[cuda-compile]'"}
PACKAGES = {  # `jax.export` writes flatbuffers, which JAX itself does not require
    "tpu": ("libtpu", "jax", "jaxlib", "flatbuffers"),
    "cuda": ("jax-cuda12-plugin", "jax-cuda12-pjrt", "jax", "jaxlib", "flatbuffers"),
}

# Smallest slice of each generation that libtpu describes.
SLICES = {
    "TPU-v2": "v2:2x2", "TPU-v3": "v3:2x2", "TPU-v4": "v4:2x2x1", "TPU-v5e": "v5e:2x2", "TPU-v5p": "v5p:2x2x1",
    "TPU-v6e": "v6e:2x2",
}  # fmt: skip


# Slices of several chips, by how many; v2 to v3 and v5e to v6e lie in a plane, v4 and v5p in a cube
# (docs.cloud.google.com/tpu/docs/v5e, v6e, v4 and v5p: "Configurations").
PLANES = {4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
CUBES = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4"}
SQUARES = {4: "2x2", 16: "4x4", 64: "8x8", 256: "16x16"}
SHAPES = {
    "TPU-v2": SQUARES, "TPU-v3": SQUARES, "TPU-v4": CUBES, "TPU-v5e": PLANES, "TPU-v5p": CUBES,
    "TPU-v6e": PLANES,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the compiler is asked to compile for.

    Args:
        accelerator: The catalog's name.
        platform: Which compiler.
        topology: Its name of a slice; of one device on CUDA.
        description: Text of a `GpuTargetConfigProto`; empty on a TPU.
        cores: JAX devices of one accelerator, each of which works on its share of the batch [-].
        note: What stands in for the accelerator; empty when nothing does.
        devices: JAX devices that one program is laid out over; 1: each has a program of its own [-].
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
        """A digest of everything that the compiler sees."""
        seen = {**asdict(self), "accelerator": "", "note": ""}
        if self.devices == 1:
            del seen["devices"]
        return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()


def target_of(accelerator: Accelerator) -> Target | None:
    """Return what to compile for; None where no compiler describes the accelerator."""
    if accelerator.name in SLICES:
        return Target(
            accelerator=accelerator.name, platform="tpu", topology=SLICES[accelerator.name],
            cores=COPIES.get(accelerator.name, 1),
        )  # fmt: skip
    description = description_of(accelerator) if accelerator.vendor == "NVIDIA" else None
    if description is None:
        return None
    stand_in = STAND_IN.get(accelerator.compute_capability or "", "")
    note = (
        f"today's compiler refuses its instructions: scheduled as of capability {stand_in}"
        if stand_in
        else ""
    )
    return Target(
        accelerator=accelerator.name, platform="cuda", topology="1x1x1", description=description, note=note
    )


def laid_out(target: Target, accelerators: int) -> Target | None:
    """Return a target of several accelerators that run one program; None where there is no such slice.

    Example:
        >>> v3 = Target(accelerator="TPU-v3", platform="tpu", topology="v3:2x2", cores=2)
        >>> whole = laid_out(v3, 16)
        >>> whole.topology, whole.devices, laid_out(v3, 8)
        ('v3:4x4', 32, None)
    """
    devices = accelerators * target.cores
    if target.platform == "cuda":
        return replace(target, topology=f"1x1x{accelerators}", devices=devices)
    shape = SHAPES.get(target.accelerator, {}).get(accelerators)
    name = target.topology.split(":")[0]
    return None if shape is None else replace(target, topology=f"{name}:{shape}", devices=devices)


def compiler_version(platform: Platform) -> str | None:
    """Return the versions of a compiler's packages, without importing them; None when one is missing."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return " ".join(f"{package} {version(package)}" for package in PACKAGES[platform])
    except PackageNotFoundError:
        return None
