"""Deviation of compiled steps from linear interpolation between a smaller and a larger batch size.

    pip install -e '.[tpu-compile,cuda-compile]'
    python benchmarks/compiled_line.py      # some five minutes on two cores; compilations are kept

`gpuplan estimate --compile --best-batch` compiles two batch sizes and takes those between from the line. Here the
third is compiled too. Writes benchmarks/results/compiled_line.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.compile.compiled import CompiledStep
from gpuplan.predict.compile.cuda import compute_gpu_parts_s
from gpuplan.predict.compile.interpolate import interpolate_linearly
from gpuplan.predict.compile.targets import find_target
from gpuplan.predict.compile.tpu import compute_core_s
from gpuplan.predict.compile.worker import CompileLimits, compile_step
from gpuplan.units import MEGA
from gpuplan.workload.build.lowering import load_or_lower_step
from gpuplan.workload.options import WorkloadOptions

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "benchmarks" / "results" / "compiled_line.json"
CNN, ENCODER = (
    "benchmarks/workloads.py:cifar_cnn?width=32",
    "benchmarks/workloads.py:encoder?depth=1&width=512",
)
CASES = ((CNN, "TPU-v5e", (32, 128, 512)), (ENCODER, "TPU-v5e", (8, 32, 128)), (CNN, "T4", (32, 128, 512)))


def step(model: str, accelerator: str, batch_size: int) -> tuple[float, int]:
    """Return a compiled step's time on one core or GPU [s], and its memory [bytes]."""
    row = load_catalog().accelerators[accelerator]
    target = find_target(row)
    assert target is not None
    lowered = load_or_lower_step(
        model, options=WorkloadOptions(batch_size=batch_size), platform=target.platform, base=ROOT
    )
    found = compile_step(
        lowered.path, digest=lowered.digest, target=target, limits=CompileLimits(seconds=1800.0)
    )
    assert isinstance(found, CompiledStep), found
    if found.cycles:
        clock_hz = (row.boost_mhz or 0.0) * MEGA
        return compute_core_s(cycles=found.total_cycles, clock_hz=clock_hz), found.needed_bytes
    parts_s = compute_gpu_parts_s(
        found.kernels,
        row,
        precision="float32",
        input_bytes=0.0,
        slowdown=1.0,
        needed_bytes=found.needed_bytes,
    )
    assert isinstance(parts_s, dict)
    return sum(parts_s.values()), found.needed_bytes


def off_the_line(model: str, accelerator: str, sizes: tuple[int, int, int]) -> dict[str, Any]:
    """Return by how much the line misses the batch between, in time and memory [-]."""
    low, middle, high = (step(model, accelerator, size) for size in sizes)
    share = (sizes[1] - sizes[0]) / (sizes[2] - sizes[0])
    time_s, needed = (interpolate_linearly(a, b, share=share) for a, b in zip(low, high, strict=True))
    return {
        "model": model,
        "accelerator": accelerator,
        "batch_sizes": sizes,
        "compiled_ms": [round(one[0] * 1e3, 4) for one in (low, middle, high)],
        "time_error": round(time_s / middle[0] - 1, 4),
        "memory_error": round(needed / middle[1] - 1, 4),
    }


def main() -> int:
    rows = []
    for case in CASES:
        rows.append(off_the_line(*case))
        print(json.dumps(rows[-1]), flush=True)
    OUTPUT.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
