"""Fitted coefficients of the kernel model, stored in ``profiles/efficiency.json`` with the data of the fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from ..errors import UsageError
from ..records import Frozen, from_plain
from .intervals import IntervalModel

T = TypeVar("T")
# From Volta on, first-level cache and shared memory are one, and threads of a warp are scheduled each on its own.
ERA_BEGAN = 2017
LAST_YEAR = 2020  # of the measured chips


class GenerationCoefficients(Frozen):
    """Efficiencies of one architecture generation by category of kernel."""

    # share of the scalar peak reached by large convolutions and their input gradients, the same algorithms with
    # channels exchanged [-]
    conv: float
    # conv_wgrad, dot: the same of gradients of filters, and of matrix products [-]
    conv_wgrad: float
    # share of the scalar units' float32 peak reached by filters of 3 x 3; two 16-bit operands count as one [-]
    depthwise: float
    depthwise_wgrad: float  # the same for the gradient of the filter, a sum over all pixels for a few numbers [-]
    dot: float
    # conv_tensor, dot_tensor: share of the tensor units' peak reached by large convolutions and products [-]
    conv_tensor: float
    dot_tensor: float
    winograd_gain: float  # reduction of arithmetic for float32 convolutions of 3x3 and 5x5 with stride 1 [-]
    # stream, pool, irregular: share of the datasheet memory bandwidth reached by elementwise work and reductions,
    # by window reductions, by gathers and scatters [-]
    stream: float
    pool: float
    irregular: float
    launch_s: float  # gap between two kernels [s]
    step_latency_s: float  # latency of one step of a product's k loop that is not hidden by other tiles [s]
    filter_passes: float  # passes over a filter by transforms of Winograd's and Fourier's algorithms [-]
    array_passes: float  # passes over the arrays by the same transforms, at the bandwidth of streams [-]
    atomics: float  # atomic additions a clock of the chip to the few numbers of a depthwise filter [-]


class SharedCoefficients(Frozen):
    """Coefficients shared by all generations."""

    tile_exponent: float  # exponent of a tile's rate in its arithmetic intensity [-]
    quantization: float  # quantization of waves beyond the first; 0: fractional, 1: whole [-]
    split_cost: float  # relative cost of each doubling of a split k loop [-]
    sharpness: float  # order of the p-norm of arithmetic and memory time of a kernel [-]
    dot_sharpness: float  # order of the same p-norm for matrix products [-]
    host_sharpness: float  # order of the p-norm of device work and host dispatch [-]
    # share of the tensor peak in convolutions ~ (FLOP per clock and core, relative to a V100)^-this: registers and
    # caches do not scale with the units. Matrix products are not affected [-]
    tensor_density: float
    # share of the bandwidth ~ (bytes per clock and core, relative to a V100)^-this: the requests in flight per
    # core are limited [-]
    memory_density: float
    clock_headroom: float  # power-limited clock under load over the base clock [-]
    inline_ecc: float  # share of the bandwidth left by error correction in the memory itself (GDDR) [-]
    l2_reuse: float  # share of the traffic cached in the second level that does not reach memory [-]
    pressure_slope: float  # slope of log time in (memory needed / memory usable) above 1, without workspace [-]
    # factor of the use of tensor units per year of library releases after `SOFTWARE_EPOCH` [-]
    tensor_per_year: float
    scalar_per_year: float  # the same of scalar units since Volta, per year before `SCALAR_PLATEAU` [-]
    serial: float  # latency of a step of a sum over k that is not split, relative to `step_latency_s` [-]


class StackCoefficients(Frozen):
    """Factors of a software stack relative to the mean of all stacks."""

    contraction: float  # factor of the rate of convolutions and products on scalar units [-]
    tensor: float  # factor of the rate of convolutions on tensor units; products have none [-]
    stream: float  # factor of the memory bandwidth [-]
    launch: float  # factor of the gap between two kernels [-]


class HostCoefficients(Frozen):
    """Times of the host per step."""

    fixed_s: float  # constant time per step [s]
    dispatch_s: float  # time per dispatched kernel [s]
    feed_bytes_per_s: float  # rate of copies of NumPy data to the device [bytes/s]


class AcceleratorLimits(Frozen):
    """Limits of one accelerator at the precision of the step."""

    peak_flop_per_s: Any  # peak of products of each kernel's operand type, array of [kernels] [FLOP/s]
    winograd: Any  # whether Winograd algorithms exist for the type, array of [kernels]
    tensor: Any  # whether products run on tensor units, array of [kernels]
    # FLOP per clock and core at the peak, relative to a V100's tensor units, array of [kernels] [-]
    tensor_density: Any
    pairs: Any  # whether scalar units process two packed operands per instruction, array of [kernels]
    memory_density: Any  # datasheet bytes per clock and core, relative to a V100 [-]
    vector_flop_per_s: Any  # peak of other operations [FLOP/s]
    memory_bytes_per_s: Any  # datasheet bandwidth [bytes/s]
    cores: Any  # units that process one tile each: SMs, matrix units, CPU cores [-]
    clock_ratio: Any  # base clock over boost clock; infinite without a power limit [-]
    # measured share of the tensor units' peak that large products reach, on a TPU that products reach in training
    # steps; 0 if unknown [-]
    matmul_share: Any
    inline_ecc: Any  # whether error correction is stored in the memory itself
    issue_share: Any  # upper bound of matrix products' share of the scalar peak by instruction issue [-]
    l2_bytes: Any  # second-level cache [bytes]
    lanes: Any = 0  # side of a TPU's array of multiply-adds; 0 for other chips [-]
    sm_clocks_per_s: Any = 0.0  # streaming multiprocessors times their boost clock; 0 for chips without SMs [1/s]
    # share of the tensor units' peak that instructions of one warp reach; 1 where warpgroups reach no more [-]
    warp_mma_share: Any = 1.0
    # rows that share an operand read from shared memory where warpgroups multiply, relative to a warp [-]
    warpgroup_sharing: Any = 1.0


class FittedCoefficients(Frozen):
    """Coefficients that a fit found."""

    generations: dict[str, GenerationCoefficients]  # "" is the mean, in the middle between both eras
    era: dict[str, float]  # what chips since Volta add to the log, and older ones take from it
    shared: SharedCoefficients
    stacks: dict[str, StackCoefficients]
    hosts: dict[str, HostCoefficients]


class Coefficients(FittedCoefficients):
    """All fitted coefficients, prediction intervals, and the data of the fit."""

    measured_log: float  # half of the 80 % interval of log(measured / looked up): noise of repeated measurements
    intervals: IntervalModel  # of modelled steps
    fitted_on: dict[str, Any]  # kinds of runs, chips, stacks, vendors, architectures, rows by source


def era_sign(year: int) -> float:
    """Return 1 for chips of Volta's year and later ones, -1 for older ones [-].

    Example:
        >>> era_sign(2016), era_sign(2024)
        (-1.0, 1.0)
    """
    return 1.0 if year >= ERA_BEGAN else -1.0


def field_names(kind: type[Frozen]) -> tuple[str, ...]:
    """Return the field names of a group of coefficients, in order."""
    return tuple(field.name for field in fields(kind))


def read_fitted(name: str, path: Path | None, build: Callable[[Any], T], *, what: str) -> T:
    """Read what was fitted: a packaged file, or another one that `python -m lab calibrate` wrote.

    Args:
        what: Content of the file, for an error.

    Raises:
        UsageError: The file is missing or is not such a file.
    """
    packaged = resources.files("gpuplan.profiles") / name
    try:
        return build(json.loads((path or packaged).read_text()))
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as problem:
        raise UsageError(
            f"cannot read {what} from `{path or packaged}`: {problem!r}",
            hint="rebuild them in a clone with `python -m lab calibrate`",
        ) from problem


@cache
def load_coefficients(path: Path | None = None) -> Coefficients:
    """Read the packaged coefficients, or those of a file; see `read_fitted`."""
    build: Callable[[Any], Coefficients] = partial(from_plain, Coefficients, skip=frozenset({"schema"}))
    return read_fitted("efficiency.json", path, build, what="coefficients")
