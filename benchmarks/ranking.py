"""Time to price and rank all offers of one workload with known step times.

    python benchmarks/ranking.py [--repeat N]

Prints the median and the least of processor and wall time; exit code 1 when the least exceeds the bar: 30 ms of
processor time for the whole catalog (3,570 offers). Step times are given, so that prediction plays no part. Bills,
interruptions, order, recommendation and Pareto front are all worked out; what only a listing shows (notes, energy,
lines of bills) is not, and is part of `startup.py`. The garbage collector is set as the command line sets it.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time

from gpuplan.__main__ import COLLECTOR_THRESHOLD
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import Accelerator
from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.estimate_workload import estimate_workload
from gpuplan.plan.question import Question
from gpuplan.plan.select import Filters, select
from gpuplan.predict.step_time import StepTime
from gpuplan.units import Interval
from gpuplan.workload.model import Memory, Workload

TARGET_MS = 30.0


class Known:
    """Knows every step time."""

    def step_time(
        self, workload: Workload, accelerator: Accelerator, *, devices: float = 1, **_: object
    ) -> StepTime:
        """Return the same time everywhere."""
        return StepTime(
            time_s=Interval(low=0.1, mid=0.12, high=0.2),
            basis="measured",
            limiter="compute",
            parts_s={"compute": 0.12},
        )


def workload() -> Workload:
    """Return a small workload with a known length."""
    memory = Memory(
        parameter_bytes=10**8,
        gradient_bytes=10**8,
        optimizer_bytes=2 * 10**8,
        state_bytes=0,
        input_bytes=10**7,
        activation_bytes=10**9,
    )
    return Workload(
        model="given",
        batch_size=32,
        samples=50_000,
        epochs=10,
        steps=15_630,
        parameters=25 * 10**6,
        trainable_parameters=25 * 10**6,
        memory=memory,
        ops=(),
        versions={},
    )


def main() -> int:
    """Print the times; 1 when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7, help="how often")
    repeat = parser.parse_args().repeat
    gc.set_threshold(*COLLECTOR_THRESHOLD)
    catalog = load_catalog()
    selection, terms, work = select(Filters(), catalog=catalog), CostTerms(costs=catalog.costs), workload()
    wall, cpu = [], []
    for _ in range(repeat):
        start_wall, start_cpu = time.perf_counter(), time.process_time()
        estimate_workload(work, selection=selection, predictor=Known(), question=Question(), terms=terms)
        wall.append(1e3 * (time.perf_counter() - start_wall))
        cpu.append(1e3 * (time.process_time() - start_cpu))
    print(f"{len(selection.offers)} offers, target {TARGET_MS:g} ms")
    for name, times in (("processor", cpu), ("wall", wall)):
        print(f"{name:<10} median {statistics.median(times):7.1f} ms   least {min(times):7.1f} ms")
    return int(min(cpu) > TARGET_MS)


if __name__ == "__main__":
    sys.exit(main())
