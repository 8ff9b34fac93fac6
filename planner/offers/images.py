"""Image of a machine: which row of images.toml serves it, or why none does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .rows import CPU, Image, MachineNeed, Wheel

BEFORE_TURING = frozenset({"Kepler", "Maxwell", "Pascal", "Volta"})  # not served by NVIDIA's open kernel modules
CUDA_WHEEL = "jax[cuda12]"


@dataclass(frozen=True, slots=True)
class ImageTables:
    """Images in order of preference, needs of machines, and needs of wheels by name."""

    images: tuple[Image, ...]
    machines: tuple[MachineNeed, ...]
    wheels: dict[str, Wheel]

    def list_problems(self, image: Image, instance_type: str, architecture: str) -> Iterator[str]:
        """Yield the reasons why an image does not serve a machine, the most basic first."""
        needs = (one for one in self.machines if one.provider == image.provider)
        need = next((one for one in needs if re.fullmatch(one.pattern, instance_type)), None)
        if need is not None and need.driver not in (None, image.driver):
            has = f"{image.os} at {image.provider} has NVIDIA's {image.driver} one"
            yield f"needs the driver {need.driver}, and {has}"
        cpu = need.cpu if need is not None else "x86_64"
        if cpu != image.cpu:
            yield f"has an {cpu} CPU, and {image.os} at {image.provider} is for {image.cpu}"
        wheel = self.wheels[CUDA_WHEEL]
        if image.branch < wheel.branch:
            yield f"would get the driver {image.branch}, and {wheel.name} needs {wheel.branch}"
        if architecture not in {CPU, *image.serves} or architecture not in {CPU, *wheel.serves}:
            known = f"is {architecture}" if architecture else "has an accelerator of unknown architecture"
            yield f"{known}, and {image.os} at {image.provider} serves {', '.join(image.serves)}"
