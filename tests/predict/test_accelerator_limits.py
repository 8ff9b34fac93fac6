"""What a chip of the catalog can attain: clocks under load, memory with check bits, tensor units, Winograd."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.accelerator_limits import UNLIMITED, compute_limits, find_generation, find_release_year
from gpuplan.predict.coefficients import (
    AcceleratorLimits,
    GenerationCoefficients,
    SharedCoefficients,
    load_coefficients,
)
from gpuplan.predict.contractions import compute_contraction_s
from gpuplan.predict.kernel_table import Kernel, KernelTable, build_kernel_table
from gpuplan.predict.kernel_times import compute_kernel_parts_s
from gpuplan.predict.measurements import SOFTWARE_EPOCH, SOFTWARE_PLATEAU
from gpuplan.predict.roofline import clock_share, memory_traffic_s, with_software_year
from gpuplan.predict.step_time import NoPrediction

SQUARE = Kernel(
    category="dot",
    dtype="float32",
    count=1,
    flops=2.0 * 4096**3,
    bytes_moved=12.0 * 4096**2,
    m=4096,
    n=4096,
    k=4096,
)
STREAM = Kernel(category="stream", dtype="float32", count=1, flops=1e6, bytes_moved=1e9)
DEPTHWISE = Kernel(category="depthwise", dtype="float32", count=1, flops=1e9, bytes_moved=1.0, m=4096, n=1, k=9)
TABLE = build_kernel_table([SQUARE, STREAM, DEPTHWISE])


def chip(name: str, *, table: KernelTable = TABLE, precision: str = "float32") -> AcceleratorLimits:
    found = compute_limits(load_catalog().accelerators[name], table=table, precision=precision)
    assert not isinstance(found, NoPrediction)
    return found


def test_base_clocks_limit_boards_of_75_w_alone() -> None:
    """Base over boost clock: T4 585/1590 MHz at 70 W; a V100 and an L40 of 300 W are not limited."""
    assert chip("T4").clock_ratio == pytest.approx(585 / 1590)
    assert chip("V100-16GB").clock_ratio == chip("L40").clock_ratio == UNLIMITED


@pytest.mark.parametrize(("name", "share"), [("A100-80GB", 0.87), ("H100-SXM", 0.80), ("MI300X", 0.51)])
def test_large_products_reach_the_measured_share_of_the_peak_and_no_more(name: str, share: float) -> None:
    """stas00/ml-engineering@744d01e, "maximum achievable matmul", bfloat16; efficiencies of 1 reach just that."""
    coefficients = load_coefficients()
    stack = coefficients.stacks["xla"]
    table = build_kernel_table([SQUARE._replace(dtype="bfloat16", m=16384, n=16384, k=16384)])
    limits = chip(name, table=table, precision="mixed_bfloat16")
    generation = replace(coefficients.generations["Ampere"], dot_tensor=50.0, step_latency_s=1e-12)
    _, compute_s, _ = compute_kernel_parts_s(table, limits, generation, stack, coefficients.shared, xp=np)
    rate = 2 * 16384**3 / float(compute_s[0]) / float(limits.peak_flop_per_s[0])

    assert rate == pytest.approx(share, rel=0.05)
    assert rate <= share


@pytest.mark.parametrize(
    ("name", "dtype", "peak", "tensor"),
    [
        ("A100-40GB", "int8", 624.0, True),
        ("P4", "int8", 22.0, False),  # four products an instruction, on scalar units
        ("V100-16GB", "int8", 15.7, False),  # no rate published: as float32
        ("B300", "int8", 150.0, True),  # less than a thirtieth of a B200's
        ("TPU-v5e", "int8", 393.0, True),
        ("TPU-v3", "int8", 123.0, True),  # as bfloat16
        ("H100-SXM", "float8_e4m3fn", 1978.9, True),
        ("A100-40GB", "float8_e4m3fn", 312.0, True),  # as bfloat16
        ("V100-16GB", "float8_e4m3fn", 15.7, False),
    ],
)
def test_8_bit_products_have_their_datasheets_peak_or_that_of_what_runs_instead(
    name: str, dtype: str, peak: float, tensor: bool
) -> None:
    """Datasheets: dense rates."""
    limits = chip(name, table=build_kernel_table([SQUARE._replace(dtype=dtype)]))

    assert limits.peak_flop_per_s[0] == pytest.approx(peak * 1e12, rel=0.01)
    assert limits.tensor[0] == tensor


def test_8_bit_products_reach_the_share_measured_in_8_bits() -> None:
    """H100: 0.80 in bfloat16 and 0.709 in float8; a table of both keeps them apart, and an A100 has one share."""
    table = build_kernel_table([SQUARE._replace(dtype="bfloat16"), SQUARE._replace(dtype="int8")])

    assert list(chip("H100-SXM", table=table).matmul_share) == [0.80, 0.709]
    assert chip("A100-40GB", table=table).matmul_share == 0.87


def test_a_tpus_vector_unit_is_no_faster_for_8_bit_products() -> None:
    """Its peak follows from that of bfloat16."""
    bfloat16, int8 = (
        chip("TPU-v5e", table=build_kernel_table([SQUARE._replace(dtype=d)])) for d in ("bfloat16", "int8")
    )

    assert bfloat16.vector_flop_per_s == int8.vector_flop_per_s


def test_a_tpu_has_one_clock_and_no_streaming_multiprocessors() -> None:
    """Its peak is reached at the clock that it always runs at."""
    assert chip("TPU-v3").clock_ratio == UNLIMITED
    assert chip("TPU-v3").memory_density == 1.0
    assert np.all(chip("TPU-v3").tensor_density == 1.0)


@pytest.mark.parametrize(("name", "bytes_per_clock"), [("V100-16GB", 7.35), ("T4", 5.03), ("A100-40GB", 10.2)])
def test_a_clock_of_a_core_brings_so_many_bytes(name: str, bytes_per_clock: float) -> None:
    """By hand: 900 GB/s over 80 SMs at 1530 MHz; 320 over 40 at 1590; 1555 over 108 at 1410."""
    assert chip(name).memory_density == pytest.approx(bytes_per_clock / 7.35, rel=0.01)


@pytest.mark.parametrize(
    ("name", "inline"),
    [("T4", True), ("M60", True), ("K80", True), ("L4", True), ("V100-16GB", False), ("RTX3090", False)],
)
def test_check_bits_take_room_in_gddr_and_none_in_hbm(name: str, inline: bool) -> None:
    """A T4 shows 14.75 of 16 GiB: a sixteenth goes to error correction. HBM has bits of its own."""
    assert chip(name).inline_ecc is inline


def test_tensor_units_are_as_dense_as_whitepapers_say() -> None:
    """FLOP per clock and SM: 1,024 on V100, 2,048 on A100, half of V100's on an RTX 3090 with float32 sums."""
    half = build_kernel_table([SQUARE._replace(dtype="float16")])
    for name, per_clock in (("V100-16GB", 1024), ("A100-40GB", 2048), ("RTX3090", 512)):
        found = chip(name, table=half, precision="mixed_float16")
        assert found.tensor_density[0] * 1024 == pytest.approx(per_clock, rel=0.03)


