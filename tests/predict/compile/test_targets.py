"""What compilers are told of accelerators."""

from __future__ import annotations

import re

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.compile.compiled_predictor import find_target
from gpuplan.predict.xla_recomputation import JAX_POOL_SHARE, XLA_SHARE

TPUS = ("TPU-v2", "TPU-v3", "TPU-v4", "TPU-v5e", "TPU-v5p", "TPU-v6e")
GPUS = ("K80", "P100-SXM2", "V100-16GB", "T4", "A10G", "A100-40GB", "L4", "L40S", "H100-SXM", "H200", "B200")


@pytest.mark.parametrize("name", [*TPUS, *GPUS])
def test_these_accelerators_can_be_compiled_for(name: str) -> None:
    target = find_target(load_catalog().accelerators[name])

    assert target is not None
    assert target.platform == ("tpu" if name in TPUS else "cuda")


def test_a_v100_is_described_as_nvidia_describes_it() -> None:
    """NVIDIA, "Tesla V100 GPU Architecture", 2017, table 1: 80 SMs, 1530 MHz, 6 MiB of L2."""
    target = find_target(load_catalog().accelerators["V100-16GB"])

    assert target is not None
    for fact in ("core_count: 80 ", "clock_rate_ghz: 1.53 ", "l2_cache_size: 6291456", "major: 7 minor: 0"):
        assert fact in target.description


def test_a_k80_is_scheduled_as_the_oldest_that_the_assembler_takes_and_says_so() -> None:
    target = find_target(load_catalog().accelerators["K80"])

    assert target is not None
    assert "major: 6 minor: 0" in target.description
    assert "6.0" in target.note


@pytest.mark.parametrize("name", ["MI300X", "Trainium1", "TPU-v7"])
def test_what_no_compiler_here_describes_has_no_target(name: str) -> None:
    assert find_target(load_catalog().accelerators[name]) is None


def test_every_gpu_is_described_to_the_compiler_as_itself() -> None:
    catalog = load_catalog().accelerators
    descriptions = {name: getattr(find_target(catalog[name]), "description", None) for name in GPUS}

    assert len(set(descriptions.values())) == len(GPUS)


@pytest.mark.parametrize(
    ("names", "shared_kib", "block_kib", "warps"),
    [
        (("P100-SXM2", "K80"), 64, 48, 64), (("V100-16GB",), 96, 96, 64), (("T4",), 64, 64, 32),
        (("A100-40GB",), 164, 163, 64), (("A10G", "L4", "L40S"), 100, 99, 48),
        (("H100-SXM", "H200", "B200"), 228, 227, 64),
    ],
)  # fmt: skip
def test_cores_are_those_of_the_programming_guide(
    names: tuple[str, ...], shared_kib: int, block_kib: int, warps: int
) -> None:
    """NVIDIA, "CUDA C++ Programming Guide" 12.9, "Technical specifications per compute capability".

    Shared memory of an SM and of a block, of which 1 KiB is reserved since 8.0, and resident warps of 32 threads.
    The peak of float32 is 2 FLOP a clock of every lane of every SM (those that stand in for another have its own).
    """
    for name in names:
        accelerator = load_catalog().accelerators[name]
        target = find_target(accelerator)
        assert target is not None
        facts = dict(re.findall(r"(\w+): (\S+)", target.description))
        assert int(facts["shared_memory_per_core"]) == shared_kib * 1024
        assert int(facts["shared_memory_per_block_optin"]) == block_kib * 1024
        assert int(facts["threads_per_core_limit"]) == warps * 32
        if not target.note:
            lanes_per_s = int(facts["core_count"]) * int(facts["fpus_per_core"]) * float(facts["clock_rate_ghz"])
            assert 2 * lanes_per_s / 1e3 == pytest.approx(accelerator.fp32_tflop_per_s, rel=0.02)


def test_memory_and_bandwidth_are_in_bytes() -> None:
    """A T4 by hand: 320 GB/s and 4 MiB of L2; XLA's share of what is told is JAX's pool of the memory."""
    accelerator = load_catalog().accelerators["T4"]
    target = find_target(accelerator)
    assert target is not None
    facts = dict(re.findall(r"(\w+): (\S+)", target.description))

    assert (facts["memory_bandwidth"], facts["l2_cache_size"]) == ("320000000000", str(4 * 2**20))
    pool = (accelerator.usable_gib or 0.0) * 2**30 * JAX_POOL_SHARE
    assert int(facts["device_memory_size"]) * XLA_SHARE == pytest.approx(pool)
