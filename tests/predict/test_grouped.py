"""Grouped convolutions: which run on tensor units, by library, layout and size."""

from __future__ import annotations

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.executed_ops import Execution
from gpuplan.predict.kernel_table import CATEGORIES, FastGroups, Kernel, is_direct
from gpuplan.predict.library_kernels import find_fast_groups, find_keras_fast_groups
from gpuplan.predict.measurements import Measurement, load_published_measurements

GROUPED = Kernel(
    category="conv_fprop", dtype="float16", count=1, flops=1e9, bytes_moved=1e6, m=4096, n=24, k=216, batch=14
)


@pytest.mark.parametrize(
    ("groups", "channels", "fast", "direct"),
    [
        (32, 4, "32", False),
        (32, 24, "32", False),
        (14, 24, "32", True),
        (8, 16, "32", True),
        (14, 24, "powers of two", True),
        (8, 16, "powers of two", False),
        (32, 56, "powers of two", True),
        (14, 24, "all", False),
        (1, 24, "powers of two", False),
        (1, 24, "32", False),
    ],
)
def test_groups_with_kernels_on_tensor_units(groups: int, channels: int, fast: FastGroups, direct: bool) -> None:
    assert is_direct(GROUPED._replace(batch=groups, n=channels, k=9 * channels), fast) is direct


@pytest.mark.parametrize("changed", [{"dtype": "float32"}, {"category": "dot"}, {"category": "stream"}])
def test_only_convolutions_of_16_bits_are_direct(changed: dict[str, str]) -> None:
    assert is_direct(GROUPED, "32")
    assert not is_direct(GROUPED._replace(**changed), "32")


def test_a_direct_convolution_is_timed_as_a_depthwise_one() -> None:
    table = Execution(compiled=False, fast_groups="powers of two").build_table([GROUPED])
    assert [CATEGORIES[code] for code in table.category] == ["depthwise"]
    assert Execution(compiled=False).build_table([GROUPED]).category.tolist() == [0]


@pytest.mark.parametrize(
    ("name", "fast"), [("V100-16GB", "powers of two"), ("H100-SXM", "powers of two"), ("P100-PCIe", "all")]
)
def test_keras_users(name: str, fast: FastGroups) -> None:
    assert find_keras_fast_groups(load_catalog().accelerators[name]) == fast


def test_other_vendors_are_not_known() -> None:
    accelerators = load_catalog().accelerators
    others = [a for a in accelerators.values() if a.vendor != "NVIDIA"]
    assert others
    assert {find_keras_fast_groups(a) for a in others} == {"all"}


def _regnet(collection: str, layout: str, version: str) -> Measurement:
    return next(
        m
        for m in load_published_measurements()
        if (m.collection, m.architecture, m.layout) == (collection, "regnety", layout)
        and m.software.startswith(f"PyTorch {version}")
    )


@pytest.mark.parametrize(
    ("collection", "layout", "version", "fast"),
    [
        ("timm_train_rtx3090", "nhwc", "1.12", "32"),
        ("timm_train_rtx3090", "nchw", "1.12", "all"),
        ("timm_infer", "nhwc", "1.13", "32"),
        ("timm_infer", "nhwc", "2.1", "powers of two"),
    ],
)
def test_published_rows_by_layout_and_version(
    collection: str, layout: str, version: str, fast: FastGroups
) -> None:
    m = _regnet(collection, layout, version)
    assert find_fast_groups(m, load_catalog().accelerators[m.accelerator]) == fast
