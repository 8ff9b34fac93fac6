"""The kernels of every published measurement, traced once and packaged.

Tracing hundreds of networks takes minutes; what comes out depends only on the tracer and on
``profiles/published/*.py``. `write_store` writes the file, and a test traces a sample of it again.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from gpuplan.files import write_atomically
from gpuplan.predict.executed_ops import list_array_sweeps
from gpuplan.predict.kernel_table import CATEGORIES, Kernel
from gpuplan.predict.library_kernels import (
    find_cudnn_layers,
    find_unfused_parts,
    has_persistent_norms,
    is_by_inductor,
    is_fused_by_chip,
)
from gpuplan.predict.measured_run import TracedRun
from gpuplan.predict.measurements import Measurement

FORMAT = "gpuplan.kernels/3"
FILE = "kernels.json.gz"


def build_run_key(m: Measurement) -> str:
    """Return the key of a measured run: runs with equal keys have equal kernels."""
    policy = "float32" if m.precision == "tf32" else m.precision
    apart = [f"{part} apart" for part in sorted(find_unfused_parts(m))]
    compiler = "inductor" if is_by_inductor(m) else "xla" if m.compiled else "kernels"
    how = " ".join([compiler, *apart, *sorted(find_cudnn_layers(m))])
    passes = m.accumulation or 1
    cores = m.device.cores_per_chip if m.device else 1
    where = f" on {cores} cores" if cores > 1 else ""
    where += f" on {m.accelerator}" if is_fused_by_chip(m) else ""
    again = f" again {m.recompute:g}" if 0.0 < m.recompute < 1.0 else " twice" if m.recompute else ""
    persistent = " persistent" if has_persistent_norms(m) else ""
    fused = " flash" if m.has_fused_attention else ""
    # One kernel that adds up gradients is no part of the key.
    sweeps = (one for one in list_array_sweeps(m) if one.name != "add" or one.each)
    beside = "".join(f" {one.name} x{one.times:g}{' each' * one.each}" for one in sweeps)
    beside += again + fused + persistent + where
    return f"{m.model} {m.batch_size} {m.mode} {policy} {how} {m.work} /{passes}{beside}"


def _row(kernel: Kernel) -> list[Any]:
    return [
        CATEGORIES.index(kernel.category),
        kernel.dtype,
        kernel.count,
        kernel.flops,
        kernel.bytes_moved,
        kernel.m,
        kernel.n,
        kernel.k,
        kernel.batch,
        int(kernel.winograd),
        int(kernel.streamed),
        *([1] if kernel.serial else []),
    ]


def _kernel(row: Sequence[Any]) -> Kernel:
    category, dtype, count, flops, bytes_moved, m, n, k, batch, winograd, streamed, *serial = row
    return Kernel(
        category=CATEGORIES[category],
        dtype=dtype,
        count=count,
        flops=flops,
        bytes_moved=bytes_moved,
        m=m,
        n=n,
        k=k,
        batch=batch,
        winograd=bool(winograd),
        streamed=bool(streamed),
        serial=bool(serial),
    )


def encode_store(traces: Mapping[str, TracedRun]) -> bytes:
    """Return traces as the packaged file holds them; equal traces give equal bytes."""
    runs = {
        key: [t.input_bytes, t.gradient_bytes, t.memory_bytes, [_row(kernel) for kernel in t.kernels]]
        for key, t in sorted(traces.items())
    }
    text = json.dumps({"schema": FORMAT, "runs": runs}, separators=(",", ":"))
    return gzip.compress(text.encode(), mtime=0)


def write_store(path: Path, traces: Mapping[str, TracedRun]) -> None:
    """Write traces: a reader sees the old file or the new one."""
    write_atomically(path, encode_store(traces))


@cache
def load_store() -> dict[str, TracedRun]:
    """Read the packaged traces, by `build_run_key`."""
    packed = (resources.files("gpuplan.profiles.published") / FILE).read_bytes()
    runs = json.loads(gzip.decompress(packed))["runs"]
    return {
        key: TracedRun(
            kernels=tuple(_kernel(row) for row in rows),
            input_bytes=input_bytes,
            gradient_bytes=gradient_bytes,
            memory_bytes=memory_bytes,
        )
        for key, (input_bytes, gradient_bytes, memory_bytes, rows) in runs.items()
    }
