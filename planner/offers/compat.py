"""Will it run at all? Which builds of which framework run on an accelerator, and which formats it computes in."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Annotated, Any, Literal

from ..frozen import Frozen
from .files import read_table, valid_rows
from .rows import Accelerator, Checked, Row

__all__ = ["Compatibility", "Fitness", "load_compatibility"]

Capability = Annotated[float, Checked(ge=2, le=20)]
Framework = Literal["jax", "tensorflow", "torch"]


class Build(Row):
    """A build of a framework for NVIDIA GPUs."""

    framework: Framework
    versions: str
    cuda: str
    capability_min: Capability
    capability_max: Capability
    driver_min: str
    keras3: bool
    source: str


class Format(Row):
    """A number format and the first compute capability whose hardware has it."""

    precision: str
    capability_min: Capability
    instead: str
    source: str


class ChipBuild(Row):
    """A framework on chips that are known by name: TPUs, and those of AWS."""

    names: tuple[str, ...]
    framework: Framework
    versions: str
    keras3: bool
    source: str


class Fitness(Frozen):
    """Whether a framework runs on an accelerator.

    Args:
        framework: `jax`, `tensorflow` or `torch`.
        verdict: `runs` with the newest build; `older` with an older one; `no`; None: not known.
        versions: Which versions would, in words.
        cuda: Of that build; None for TPUs.
        keras3: Whether Keras 3 runs on it.
        source: Where it was read.
    """

    framework: Framework
    verdict: Literal["runs", "older", "no"] | None
    versions: str = ""
    cuda: str | None = None
    keras3: bool = False
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class Compatibility:
    """The matrix: builds, formats, TPUs."""

    builds: tuple[Build, ...]
    formats: tuple[Format, ...]
    tpus: tuple[ChipBuild, ...]
    npus: tuple[ChipBuild, ...] = ()

    def runs_keras(self, accelerator: Accelerator) -> bool | None:
        """Return whether a build of any framework runs Keras 3 on an accelerator; None: not known."""
        known = [one for one in self.of(accelerator) if one.verdict is not None]
        if not known:
            return None
        return any(one.keras3 and one.verdict != "no" for one in known)

    @cached_property
    def _known(self) -> dict[object, tuple[Fitness, ...]]:
        return {}

    def of(self, accelerator: Accelerator) -> tuple[Fitness, ...]:
        """Return what runs on an accelerator, one entry a framework; empty for what the matrix does not cover."""
        key = (accelerator.name, accelerator.kind, accelerator.vendor, accelerator.compute_capability)
        if key not in self._known:
            self._known[key] = self._of(accelerator)
        return self._known[key]

    def _of(self, accelerator: Accelerator) -> tuple[Fitness, ...]:
        if accelerator.kind in ("tpu", "npu"):
            return tuple(self._on_chip(accelerator, name) for name in ("jax", "tensorflow", "torch"))
        if accelerator.vendor != "NVIDIA" or accelerator.compute_capability is None:
            return ()
        capability = float(accelerator.compute_capability)
        return tuple(self._on_gpu(capability, name) for name in ("jax", "tensorflow", "torch"))

    def note(self, accelerator: Accelerator, precision: str) -> str:
        """Return what a user must know before renting, in a sentence; empty when all is as usual."""
        missing = self._missing_format(accelerator, precision)
        fitness = [one for one in self.of(accelerator) if one.verdict is not None]
        if not fitness:
            return missing
        usable = [one for one in fitness if one.verdict != "no" and one.keras3]
        if not usable:
            others = ", ".join(f"{one.framework} {one.versions}" for one in fitness if one.verdict != "no")
            capability = accelerator.compute_capability
            which = f" (compute capability {capability})" if capability else ""
            return f"Keras 3 does not run on it{which}: {others}"
        if all(one.verdict == "older" for one in usable if one.framework != "tensorflow"):
            needs = "; ".join(f"{one.framework} {one.versions}" for one in usable)
            return "; ".join(
                part for part in (f"needs a build that still knows it: {needs}", missing) if part
            )
        return missing

    def _on_gpu(self, capability: float, framework: Any) -> Fitness:
        builds = [build for build in self.builds if build.framework == framework]
        for position, build in enumerate(builds):
            if build.capability_min <= capability <= build.capability_max:
                return Fitness(
                    framework=framework, verdict="older" if position else "runs", versions=build.versions,
                    cuda=build.cuda, keras3=build.keras3, source=build.source,
                )  # fmt: skip
        return Fitness(framework=framework, verdict="no", source=builds[0].source if builds else "")

    def _on_chip(self, accelerator: Accelerator, framework: Any) -> Fitness:
        for build in self.tpus if accelerator.kind == "tpu" else self.npus:
            if build.framework == framework and accelerator.name in build.names:
                return Fitness(
                    framework=framework, verdict="runs", versions=build.versions, keras3=build.keras3,
                    source=build.source,
                )  # fmt: skip
        return Fitness(framework=framework, verdict=None)

    def _missing_format(self, accelerator: Accelerator, precision: str) -> str:
        if accelerator.vendor != "NVIDIA" or accelerator.compute_capability is None:
            return ""
        for row in self.formats:
            if row.precision == precision and float(accelerator.compute_capability) < row.capability_min:
                since = f"compute capability {row.capability_min:g}"
                return f"no {precision} in hardware before {since}: use {row.instead}"
        return ""


@cache
def load_compatibility() -> Compatibility:
    """Return the packaged matrix."""
    table = read_table(files("gpuplan.catalog"), "compat.toml")
    return Compatibility(
        builds=valid_rows(table, "build", Build),
        formats=valid_rows(table, "format", Format),
        tpus=valid_rows(table, "tpu", ChipBuild),
        npus=valid_rows(table, "npu", ChipBuild),
    )