@pytest.mark.parametrize(
    ("name", "float16", "bfloat16"),
    [
        ("K80", False, False),
        ("V100-16GB", True, False),
        ("T4", True, False),
        ("A100-40GB", True, True),
        ("TPU-v3", False, False),
    ],
)
def test_scalar_units_take_pairs_where_vendors_say_so(name: str, float16: bool, bfloat16: bool) -> None:
    """V100: 31.4 TFLOP/s of float16 beside 15.7; A100: 39 of bfloat16 beside 19.5; no word of it for others."""
    table = build_kernel_table([DEPTHWISE._replace(dtype=dtype) for dtype in ("float32", "float16", "bfloat16")])
    found = chip(name, table=table, precision="mixed_float16")
    pairs = dict(zip((table.operands[one].dtype for one in table.operand), found.pairs, strict=True))
    assert pairs == {"float32": False, "float16": float16, "bfloat16": bfloat16}


def test_winograd_serves_scalar_float32_on_every_gpu_and_nothing_else() -> None:
    """cuDNN has it for float32 on scalar units, on an A100 as well; TF32 is multiplied elsewhere."""
    assert chip("A100-40GB").winograd.all()
    assert not chip("A100-40GB").tensor.any()
    assert chip("A100-40GB", precision="tf32").tensor[0]
    assert not chip("TPU-v3").winograd.any()


