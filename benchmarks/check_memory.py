"""Predicted peak memory beside what XLA states for the same training step (profiles/xla_memory.csv)."""

from __future__ import annotations

import csv
import statistics
import sys
from pathlib import Path

from gpuplan.plan.memory import TIGHT_FROM
from gpuplan.plan.memory_parts import batch_bytes_of
from gpuplan.workload.load import WorkloadOptions, load_workload

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Print one line a row and the median; return 1 when a bound is broken."""
    ratios = []
    for row in csv.DictReader((ROOT / "profiles" / "xla_memory.csv").open()):
        options = WorkloadOptions(batch_size=int(row["batch_size"]), precision=row["precision"])
        workload = load_workload(row["model"], options=options, base=ROOT)
        part = {name: int(row[f"{name}_bytes"]) for name in ("argument", "temp", "output", "alias")}
        stated = part["argument"] + part["temp"] + part["output"] - part["alias"]
        ratios.append((workload.memory.fixed_bytes + batch_bytes_of(workload)) / stated)
        name = f"{row['model']} {row['batch_size']} {row['precision']} {row['target']}"
        print(f"{name:75} {stated / 1e9:7.3f} GB {100 * (ratios[-1] - 1):+6.1f} %", flush=True)
    median = statistics.median(abs(ratio - 1) for ratio in ratios)
    print(f"{len(ratios)} rows: median error {100 * median:.1f} %, lowest {100 * (min(ratios) - 1):+.1f} %")
    return int(median > 0.1 or min(ratios) < TIGHT_FROM)


if __name__ == "__main__":
    sys.exit(main())
