"""Shares of the peak of systolic arrays, fitted on steps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.accelerator_limits import compute_limits
from gpuplan.predict.coefficients import AcceleratorLimits
from gpuplan.predict.kernel_table import Kernel, KernelTable, build_kernel_table

from lab.dataset import read_published_file
from lab.systolic_fit import SystolicShares, SystolicStep, fit_systolic, predict_systolic_s


def kernel(m: int, n: int, k: int, *, category: str = "dot") -> Kernel:
    return Kernel(
        category=category,
        dtype="bfloat16",
        count=1.0,
        flops=2.0 * m * n * k,
        m=m,
        n=n,
        k=k,
        bytes_moved=2.0 * (m * k + k * n + m * n),
    )


def chip(name: str, table: KernelTable) -> AcceleratorLimits:
    found = compute_limits(load_catalog().accelerators[name], table=table, precision="mixed_bfloat16")
    assert isinstance(found, AcceleratorLimits)
    return found


def test_shares_are_found_again_in_steps_made_with_them() -> None:
    """The fit of steps that were computed with known shares; other chips keep what was read."""
    published = read_published_file("tpu_recipes_maxtext_language")[0]
    true = SystolicShares(products={"": 0.0, "TPU-v5e": 0.85, "TPU-v6e": 0.6}, attention=0.3)

    def build(name: str, batch: int) -> SystolicStep:
        dots = [kernel(4096 * batch, 8192, 8192), kernel(8192, 4096 * batch, 8192)]
        table = build_kernel_table([*dots, kernel(4096 * batch, 128, 2048, category="attention_fprop")])
        row = replace(published, accelerator=name, model=f"language.py:llama?layers={batch}")
        step = SystolicStep(measurement=row, table=table, chip=chip(name, table), beside_s=1e-4)
        return replace(step, measurement=replace(row, step_s=float(predict_systolic_s([step], true)[0])))

    steps = [build(name, batch) for name in ("TPU-v5e", "TPU-v6e") for batch in (1, 2, 4)]
    found = fit_systolic(steps)

    assert found.products["TPU-v5e"] == pytest.approx(0.85, rel=0.02)
    assert found.products["TPU-v6e"] == pytest.approx(0.6, rel=0.02)
    assert found.products["TPU-v5p"] == load_catalog().accelerators["TPU-v5p"].matmul_share
    mean = math.prod(found.products[name] for name in ("TPU-v5e", "TPU-v5p", "TPU-v6e")) ** (1 / 3)
    assert found.products[""] == pytest.approx(mean)
    assert predict_systolic_s(steps, found) == pytest.approx([s.measurement.step_s for s in steps], rel=0.01)