def test_a_clock_that_falls_slows_arithmetic_and_no_traffic() -> None:
    """By hand: from half the boost clock to a quarter, products take twice as long; a stream waits for memory."""
    coefficients = load_coefficients()
    shared = replace(coefficients.shared, clock_headroom=1.0)
    generation, stack = coefficients.generations["Volta"], coefficients.stacks["tensorflow2 keras"]
    parts = [
        compute_kernel_parts_s(
            TABLE, replace(chip("V100-16GB"), clock_ratio=ratio), generation, stack, shared, xp=np
        )
        for ratio in (0.5, 0.25)
    ]
    (_, full_s, traffic_s), (_, half_s, same_traffic_s) = parts
    dot, depthwise = 0, 1
    assert half_s[dot] == pytest.approx(2 * full_s[dot], rel=0.01)
    assert half_s[depthwise] == pytest.approx(2 * full_s[depthwise], rel=0.01)
    assert same_traffic_s == pytest.approx(traffic_s)


@pytest.mark.parametrize(
    ("dtype", "converted", "at_a_time"),
    [("float32", (), 1), ("float16", (), 2), ("float16", ("float16",), 2), ("bfloat16", (), 1)],
)
def test_a_depthwise_kernel_runs_on_scalar_units_and_is_not_padded_to_tiles(
    dtype: str, converted: tuple[str, ...], at_a_time: int
) -> None:
    """By hand: FLOPs over what scalar units attain, whatever the shape of the product behind it.

    A V100 takes two numbers of float16 in one instruction, in either layout; of bfloat16 it has no instructions.
    """
    coefficients = load_coefficients()
    generation, stack, shared = (
        coefficients.generations["Volta"],
        coefficients.stacks["tensorflow2 keras"],
        coefficients.shared,
    )
    table = build_kernel_table([DEPTHWISE._replace(dtype=dtype)], converted=converted)
    v100 = chip("V100-16GB", table=table, precision="mixed_float16")
    rate = 15.7e12 * at_a_time * generation.depthwise * stack.contraction * clock_share(v100, shared)
    _, compute_s, _ = compute_kernel_parts_s(table, v100, generation, stack, shared, xp=np)
    assert compute_s[0] == pytest.approx(1e9 / rate, rel=0.01)


@pytest.mark.parametrize(
    ("m", "n", "k", "of_filter", "faster"),
    [
        (4096, 1, 9, False, 1.0),
        (4096, 1, 49, False, (1 + 7 / 9) / (1 + 7 / 49)),  # each output is located once for more terms
        (9, 1, 4096, True, 1.0),
        # groups of 24 channels with channels last: forward, the filter's gradient, forward over few pixels
        (100352, 24, 216, False, 1.722),
        (216, 24, 100352, True, 1.0),
        (49, 24, 216, False, 1.722),
    ],
)
def test_the_gradient_of_a_depthwise_filter_has_a_share_of_its_own(
    m: int, n: int, k: int, of_filter: bool, faster: float
) -> None:
    coefficients = load_coefficients()
    generation, stack = coefficients.generations["Volta"], coefficients.stacks["pytorch eager"]
    table = build_kernel_table([DEPTHWISE._replace(m=m, n=n, k=k)])
    v100 = chip("V100-16GB", table=table)
    _, compute_s, _ = compute_kernel_parts_s(table, v100, generation, stack, coefficients.shared, xp=np)
    share = generation.depthwise_wgrad if of_filter else generation.depthwise
    rate = 15.7e12 * faster * share * stack.contraction * clock_share(v100, coefficients.shared)
    assert compute_s[0] == pytest.approx(1e9 / rate, rel=0.01)


