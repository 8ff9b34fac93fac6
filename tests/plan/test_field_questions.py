"""The questions of the field, on the packaged prices: step times are given, what follows is done by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

import pytest
from factories import estimate_workload, make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import Accelerator
from gpuplan.plan.breakeven import compare_alternatives
from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.offer_estimate import OfferEstimate
from gpuplan.plan.question import EstimateContext, Filters, Question, select
from gpuplan.predict.step_time import NoPrediction, StepTime
from gpuplan.units import Interval
from gpuplan.workload.model import Workload
from gpuplan.workload.options import WorkloadOptions

CATALOG = load_catalog()
NOTHING_ELSE = {
    "boot_s": 0.0, "setup_s": 0.0, "dataset_gb": 0.0, "compile_s": 0.0, "idle_tail_s": 0.0, "checkpoint_gb": 0.0,
    "disk_gb": 0.0, "egress_gb": 0.0,
}  # fmt: skip
IMAGENET, BATCH, EPOCHS = 1_281_167, 128, 90


@dataclass(frozen=True)
class GivenSteps:
    """Returns given step times by accelerator and number of devices."""

    step_s: dict[tuple[str, float], float]

    def step_time(
        self, workload: Workload, accelerator: Accelerator, *, devices: float = 1, **_: object
    ) -> StepTime | NoPrediction:
        """Return the given time, 10 % either way."""
        mid = self.step_s.get((accelerator.name, devices))
        if mid is None:
            return NoPrediction("not given")
        return StepTime(
            time_s=Interval(low=0.9 * mid, mid=mid, high=1.1 * mid), basis="measured", limiter="compute"
        )


def on(instance: str, workload: Workload, steps: GivenSteps, *, region: str, **assumed: float) -> OfferEstimate:
    """Return one on-demand offer of the packaged catalog with the run on it."""
    provider = "gcp" if instance.startswith("tpu") else "aws"
    chosen = select(Filters(providers=(provider,), regions=(region,), purchase="on-demand", include_local=False))
    terms = CostTerms(costs=CATALOG.costs, overrides={**NOTHING_ELSE, **assumed})
    estimate = estimate_workload(
        workload, selection=chosen, predictor=steps, question=Question(scaling="weak"), terms=terms
    )
    return next(one for one in estimate.offers if one.offer.instance_type == instance)


@pytest.mark.parametrize(
    ("instance", "region", "device", "step_s", "usd_per_hour"),
    [
        ("g4dn.xlarge", "us-east-1", ("T4", 1.0), 0.36, "0.526"),
        ("p3.2xlarge", "us-east-1", ("V100-16GB", 1.0), 0.16, "3.06"),
        ("p3.16xlarge", "us-east-1", ("V100-16GB", 8.0), 0.18, "24.48"),
        ("p4d.24xlarge", "us-east-1", ("A100-40GB", 8.0), 0.07, "21.957642"),
        ("tpu-v3-8", "us-central1", ("TPU-v3", 4.0), 0.12, "8.0"),
    ],
)
def test_resnet50_on_imagenet_for_90_epochs(
    instance: str, region: str, device: tuple[str, float], step_s: float, usd_per_hour: str
) -> None:
    """By hand: ceil(1,281,167 / (128 x devices)) steps an epoch, 90 epochs, times the step, times the price.

    On one T4 that is 10,010 x 90 x 0.36 s = 90.1 h and $47.39; on 8 V100 1,252 x 90 x 0.18 s = 5.63 h and $137.9.
    """
    workload = make_workload(
        model="ResNet50",
        batch_size=BATCH,
        samples=IMAGENET,
        epochs=EPOCHS,
        steps=math.ceil(IMAGENET / BATCH) * EPOCHS,
    )
    one = on(instance, workload, GivenSteps({device: step_s}), region=region)
    steps = math.ceil(IMAGENET / (BATCH * int(device[1]))) * EPOCHS
    hours = steps * step_s / 3600
    assert one.bill is not None
    assert one.run_time_s is not None

    assert one.offer.usd_per_hour == Decimal(usd_per_hour)
    assert one.device_estimate.run.steps == steps
    assert one.run_time_s.mid / 3600 == pytest.approx(hours)
    assert float(one.bill.total.mid) == pytest.approx(hours * float(usd_per_hour), rel=1e-6)
    assert float(one.bill.total.high) == pytest.approx(1.1 * hours * float(usd_per_hour), rel=1e-6)


def test_overhead_of_imagenet_by_hand() -> None:
    """By hand, on p3.2xlarge: 150 GB at 200 MB/s are 750 s; 5 min around it; 210 GB of disk for the whole time."""
    workload = make_workload(
        model="ResNet50",
        batch_size=BATCH,
        samples=IMAGENET,
        epochs=EPOCHS,
        steps=math.ceil(IMAGENET / BATCH) * EPOCHS,
    )
    one = on(
        "p3.2xlarge",
        workload,
        GivenSteps({("V100-16GB", 1.0): 0.16}),
        region="us-east-1",
        boot_s=30.0,
        setup_s=120.0,
        dataset_gb=150.0,
        download_mb_per_s=200.0,
        compile_s=90.0,
        idle_tail_s=60.0,
        disk_gb=210.0,
        egress_gb=0.1,
    )
    hours = (10_010 * 90 * 0.16 + 750 + 30 + 120 + 90 + 60) / 3600
    assert one.bill is not None

    assert float(one.bill.total.mid) == pytest.approx(
        hours * 3.06 + 210 * 0.08 / 730 * hours + 0.1 * 0.09, rel=1e-6
    )


def test_bert_base_fine_tuning() -> None:
    """By hand: 3 epochs of 87,599 questions (SQuAD 1.1) in batches of 32 are 8,214 steps; at 0.2 s on a V100 they
    take 27.4 min, and at $3.06 an hour cost $1.396.
    """
    workload = make_workload(model="bert_base", batch_size=32, samples=87_599, epochs=3, steps=2738 * 3)
    one = on("p3.2xlarge", workload, GivenSteps({("V100-16GB", 1.0): 0.2}), region="us-east-1")
    assert one.bill is not None

    assert one.device_estimate.run.steps == 8214
    assert float(one.bill.total.mid) == pytest.approx(8214 * 0.2 / 3600 * 3.06, rel=1e-6)
    assert f"{one.bill.total.mid:.3f}" == "1.396"


def test_mnist_on_free_colab_against_g4dn_spot() -> None:
    """By hand: 422 steps of 2 ms in each of 15 epochs are 12.7 s on a T4 either way. Free Colab costs nothing but
    5 min of one's own; the spot machine cents and 10 min: free wins at any value of an hour.
    """
    workload = make_workload(model="mnist_cnn.py", batch_size=128, samples=54_000, epochs=15, steps=422 * 15)
    chosen = select(Filters(accelerators=("T4",), include_local=False))
    context = EstimateContext(
        workload=workload,
        options=WorkloadOptions(),
        selection=chosen,
        predictor=GivenSteps({("T4", 1.0): 0.002}),
        catalog=CATALOG,
        terms=CostTerms(costs=CATALOG.costs, overrides={**NOTHING_ELSE, "attention_share": 0.0}),
    )
    names = ("colab-free-t4", "aws:g4dn.xlarge:spot")
    question = Question(wait_value_usd=0.0)
    free, spot = compare_alternatives(context, question=question, against=names).alternatives

    assert free.name == "colab-free-t4"
    assert free.machine_h.mid * 3600 == pytest.approx(422 * 15 * 0.002)
    assert free.total_usd == pytest.approx(20 * 5 / 60)
    assert 0 < spot.money_usd.mid < 0.05
    assert spot.offer.own_h == pytest.approx(10 / 60)
