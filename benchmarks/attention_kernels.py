"""Published kernels of fused attention compared with their model: fitted, and with each chip and source left out.

The constants that it prints are those of `gpuplan.predict.fused_attention.ATTENTION`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.fused_attention import ATTENTION, AttentionCoefficients
from gpuplan.units import TERA

sys.path.append(str(Path(__file__).parents[1]))  # where lab/ is
from lab.attention_fit import AttentionKernel, fit_attention, predict_attention_s, read_attention_kernels

USUAL_SHARE = 0.9  # of the peak, for large products where none is published


def main() -> None:
    """Print the constants, and the error of each group of kernels."""
    accelerators, rows = load_catalog().accelerators, read_attention_kernels()

    def errors(some: Sequence[AttentionKernel], coefficients: AttentionCoefficients) -> np.ndarray:
        measured_s = np.array([row.time_s for row in some])
        return predict_attention_s(some, accelerators, coefficients) / measured_s - 1.0

    print(f"fitted on {len(rows)} kernels: {fit_attention(rows, accelerators)}")
    print("\n| kernels | number | mean | bias |\n| --- | --: | --: | --: |")

    def show(name: str, found: np.ndarray) -> None:
        print(f"| {name} | {len(found)} | {np.abs(found).mean():.1%} | {found.mean():+.1%} |")

    show("packaged constants", errors(rows, ATTENTION))
    group_by: tuple[tuple[str, Callable[[AttentionKernel], str]], ...] = (
        ("", lambda row: f"{row.accelerator}, {row.kernel}, {'backward' if row.backward else 'forward'}"),
        ("chip left out: ", lambda row: row.accelerator),
        ("source left out: ", lambda row: row.source),
    )
    for prefix, group_of in group_by:
        for name in sorted({group_of(row) for row in rows}):
            inside = [row for row in rows if group_of(row) == name]
            rest = [row for row in rows if group_of(row) != name]
            show(prefix + name, errors(inside, fit_attention(rest, accelerators) if prefix else ATTENTION))
    peaks = [accelerators[row.accelerator].bf16_tensor_tflop_per_s or 0.0 for row in rows]
    shares = [accelerators[row.accelerator].matmul_share or USUAL_SHARE for row in rows]
    rates = [row.flop_per_s / TERA for row in rows]
    show("as a matrix product of its size", np.array(rates) / (np.array(peaks) * shares) - 1.0)


if __name__ == "__main__":
    main()
