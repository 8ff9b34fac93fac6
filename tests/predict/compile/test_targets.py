"""What compilers are told of accelerators."""

from __future__ import annotations

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.compile.compiled_predictor import find_target

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
