"""The fitted constants: what they are called, what they mean, and the one file that they live in.

``profiles/efficiency.json`` holds them with the data they were fitted on. Nothing else in ``predict`` holds a
number that was tuned.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..frozen import Frozen

__all__ = [
    "FORMAT",
    "AcceleratorLimits",
    "Coefficients",
    "GenerationCoefficients",
    "HostCoefficients",
    "SharedCoefficients",
    "StackCoefficients",
    "field_names",
    "load_coefficients",
]  # fmt: skip

FORMAT = "gpuplan.efficiency/6"


class GenerationCoefficients(Frozen):
    """How far one architecture generation gets, kernel category by kernel category.

    Args:
        conv_fprop, conv_dgrad, conv_wgrad, dot: Share of the datasheet peak that large contractions reach [-].
        depthwise: Share of the scalar units' peak at float32; pairs of 16-bit operands count as one [-].
        conv_tensor, dot_tensor: Share of the tensor units' peak that large convolutions, products reach [-].
        winograd_gain: How much less arithmetic 3x3 and 5x5, stride 1 convolutions of float32 cost [-].
        stream, pool, irregular: Share of the datasheet memory bandwidth reached by elementwise work and
            reductions, by window reductions, by gathers and scatters [-].
        launch_s: Time from one kernel's end to the next one's full speed [s].
        step_latency_s: Time of one step of a product's k loop when too few tiles run to hide it [s].
        filter_passes: Passes over a filter by the transforms of Winograd's and Fourier's algorithms, at the bytes
            that a V100's cores move in a clock [-].
        array_passes: The same over the arrays, at the bandwidth that streams reach [-].
    """

    conv_fprop: float
    conv_dgrad: float
    conv_wgrad: float
    depthwise: float
    dot: float
    conv_tensor: float
    dot_tensor: float
    winograd_gain: float
    stream: float
    pool: float
    irregular: float
    launch_s: float
    step_latency_s: float
    filter_passes: float
    array_passes: float


class SharedCoefficients(Frozen):
    """What all generations have in common.

    Args:
        tile_exponent: A tile's rate falls with this power of its arithmetic intensity [-].
        quantization: How whole the waves are beyond the first, 0..1 [-].
        split_cost: Relative cost of each doubling of a split k loop [-].
        sharpness: How well arithmetic and memory traffic of one kernel overlap (power of a p-norm) [-].
        dot_sharpness: The same for matrix products [-].
        host_sharpness: The same for the device's work and the host's dispatch [-].
        tensor_density: Power of the tensor units' FLOP per clock and core, relative to a V100's, that their share
            of convolutions falls with: registers and caches feed dense units no faster. Matrix products reach
            about the same share on all of them [-].
        memory_density: Power of the memory's bytes per clock and core, relative to a V100's, that the share of
            its bandwidth falls with: more bytes have to be under way at a time than a core asks for [-].
        clock_headroom: The clock under load over the base clock, where power allows no more than that [-].
        inline_ecc: Bandwidth that is left where error correction lies in the memory itself (GDDR) [-].
        l2_reuse: Share of the traffic that a second-level cache holds which never reaches memory [-].
        pressure_slope: How much slower steps get beyond full memory, where no workspace is left, per unit of
            (memory needed / memory usable) above 1, in log time [-].
        tensor_per_year: How much faster each year's libraries after 2019 use tensor units [-].
    """

    tile_exponent: float
    quantization: float
    split_cost: float
    sharpness: float
    dot_sharpness: float
    host_sharpness: float
    tensor_density: float
    memory_density: float
    clock_headroom: float
    inline_ecc: float
    l2_reuse: float
    pressure_slope: float
    tensor_per_year: float


class StackCoefficients(Frozen):
    """How a framework, as it was used, differs from the mean of all.

    Args:
        contraction, tensor: Rate of products on scalar units, on tensor units [-].
        stream: Bandwidth of everything that is bound by memory [-].
    """

    contraction: float
    tensor: float
    stream: float


class HostCoefficients(Frozen):
    """What the host adds to a step.

    Args:
        fixed_s: Per step, whatever the model [s].
        dispatch_s: Per kernel, kernel by kernel [s].
        feed_bytes_per_s: Rate at which NumPy data reaches the device [bytes/s].
    """

    fixed_s: float
    dispatch_s: float
    feed_bytes_per_s: float


class AcceleratorLimits(Frozen):
    """What the formulas need to know of one accelerator, at the precision of the step.

    Args:
        peak_flop_per_s: What each kernel's operand type allows products at best, array of [kernels] [FLOP/s].
        winograd: Whether Winograd algorithms exist for it, array of [kernels].
        tensor: Whether tensor units do the products, array of [kernels].
        tensor_density: FLOP per clock and core at the peak, relative to a V100's tensor units, array of
            [kernels] [-].
        pairs: Whether scalar units take two operands in one instruction, array of [kernels].
        memory_density: Bytes of traffic per clock and core at the datasheet's rate, relative to a V100's [-].
        vector_flop_per_s: Peak of everything else [FLOP/s].
        memory_bytes_per_s: Datasheet bandwidth [bytes/s].
        cores: What one tile runs on: SMs, matrix units, CPU cores [-].
        clock_ratio: Base clock over boost clock; infinite where power sets no limit [-].
        inline_ecc: Whether error correction lies in the memory itself.
        issue_share: Of the scalar peak, what matrix products could reach by the instructions that are issued [-].
        l2_bytes: Second-level cache [bytes].
        lanes: Side of a TPU's array of multiply-adds; 0 for other chips [-].
    """

    peak_flop_per_s: Any
    winograd: Any
    tensor: Any
    tensor_density: Any
    pairs: Any
    memory_density: Any
    vector_flop_per_s: Any
    memory_bytes_per_s: Any
    cores: Any
    clock_ratio: Any
    inline_ecc: Any
    issue_share: Any
    l2_bytes: Any
    lanes: Any = 0


class Coefficients(Frozen):
    """Everything that was fitted, and on what."""

    generations: dict[str, GenerationCoefficients]  # "" is the mean, in the middle between both eras
    era: dict[str, float]  # what chips since Volta add to the log, and older ones take from it
    shared: SharedCoefficients
    stacks: dict[str, StackCoefficients]
    hosts: dict[str, HostCoefficients]
    # basis -> stack -> 10th and 90th percentile of log(measured / predicted) on what was held out
    intervals: dict[str, dict[str, tuple[float, float]]]
    fitted_on: dict[str, Any]  # accelerators, rows, sources, date

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"schema": FORMAT, **asdict(self)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Coefficients:
        """Read what `to_json` wrote; KeyError or TypeError on anything else."""
        return Coefficients(
            generations={name: GenerationCoefficients(**row) for name, row in data["generations"].items()},
            era=data["era"],
            shared=SharedCoefficients(**data["shared"]),
            stacks={name: StackCoefficients(**row) for name, row in data["stacks"].items()},
            hosts={name: HostCoefficients(**row) for name, row in data["hosts"].items()},
            intervals={
                basis: {stack: (ends[0], ends[1]) for stack, ends in stacks.items()}
                for basis, stacks in data["intervals"].items()
            },
            fitted_on=data["fitted_on"],
        )


def field_names(
    kind: type[GenerationCoefficients]
    | type[SharedCoefficients]
    | type[StackCoefficients]
    | type[HostCoefficients]
    | type[AcceleratorLimits],
) -> tuple[str, ...]:
    """Return the field names of a group of coefficients, in order."""
    return tuple(field.name for field in fields(kind))


@cache
def load_coefficients(path: Path | None = None) -> Coefficients:
    """Read the packaged coefficients, or a file that `gpuplan calibrate` wrote.

    Raises:
        UsageError: The file is missing or is not such a file.
    """
    packaged = resources.files("gpuplan.profiles") / "efficiency.json"
    try:
        text = path.read_text() if path else packaged.read_text()
        return Coefficients.from_json(json.loads(text))
    except (OSError, KeyError, TypeError, ValueError) as problem:
        raise UsageError(
            f"cannot read coefficients from `{path or packaged}`: {problem!r}",
            hint="write them anew with `gpuplan calibrate`",
        ) from problem
