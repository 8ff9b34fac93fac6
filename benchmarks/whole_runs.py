"""Whole runs to a target compared with their prediction: MLPerf training v0.5, ResNet-50, with the bill."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from gpuplan.offers.catalog import load_catalog

sys.path.append(str(Path(__file__).parents[1]))  # where lab/ is
from lab.end_to_end import load_published_runs, predict_runs

ENOUGH = 0.25


def main() -> int:
    """Print a line a run; return 1 when any is more than a quarter off."""
    print(f"{'machine':26} {'epochs':>6} {'step ms':>8} {'measured h':>10} {'predicted h':>11} {'error':>7}  bill")
    errors = []
    for judged in predict_runs(load_published_runs(), load_catalog()):
        run, bill = judged.run, judged.billed and judged.billed.bill
        machine = f"{run.step.devices}x {run.step.accelerator}, {run.step.framework}"
        priced = (
            "" if not bill or not judged.billed else f"${bill.total.mid:.0f} {judged.billed.offer.instance_type}"
        )
        print(
            f"{machine:26} {run.epochs:6} {1e3 * judged.step_s:8.1f} {run.run_s / 3600:10.2f} "
            f"{judged.predicted_s / 3600:11.2f} {judged.error:+7.0%}  {priced}"
        )
        errors.append(abs(judged.error))
    within = sum(error <= ENOUGH for error in errors)
    print(f"{within} of {len(errors)} within 25 %; median error {statistics.median(errors):.0%}")
    return int(within < len(errors))


if __name__ == "__main__":
    sys.exit(main())
