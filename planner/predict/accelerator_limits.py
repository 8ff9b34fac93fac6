"""Datasheet limits of an accelerator at a precision."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ..offers.rows import Accelerator
from ..units import GIGA, MEGA, MIB, TERA
from .coefficients import ERA_BEGAN, LAST_YEAR, AcceleratorLimits
from .kernel_table import SIXTEEN_BIT, KernelTable, Operand
from .roofline import select_rows
from .step_time import NoPrediction
from .systolic_array import USUAL_PRODUCT_SHARE

# A TPU's vector unit has 8 x 128 lanes and 2 operations a lane against a 128 x 128 matrix unit (Jouppi et al.,
# "Ten Lessons From Three Generations Shaped Google's TPUv4i", ISCA 2021, doi:10.1109/ISCA52012.2021.00010).
VECTOR_SHARE = 8 * 128 * 2 / (128 * 128 * 2)

# Side of the arrays of multiply-adds, but for TPU v6e (docs.cloud.google.com/tpu/docs/v6e).
USUAL_LANES = 128

# Precisions in which float32 runs on tensor units: all products, or convolutions alone.
TF32 = ("tf32", "tf32_convolutions")


# Generations whose efficiencies apply to chips of a compute capability, where the architecture's do not. GA10x has
# two float32 units where GA100 has one, tensor cores of half the rate (NVIDIA, "Ampere GA102 GPU Architecture",
# 2021, appendix). GP10x (P4, P40, GTX 1080 Ti) has 128 lanes to a multiprocessor and GDDR5, as Maxwell has; GP100
# has 64, and HBM2 (NVIDIA, "Pascal Tuning Guide"). On 16 published steps of a GTX 1080 Ti, which are in no fit,
# Maxwell's are 7 % off in the mean, Pascal's 9 %. GB20x (12.0) multiplies by warps as Ada does, where GB100 has
# units of its own (PTX ISA, `tcgen05`), and has GDDR beside a large second-level cache.
GENERATIONS = {"6.1": "Maxwell", "8.6": "Ampere-GA10x", "12.0": "Ada"}


def find_generation(accelerator: Accelerator) -> str:
    """Return the generation whose efficiencies apply: the architecture, but for `GENERATIONS`."""
    capability = accelerator.compute_capability or ""
    return GENERATIONS.get(capability, accelerator.architecture)


BEFORE_VOLTA = ("Kepler", "Maxwell", "Pascal")


def find_release_year(accelerator: Accelerator) -> int:
    """Return when an accelerator came out, or its era ended (a GTX 1080 Ti came out in Volta's year) [years].

    The last year of the measured chips where that is unknown.
    """
    year = accelerator.year or LAST_YEAR
    return min(year, ERA_BEGAN - 1) if accelerator.architecture in BEFORE_VOLTA else year


def is_modern_data_center_gpu(accelerator: Accelerator) -> bool:
    """Return True for NVIDIA's data-centre GPUs since Volta: with tensor units, and no RTX or TITAN board."""
    brand = accelerator.name.startswith(("RTX", "TITAN", "Quadro"))
    return accelerator.vendor == "NVIDIA" and bool(accelerator.fp16_tensor_tflop_per_s) and not brand


def runs_tf32_by_default(accelerator: Accelerator) -> bool:
    """Return True for NVIDIA GPUs with TF32, where frameworks may use it for float32 without being asked."""
    return accelerator.vendor == "NVIDIA" and accelerator.tf32_tensor_tflop_per_s is not None


def peak_tflop_per_s(accelerator: Accelerator, dtype: str, *, tf32: bool) -> tuple[float | None, bool]:
    """Return the datasheet peak for products of ``dtype`` [TFLOP/s], and whether it is that of tensor units.

    8-bit and 16-bit types fall back to the next wider units on chips without their own, as in the frameworks. None
    if the chip has no published rate for the type or its fallback.
    """
    if dtype == "float64":
        return accelerator.fp64_tflop_per_s, False
    float8 = dtype.startswith("float8")
    # XLA multiplies float32 on a TPU in bfloat16 passes, one by default; bfloat16 holds every int8.
    as_bfloat16 = float8 or dtype in SIXTEEN_BIT or (accelerator.kind == "tpu" and dtype in ("float32", "int8"))
    has_units = bool(accelerator.fp16_tensor_tflop_per_s or accelerator.bf16_tensor_tflop_per_s)
    units = (
        (dtype == "int8", accelerator.int8_tensor_top_per_s, has_units),
        (float8, accelerator.fp8_tensor_tflop_per_s, True),
        (dtype == "float16", accelerator.fp16_tensor_tflop_per_s, True),
        (as_bfloat16, accelerator.bf16_tensor_tflop_per_s, True),
        (dtype == "float32" and tf32, accelerator.tf32_tensor_tflop_per_s, True),
    )
    found = ((peak, tensor) for applies, peak, tensor in units if applies and peak)
    return next(found, (accelerator.fp32_tflop_per_s, False))


def tensor_dtypes(accelerator: Accelerator, *, precision: str) -> frozenset[str]:
    """Return the operand types whose products run on tensor units, float32 too in `TF32`."""
    dtypes = (*SIXTEEN_BIT, "float32")
    return frozenset(d for d in dtypes if peak_tflop_per_s(accelerator, d, tf32=precision in TF32)[1])


def _has_winograd(accelerator: Accelerator, dtype: str, *, tensor: bool) -> bool:
    """Return True for float32 on GPUs: cuDNN's Winograd kernels on scalar units (Lavin and Gray, 2016, CVPR).

    Types of 16 bits without tensor units are computed like float32, to which the frameworks convert them. This
    includes an A100 without TF32: published steps of VGG-16 reach 1.8 times the peak in nominal FLOPs.
    """
    return accelerator.kind == "gpu" and (dtype == "float32" or (dtype in SIXTEEN_BIT and not tensor))


def _takes_pairs(accelerator: Accelerator, dtype: str, *, tensor: bool) -> bool:
    """Return True if scalar units process two packed 16-bit operands per instruction.

    NVIDIA chips with tensor units for a 16-bit type do: 31.4 TFLOP/s of float16 and 15.7 of float32 on the scalar
    units of a V100 (NVIDIA, "Tesla V100 GPU Architecture", 2017), 39 of bfloat16 and 19.5 of float32 on an A100
    ("NVIDIA A100 Tensor Core GPU Architecture", 2020). So does a P100; smaller chips do not, and other vendors'
    chips are assumed not to.
    """
    return accelerator.vendor == "NVIDIA" and dtype in SIXTEEN_BIT and tensor


# A V100's streaming multiprocessor on tensor cores: 125 TFLOP/s over 80 of them (NVIDIA, "Tesla V100 GPU
# Architecture", 2017, table 1). The k loop's latency and the waves of tiles were fitted on cores of this kind.
CORE_TFLOP_PER_S = 125.0 / 80.0


def _cores(accelerator: Accelerator, *, peak_flop_per_s: float) -> float:
    """Return the number of cores that process tiles [-].

    A systolic array streams tiles without latency between the steps of the k loop; it is modelled as the number of
    GPU cores with the same peak.
    """
    cores = float(accelerator.sms_or_cores or 1)
    if accelerator.kind in ("gpu", "cpu"):
        return cores
    return max(cores, peak_flop_per_s / (CORE_TFLOP_PER_S * TERA))


# Of tensor units and of memory, a clock and SM ("NVIDIA Tesla V100 GPU Architecture", 2017).
V100_TENSOR_FLOP_PER_CLOCK, V100_MEMORY_BYTES_PER_CLOCK = 1024.0, 900.0 * GIGA / (80 * 1530 * MEGA)


def _core_clocks_per_s(accelerator: Accelerator) -> float:
    """Return a GPU's multiprocessors times their boost clock; 0 for other chips and where it is unknown [1/s]."""
    if accelerator.kind != "gpu":
        return 0.0
    return (accelerator.sms_or_cores or 0) * (accelerator.boost_mhz or 0.0) * MEGA


# Power limit of a board without a power connector (PCI Express Card Electromechanical Specification).
LOW_POWER_W = 75.0
UNLIMITED = 1e3  # clock ratio without a power limit; finite, so that gradients are


def _clock_ratio(accelerator: Accelerator) -> float:
    """Return base over boost clock of boards that their power limit keeps below the boost clock [-].

    A large number for others, whose base clocks say little: an L40 has 0.30 of its boost clock at 300 W, an A6000
    0.78.
    """
    low = accelerator.kind == "gpu" and accelerator.tdp_w is not None and accelerator.tdp_w <= LOW_POWER_W
    if low and accelerator.base_mhz and accelerator.boost_mhz:
        return accelerator.base_mhz / accelerator.boost_mhz
    return UNLIMITED


# Lanes of a streaming multiprocessor that its four schedulers fill with one instruction of 32 threads each.
# Kepler's 192 lanes need dual issue of independent instructions, of which matrix products have too few: issue
# bounds them at 57.6 % of the peak on a GTX 680 (Lai and Seznec, 2013, "Performance Upper Bound Analysis and
# Optimization of SGEMM on Fermi and Kepler GPUs", CGO). Later chips have 128 lanes or fewer.
ISSUED_LANES = 4 * 32


def find_issue_share(accelerator: Accelerator) -> float:
    """Return the upper bound of the share of the scalar peak by instruction issue, 0..1 [-]."""
    if accelerator.kind != "gpu" or not accelerator.cuda_cores or not accelerator.sms_or_cores:
        return 1.0
    return min(1.0, ISSUED_LANES * accelerator.sms_or_cores / accelerator.cuda_cores)


def has_inline_ecc(accelerator: Accelerator) -> bool:
    """Return True if check bits are stored in the memory: GDDR with a usable size 1/16 below the nominal one."""
    usable, nominal = accelerator.usable_gib, accelerator.memory_gib
    gddr = (accelerator.memory_type or "").startswith("GDDR")
    return bool(gddr and usable and nominal and usable / nominal < 0.96)


# Share of the tensor units' peak that instructions of a single warp reach where warpgroups reach more. Hopper:
# 0.63 of the peak for `mma` in float16 (Luo et al., 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU
# Architecture via Microbenchmarking", arXiv:2402.13499). Blackwell: from FlashAttention-2 on a B200, one source
# (profiles/attention_kernels.csv).
WARP_MMA_SHARES = {"9.0": 0.63, "10.0": 0.42, "10.3": 0.42}
# Rows of scores for which one instruction reads an operand, relative to a warp, which has two tiles of 16 rows: 64
# of Hopper's warpgroups, 128 on Blackwell (PTX ISA, `mma.m16n8k16`, `wgmma.m64nNk16`, `tcgen05.mma`).
WARPGROUP_SHARING = {"9.0": 2.0, "10.0": 4.0, "10.3": 4.0}


def _matmul_share(accelerator: Accelerator, dtypes: Sequence[str]) -> Any:
    """Return the measured share of the peak that large products reach, by type if types differ; 0: unknown."""
    import numpy as np

    if accelerator.kind == "tpu":
        return accelerator.matmul_share or USUAL_PRODUCT_SHARE
    share, share_8bit = accelerator.matmul_share or 0.0, accelerator.fp8_matmul_share or 0.0
    shares = [share_8bit or share if dtype == "int8" or dtype.startswith("float8") else share for dtype in dtypes]
    return share if len(set(shares)) < 2 and share in shares else np.array(shares)


def compute_limits(
    accelerator: Accelerator, *, table: KernelTable, precision: str
) -> AcceleratorLimits | NoPrediction:
    """Return the limits of an accelerator for each kernel, see `find_limits`."""
    limits = find_limits(accelerator, table.operands, precision=precision)
    return limits if isinstance(limits, NoPrediction) else select_rows(limits, table.operand)


@lru_cache(maxsize=1024)
def find_limits(
    accelerator: Accelerator, operands: tuple[Operand, ...], *, precision: str
) -> AcceleratorLimits | NoPrediction:
    """Return the limits of an accelerator for each kind of operand, or the reason if data is missing.

    Args:
        precision: Precision of the workload; `tf32` runs float32 products on tensor cores, `tf32_convolutions`
            float32 convolutions.
    """
    import numpy as np

    if accelerator.memory_gb_per_s is None:
        return NoPrediction(f"no published memory bandwidth for {accelerator.name}")
    dtypes = [dtype for dtype, _ in operands]
    in_tf32 = [precision == "tf32" or (precision in TF32 and use == "convolution") for _, use in operands]
    peaks = [peak_tflop_per_s(accelerator, dtype, tf32=tf32) for dtype, tf32 in zip(dtypes, in_tf32, strict=True)]
    for dtype, (peak, _) in zip(dtypes, peaks, strict=True):
        if peak is None and dtype in (*SIXTEEN_BIT, "float32", "float64"):
            return NoPrediction(f"no published peak for {dtype} on {accelerator.name}")
    matrix = accelerator.bf16_tensor_tflop_per_s or max(peak or 0.0 for peak, _ in peaks)
    vector = accelerator.fp32_tflop_per_s or matrix * VECTOR_SHARE
    bytes_per_s, clocks_per_s = accelerator.memory_gb_per_s * GIGA, _core_clocks_per_s(accelerator)
    attainable = np.array([(peak or vector) * TERA for peak, _ in peaks])
    units = [(dtype, tensor) for dtype, (_, tensor) in zip(dtypes, peaks, strict=True)]
    return AcceleratorLimits(
        peak_flop_per_s=attainable,
        winograd=np.array([_has_winograd(accelerator, dtype, tensor=tensor) for dtype, tensor in units]),
        tensor=np.array([tensor and use != "" for (_, tensor), (_, use) in zip(units, operands, strict=True)]),
        pairs=np.array([_takes_pairs(accelerator, dtype, tensor=tensor) for dtype, tensor in units]),
        tensor_density=attainable / clocks_per_s / V100_TENSOR_FLOP_PER_CLOCK
        if clocks_per_s
        else np.ones(len(dtypes)),
        memory_density=bytes_per_s / clocks_per_s / V100_MEMORY_BYTES_PER_CLOCK if clocks_per_s else 1.0,
        vector_flop_per_s=vector * TERA,
        memory_bytes_per_s=bytes_per_s,
        cores=_cores(accelerator, peak_flop_per_s=attainable.max()),
        clock_ratio=_clock_ratio(accelerator),
        matmul_share=_matmul_share(accelerator, dtypes),
        inline_ecc=has_inline_ecc(accelerator),
        issue_share=find_issue_share(accelerator),
        l2_bytes=(accelerator.l2_mib or 0.0) * MIB,
        lanes=(accelerator.array_lanes or USUAL_LANES) if accelerator.kind == "tpu" else 0,
        sm_clocks_per_s=clocks_per_s if accelerator.vendor == "NVIDIA" else 0.0,
        warp_mma_share=WARP_MMA_SHARES.get(accelerator.compute_capability or "", 1.0),
        warpgroup_sharing=WARPGROUP_SHARING.get(accelerator.compute_capability or "", 1.0),
    )
