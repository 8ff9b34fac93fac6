"""Published steps of sharded models compared with their prediction: MPT under FSDP on GPUs, Llama on TPU slices.

No constant has seen a row of these networks: the model of a step is fitted on steps of one GPU, the links and the
waiting on all-reduces of other publishers; what a TPU's matrix units reach is fitted without the network on the
accelerator (`benchmarks/tpu_steps.py`). Tracing takes some 20 minutes on two cores, the first time.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.accuracy import predict_traced_row
from gpuplan.predict.measurements import Measurement, load_published_measurements
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.step_time import StepTime
from gpuplan.units import TERA
from gpuplan.workload.model import Workload
from gpuplan.workload.reference import parse_reference

sys.path.append(str(Path(__file__).parents[1]))  # where lab/ is
from lab.dataset import trace_measured_rows
from lab.systolic_fit import build_systolic_steps, predict_left_out_s, select_fitted_rows

AIM_ERROR = 0.15
AIM_POINTS = 5.0
SHORT = 4096  # tokens of a sequence; attention is most of the work of much longer ones
PASSES = 3  # forward, and backward to inputs and to weights


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStep:
    """A published step with its prediction.

    Args:
        measurement: As published.
        step: As predicted.
        alone_s: The work of one device, without exchange and waiting [s].
        utilization_s: Time of the step's model FLOPs at the accelerator's peak [s].
    """

    measurement: Measurement
    step: StepTime
    alone_s: float
    utilization_s: float

    @property
    def length(self) -> int:
        """Tokens of a sequence [-]."""
        return int(
            parse_reference(self.measurement.model, base=self.measurement.base).arguments["sequence_length"]
        )

    @property
    def error(self) -> float:
        """Predicted over measured time, less 1 [-]."""
        return self.step.time_s.mid / self.measurement.step_s - 1.0

    @property
    def alone_error(self) -> float:
        """The same without exchange and waiting [-]."""
        return self.alone_s / self.measurement.step_s - 1.0

    @property
    def points(self) -> float:
        """Predicted less measured utilization by model FLOPs [percentage points]."""
        return 100.0 * self.utilization_s * (1.0 / self.step.time_s.mid - 1.0 / self.measurement.step_s)

    @property
    def is_covered(self) -> bool:
        """Whether the measured time lies in the 80 % interval."""
        return self.step.time_s.low <= self.measurement.step_s <= self.step.time_s.high


def count_model_flops(m: Measurement, parameters: int) -> float:
    """Return the FLOPs of a pass as publishers count them: tokens x (6 N + 12 l d s) [FLOP].

    Chowdhery et al., 2022, "PaLM: Scaling Language Modeling with Pathways", arXiv:2204.02311, appendix B;
    attention counted whole, and nothing that is computed again.

    Args:
        m: Row of a Transformer, whose reference gives layers l, width d and length s.
        parameters: N [-].
    """
    arguments = parse_reference(m.model, base=m.base).arguments
    depth, width, length = (arguments[name] for name in ("layers", "width", "sequence_length"))
    return m.batch_size * length * (2.0 * PASSES * parameters + 4.0 * PASSES * depth * width * length)


def judge(
    rows: Sequence[Measurement], trace: Callable[[Measurement], Workload], predictor: Predictor
) -> list[JudgedStep]:
    """Return every row with its prediction."""
    accelerators = load_catalog().accelerators
    found = []
    for m in rows:
        workload, accelerator = trace(m), accelerators[m.accelerator]
        step, _ = predict_traced_row(m, workload, accelerator, predictor)
        if not isinstance(step, StepTime):
            print(f"{m.model} on {m.accelerator}: {step.reason}", file=sys.stderr)
            continue
        peak = (accelerator.bf16_tensor_tflop_per_s or 0.0) * TERA
        found.append(
            JudgedStep(
                measurement=m,
                step=step,
                alone_s=step.time_s.mid - step.parts_s["link"],
                utilization_s=count_model_flops(m, workload.parameters) / peak,
            )
        )
    return found


def leave_networks_out(
    steps: Sequence[JudgedStep], trace: Callable[[Measurement], Workload], predictor: Predictor
) -> list[JudgedStep]:
    """Return the steps with those on TPUs predicted by shares that are fitted without the network."""
    rows = select_fitted_rows([one.measurement for one in steps])
    built = build_systolic_steps(rows, trace, load_catalog().accelerators, predictor)
    sources = [one.measurement.source for one in built]
    left_out_s = dict(zip(sources, map(float, predict_left_out_s(built)), strict=True))

    def predict(one: JudgedStep) -> JudgedStep:
        time_s = left_out_s.get(one.measurement.source)
        if time_s is None:
            return one
        step = replace(one.step, time_s=one.step.time_s.scaled(time_s / one.step.time_s.mid))
        return replace(one, step=step, alone_s=step.time_s.mid - step.parts_s["link"])

    return [predict(one) for one in steps]


def print_group(name: str, steps: Sequence[JudgedStep]) -> bool:
    """Print the scores of some rows; return whether they are as near as aimed at."""
    if not steps:
        return True
    errors, points = [abs(one.error) for one in steps], [abs(one.points) for one in steps]
    mean, apart = statistics.mean(errors), statistics.mean(points)
    print(
        f"| {name} | {len(steps)} | {statistics.median(errors):.0%} | {mean:.0%} "
        f"| {statistics.mean(one.error for one in steps):+.0%} | {apart:.1f} "
        f"| {statistics.mean(one.is_covered for one in steps):.0%} "
        f"| {statistics.mean(abs(one.alone_error) for one in steps):.0%} |"
    )
    return mean <= AIM_ERROR and apart <= AIM_POINTS


def main() -> int:
    """Print a line a row and the scores by publisher; return 1 when one misses the aim."""
    rows = [m for m in load_published_measurements() if m.shard and m.mode == "train"]
    trace = trace_measured_rows(rows, progress=lambda line: print(line, file=sys.stderr))
    predictor = Predictor.load()
    steps = leave_networks_out(judge(rows, trace, predictor), trace, predictor)
    print("| model | accelerators | batch | measured s | predicted s | error | link | MFU, points |")
    print("| --- | --- | --: | --: | --: | --: | --: | --: |")
    for one in steps:
        m, mid = one.measurement, one.step.time_s.mid
        again = f" ({m.recompute:.0%} recomputed)" if m.recompute else ""
        print(
            f"| {m.model.partition(':')[2]}{again} | {m.devices}x {m.accelerator} | {m.batch_size} "
            f"| {m.step_s:.3g} | {mid:.3g} | {one.error:+.0%} | {one.step.parts_s['link'] / mid:.0%} "
            f"| {one.points:+.1f} |"
        )
    print("\n| rows | number | median | mean | bias | MFU, points | in 80 % | mean without exchange |")
    print("| --- | --: | --: | --: | --: | --: | --: | --: |")
    reached = True
    for publisher in sorted({one.measurement.origin for one in steps}):
        own = [one for one in steps if one.measurement.origin == publisher]
        reached &= print_group(publisher, own)
        for chip in sorted({one.measurement.accelerator for one in own}):
            print_group(f"{publisher}, {chip}", [one for one in own if one.measurement.accelerator == chip])
        short = [one for one in own if one.length <= SHORT]
        print_group(f"{publisher}, up to {SHORT:,} tokens", short)
        print_group(f"{publisher}, longer", [one for one in own if one.length > SHORT])
    return int(not reached)


if __name__ == "__main__":
    sys.exit(main())
