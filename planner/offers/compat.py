"""Hardware and software compatibility: framework builds and number formats supported by each accelerator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Annotated, Literal, NamedTuple

from .catalog_files import load_rows, read_table
from .rows import Accelerator, Constraint, Row

Capability = Annotated[float, Constraint(ge=2, le=20)]
Framework = Literal["jax", "tensorflow", "torch"]
Verdict = Literal["runs", "older", "no"]
FRAMEWORKS: tuple[Framework, ...] = ("jax", "tensorflow", "torch")


class FrameworkBuild(Row):
    """A framework build for NVIDIA GPUs."""

    framework: Framework
    versions: str
    cuda: str
    capability_min: Capability
    capability_max: Capability
    driver_min: str
    keras3: bool
    source: str


class NumberFormat(Row):
    """A number format and the lowest compute capability that supports it in hardware."""

    precision: str
    capability_min: Capability
    instead: str
    source: str


class NamedChipBuild(Row):
    """A framework build for accelerators identified by name: TPUs and AWS chips."""

    names: tuple[str, ...]
    framework: Framework
    versions: str
    keras3: bool
    source: str


class FrameworkSupport(NamedTuple):
    """Support of an accelerator by a framework."""

    framework: Framework  # `jax`, `tensorflow` or `torch`
    verdict: Verdict | None  # `runs` with the newest build, `older` with an older one, `no`, or None if unknown
    versions: str = ""  # supporting versions, as text
    keras3: bool = False  # whether Keras 3 supports that build


@dataclass(frozen=True)
class CompatibilityMatrix:
    """Compatibility matrix: builds for GPUs, number formats, builds for TPUs and NPUs."""

    builds: tuple[FrameworkBuild, ...]
    formats: tuple[NumberFormat, ...]
    chips: tuple[NamedChipBuild, ...]

    def runs_keras(self, accelerator: Accelerator) -> bool | None:
        """Return whether any framework build runs Keras 3 on an accelerator; None if unknown."""
        known = [one for one in self.of(accelerator) if one.verdict is not None]
        if not known:
            return None
        return any(one.keras3 and one.verdict != "no" for one in known)

    @cached_property
    def _known(self) -> dict[object, tuple[FrameworkSupport, ...]]:
        return {}

    def of(self, accelerator: Accelerator) -> tuple[FrameworkSupport, ...]:
        """Return one entry per framework for an accelerator; empty if the matrix does not cover it."""
        key = (accelerator.name, accelerator.kind, accelerator.vendor, accelerator.compute_capability)
        if key not in self._known:
            found: tuple[FrameworkSupport, ...] = ()
            if accelerator.kind in ("tpu", "npu"):
                found = tuple(self._on_chip(accelerator, name) for name in FRAMEWORKS)
            elif accelerator.vendor == "NVIDIA" and accelerator.compute_capability is not None:
                capability = float(accelerator.compute_capability)
                found = tuple(self._on_gpu(capability, name) for name in FRAMEWORKS)
            self._known[key] = found
        return self._known[key]

    def note(self, accelerator: Accelerator, precision: str) -> str:
        """Return a one-sentence compatibility warning; empty if the newest builds run."""
        missing, capability = "", accelerator.compute_capability if accelerator.vendor == "NVIDIA" else None
        for row in self.formats:
            if row.precision == precision and capability and float(capability) < row.capability_min:
                since = f"compute capability {row.capability_min:g}"
                missing = missing or f"no {precision} in hardware before {since}: use {row.instead}"
        fitness = [one for one in self.of(accelerator) if one.verdict is not None]
        if not fitness:
            return missing
        usable = [one for one in fitness if one.verdict != "no" and one.keras3]
        if not usable:
            others = ", ".join(f"{one.framework} {one.versions}" for one in fitness if one.verdict != "no")
            capability = accelerator.compute_capability
            which = f" (compute capability {capability})" if capability else ""
            return f"Keras 3 does not support it{which}" + (f": {others}" if others else "")
        if all(one.verdict == "older" for one in usable if one.framework != "tensorflow"):
            needs = "; ".join(f"{one.framework} {one.versions}" for one in usable)
            return "; ".join(filter(None, (f"needs a build that still supports it: {needs}", missing)))
        return missing

    def _on_gpu(self, capability: float, framework: Framework) -> FrameworkSupport:
        """Return the entry of a compute capability; unknown if newer than every build of the matrix."""
        builds = [build for build in self.builds if build.framework == framework]
        for position, build in enumerate(builds):
            if build.capability_min <= capability <= build.capability_max:
                verdict: Verdict = "older" if position else "runs"
                return FrameworkSupport(framework, verdict, build.versions, build.keras3)
        if not builds or capability > max(build.capability_max for build in self.builds):
            return FrameworkSupport(framework, None)
        return FrameworkSupport(framework, "no")

    def _on_chip(self, accelerator: Accelerator, framework: Framework) -> FrameworkSupport:
        for build in self.chips:
            if build.framework == framework and accelerator.name in build.names:
                return FrameworkSupport(framework, "runs", build.versions, build.keras3)
        return FrameworkSupport(framework, None)


@cache
def load_compatibility() -> CompatibilityMatrix:
    """Load the packaged compatibility matrix."""
    table = read_table(files("gpuplan.catalog"), "compat.toml")
    return CompatibilityMatrix(
        builds=load_rows(table, "build", FrameworkBuild),
        formats=load_rows(table, "format", NumberFormat),
        chips=load_rows(table, "tpu", NamedChipBuild) + load_rows(table, "npu", NamedChipBuild),
    )