@pytest.mark.parametrize(("category", "times"), [("dot", 1.0), ("conv_fprop", 2.0)])
def test_dense_tensor_units_are_fed_worse_in_convolutions_alone(category: str, times: float) -> None:
    """By hand: with a power of 1, the double density of an A100's units doubles the time of convolutions."""
    coefficients = load_coefficients()
    generation = replace(coefficients.generations["Ampere"], step_latency_s=1e-12, array_passes=1e-9)
    stack = replace(coefficients.stacks["tuned"], tensor=0.2)
    table = build_kernel_table([SQUARE._replace(category=category, dtype="float16")])
    a100 = chip("A100-40GB", table=table, precision="mixed_float16")
    flat_s, steep_s = (
        float(compute_contraction_s(table, a100, generation, stack, shared, xp=np)[0])
        for shared in (replace(coefficients.shared, tensor_density=power) for power in (1e-9, 1.0))
    )
    assert steep_s == pytest.approx(times * flat_s, rel=0.01)


@pytest.mark.parametrize(
    ("name", "generation", "year"),
    [
        ("P100-SXM2", "Pascal", 2016), ("GTX1080Ti", "Maxwell", 2016), ("A100-40GB", "Ampere", 2020),
        ("RTX3090", "Ampere-GA10x", 2020), ("RTX5090", "Ada", 2025), ("B200", "Blackwell", 2024),
    ],
)  # fmt: skip
def test_efficiencies_go_by_cores_and_their_era(name: str, generation: str, year: int) -> None:
    """Pascal's GP10x has Maxwell's cores, before Volta though a GTX 1080 Ti is of 2017; GB20x has Ada's."""
    accelerator = load_catalog().accelerators[name]
    assert (find_generation(accelerator), find_release_year(accelerator)) == (generation, year)


@pytest.mark.parametrize(
    ("name", "share"), [("K80", 2 / 3), ("M60", 1.0), ("P100-SXM2", 1.0), ("V100-16GB", 1.0), ("TPU-v3", 1.0)]
)
def test_a_kepler_core_has_more_lanes_than_its_schedulers_fill(name: str, share: float) -> None:
    """192 lanes and four instructions of 32 threads at a time; 128 lanes on Maxwell, 64 on Pascal and Volta."""
    assert chip(name).issue_share == pytest.approx(share)


@pytest.mark.parametrize(("category", "times"), [("dot", 1.5), ("conv_fprop", 1.0)])
def test_issue_bounds_products_on_kepler_and_no_convolutions(category: str, times: float) -> None:
    """By hand: two thirds of the lanes take half as long again."""
    coefficients = load_coefficients()
    generation = replace(coefficients.generations["Kepler"], step_latency_s=1e-12)
    table = build_kernel_table([SQUARE._replace(category=category)])
    k80 = chip("K80", table=table)
    stack, shared = coefficients.stacks["tensorflow2 keras"], coefficients.shared
    one_s, other_s = (
        float(compute_contraction_s(table, board, generation, stack, shared, xp=np)[0])
        for board in (k80, replace(k80, issue_share=1.0))
    )
    assert one_s == pytest.approx(times * other_s, rel=0.01)


def test_a_cache_saves_what_it_holds() -> None:
    """By hand: half of the traffic of a kernel as large as the cache is held; a large kernel gains nothing."""

    def time_s(bytes_moved: float) -> float:
        return float(
            memory_traffic_s(bytes_moved=bytes_moved, attainable_bytes_per_s=1e9, l2_bytes=1e6, l2_reuse=0.4)
        )

    assert time_s(1e6) == pytest.approx(1e-3 * (1 - 0.4 / 2))
    assert time_s(1e12) == pytest.approx(1e3, rel=1e-5)


def test_no_traffic_takes_no_time_without_a_known_cache() -> None:
    """A scalar kernel on Trainium1, whose cache is not published."""
    none = memory_traffic_s(bytes_moved=0.0, attainable_bytes_per_s=1e9, l2_bytes=0.0, l2_reuse=0.4)
    assert float(none) == 0.0


def test_most_boards_boost_all_the_time_and_one_of_70_w_cannot() -> None:
    """By hand: 1.25 times the base clock of a T4 is less than half of its boost clock."""
    shared = replace(load_coefficients().shared, clock_headroom=1.25)
    v100, t4 = (clock_share(chip(name), shared) for name in ("V100-16GB", "T4"))
    assert v100 == pytest.approx(1.0)
    assert t4 == pytest.approx(1.25 * 585 / 1590, rel=0.01)
    assert clock_share(chip("TPU-v3"), shared) == pytest.approx(1.0)


def test_tensor_units_gain_with_the_years_of_the_libraries() -> None:
    """By hand: two years at 1.1 a year, none before the epoch or after the plateau; other rates stay."""
    volta, shared = coefficients_of_volta(tensor_per_year=1.1, scalar_per_year=1.0)
    first, later, last, later_still = (
        with_software_year(year, volta, shared, year=2017, xp=np)
        for year in (SOFTWARE_EPOCH - 2, SOFTWARE_EPOCH + 2, SOFTWARE_PLATEAU, 2030.0)
    )
    assert first == volta
    assert later == replace(
        volta,
        conv_tensor=pytest.approx(volta.conv_tensor * 1.21),
        dot_tensor=pytest.approx(volta.dot_tensor * 1.21),
    )
    assert last == later_still


@pytest.mark.parametrize(
    ("released", "chip_year", "gain"),
    [
        (2018.5, 2017, 1.1**-2),
        (2016.0, 2017, 1.1**-3),
        (2020.5, 2017, 1.0),
        (2025.0, 2017, 1.0),
        (2018.5, 2016, 1.0),
    ],
)
def test_scalar_units_since_volta_are_slower_with_early_libraries(
    released: float, chip_year: int, gain: float
) -> None:
    """By hand: 1.1 a year from the middle of 2017 to that of 2020; on a chip of 2016 the year does not matter."""
    volta, shared = coefficients_of_volta(tensor_per_year=1.0, scalar_per_year=1.1)
    found = with_software_year(released, volta, shared, year=chip_year, xp=np)
    assert found == replace(
        volta,
        conv=pytest.approx(volta.conv * gain),
        conv_wgrad=pytest.approx(volta.conv_wgrad * gain),
        dot=pytest.approx(volta.dot * gain),
    )


def coefficients_of_volta(
    *, tensor_per_year: float, scalar_per_year: float
) -> tuple[GenerationCoefficients, SharedCoefficients]:
    """Return Volta's packaged coefficients and the shared ones with given gains a year [-]."""
    packaged = load_coefficients()
    shared = replace(packaged.shared, tensor_per_year=tensor_per_year, scalar_per_year=scalar_per_year)
    return packaged.generations["Volta"], shared


@pytest.mark.parametrize(("dtype", "factor"), [("float16", "tensor"), ("float32", "contraction")])
def test_a_framework_changes_convolutions_and_no_products(dtype: str, factor: str) -> None:
    """All frameworks call the same library for products, on tensor units and on scalar ones."""
    coefficients = load_coefficients()
    both = [SQUARE._replace(category=category, dtype=dtype) for category in ("conv_fprop", "dot")]
    table = build_kernel_table(both)
    v100 = chip("V100-16GB", table=table, precision="mixed_float16" if dtype == "float16" else "float32")
    generation, shared, own = (coefficients.generations["Volta"], coefficients.shared, coefficients.stacks["xla"])
    (slow_conv_s, slow_dot_s), (conv_s, dot_s) = (
        compute_contraction_s(table, v100, generation, replace(own, **{factor: times}), shared, xp=np)
        for times in (0.3, 0.6)
    )
    assert slow_conv_s > 1.5 * conv_s
    assert slow_dot_s == dot_s


def test_tensor_units_never_do_more_than_their_peak() -> None:
    """However large the fitted share, a large product takes as long as at the peak under load."""
    coefficients = load_coefficients()
    stack = coefficients.stacks["tensorflow2 keras"]
    table = build_kernel_table([SQUARE._replace(dtype="float16")])
    v100 = chip("V100-16GB", table=table, precision="mixed_float16")
    generation = replace(coefficients.generations["Volta"], dot_tensor=5.0)
    shared = coefficients.shared
    _, compute_s, _ = compute_kernel_parts_s(table, v100, generation, stack, shared, xp=np)
    at_peak_s = 2 * 4096**3 / (125e12 * clock_share(v100, shared))
    assert at_peak_s <= compute_s[0] <= 1.2 * at_peak_s
