"""Published runs to a target, as a whole: epochs and batch taken as given, the time and the bill predicted.

The runs are those of MLPerf training v0.5, ResNet-50, one machine each (``profiles/whole_runs.csv``). The step is
that of the software that was used: framework, fused or kernel by kernel, how gradients were summed, how data was
fed. None of these runs, and no step of theirs, was fitted on; ResNet-50 on other machines was.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.estimate_workload import estimate_in_context
from gpuplan.plan.question import EstimateContext, Filters, Question, select
from gpuplan.predict.measurements import Measurement, load_published_measurements
from gpuplan.predict.step_time import NoPrediction, StepTime
from gpuplan.units import Interval
from gpuplan.workload.options import WorkloadOptions

if TYPE_CHECKING:
    from gpuplan.offers.catalog import Catalog
    from gpuplan.offers.rows import Accelerator
    from gpuplan.plan.offer_estimate import OfferEstimate
    from gpuplan.workload.model import Workload

SAMPLES = 1_281_167  # ImageNet's training images
# ImageNet's 50,000 validation images after every fourth epoch: what v0.5 asked for, and what the logs of the TPU
# runs show (79 stretches between evaluations in 5 runs of 63 epochs).
VALIDATION_SAMPLES_AN_EPOCH = 50_000 / 4
FORWARD_SHARE = 1 / 3  # of a training step, where its operations are not at hand
XEON_8180_VCPUS = 112.0  # two sockets of 28 cores, two threads each


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """A run to a target.

    Args:
        step: How a step of it was run (its published time is not used).
        epochs: Whole epochs in its time to target at its published time of an epoch [-].
        run_s: Published: from start to target, evaluation included [s].
        offer: Provider, instance type and region of the same machine; None if it cannot be rented.
        source: Where it was published.
    """

    step: Measurement
    epochs: int
    run_s: float
    offer: tuple[str, str, str] | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRun:
    """A published run with its prediction.

    Args:
        run: As published.
        step_s: Predicted [s].
        predicted_s: Of training and evaluation [s].
        billed: The bill on the same machine, from boot to shutdown; None if it cannot be rented.
    """

    run: PublishedRun
    step_s: float
    predicted_s: float
    billed: OfferEstimate | None

    @property
    def error(self) -> float:
        """Predicted over published, less one [-]."""
        return self.predicted_s / self.run.run_s - 1.0


def load_published_runs() -> tuple[PublishedRun, ...]:
    """Return the runs that ship with the program, each with the row of its step."""
    path = Path(str(resources.files("gpuplan.profiles"))) / "whole_runs.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    corpus = [m for m in load_published_measurements() if m.origin == "mlperf_training" and "resnet50" in m.model]
    return tuple(_run(row, corpus) for row in rows)


def _run(row: Mapping[str, str], corpus: Sequence[Measurement]) -> PublishedRun:
    named = f"({row['step_row']})"
    step = next((m for m in corpus if named in m.source), None)
    if step is None:  # the CPU's: Intel Caffe, 32 images a step
        step = replace(
            corpus[0],
            accelerator="CPU",
            devices=1,
            batch_size=32,
            precision="float32",
            compiled=False,
            framework="caffe",
            distribution="none",
            host=row["host"],
            feed="",
            source=row["source"],
        )
    place = (row["provider"], row["instance_type"], row["region"])
    return PublishedRun(
        step=step,
        epochs=int(row["epochs"]),
        run_s=float(row["run_s"]),
        source=row["source"],
        offer=place if all(place) else None,
    )


def predict_runs(runs: Sequence[PublishedRun], catalog: Catalog) -> list[PredictedRun]:
    """Return every run with its prediction."""
    from gpuplan.offers.cpu import build_cpu_accelerator

    xeon = build_cpu_accelerator(catalog.hosts["Intel Skylake-SP"], XEON_8180_VCPUS, 384.0)
    chips = {**catalog.accelerators, "CPU": xeon}
    steps_s = _steps_s([run.step for run in runs], chips)
    return [_judged(run, step_s, catalog) for run, step_s in zip(runs, steps_s, strict=True)]


def _steps_s(steps: Sequence[Measurement], chips: Mapping[str, Accelerator]) -> list[float]:
    """Return the time of each step, on one device by the fit, on several by theirs [s]."""
    from gpuplan.predict.coefficients import load_coefficients
    from gpuplan.predict.data_parallel import load_parallel_coefficients

    from .cross_validation import predict_sample_s
    from .dataset import build_samples
    from .multi_device.data import pair_measurements
    from .multi_device.fit import predict_pair_s

    coefficients, constants = load_coefficients(), load_parallel_coefficients()
    samples = build_samples(steps, chips, progress=lambda _: None)
    single_s = {id(e.measurement): predict_sample_s(e.fit_sample, coefficients) for e in samples}
    pairs, _ = pair_measurements(steps, chips, single_s_of=lambda m: single_s[id(m)])
    several_s = {id(pair.measurement): predict_pair_s(pair, constants[pair.form]) for pair in pairs}
    return [several_s.get(id(m), single_s[id(m)]) for m in steps]


def _judged(run: PublishedRun, step_s: float, catalog: Catalog) -> PredictedRun:
    steps = -(-SAMPLES // (run.step.batch_size * run.step.devices)) * run.epochs
    evaluated = VALIDATION_SAMPLES_AN_EPOCH / SAMPLES * FORWARD_SHARE
    return PredictedRun(
        run=run,
        step_s=step_s,
        predicted_s=step_s * steps * (1.0 + evaluated),
        billed=None if run.offer is None else _billed(run, step_s, catalog),
    )


@dataclass(frozen=True)
class _Given:
    """Knows one step time."""

    step_s: float

    def step_time(self, workload: Workload, accelerator: Accelerator, **_: object) -> StepTime | NoPrediction:
        """Return it."""
        given = Interval(low=self.step_s, mid=self.step_s, high=self.step_s)
        return StepTime(time_s=given, basis="modelled", limiter="compute", parts_s={"compute": self.step_s})


def _billed(run: PublishedRun, step_s: float, catalog: Catalog) -> OfferEstimate:
    """Return the run on the machine of that name, with everything around it."""
    from gpuplan.predict.measured_run import load_measured_workload

    provider, instance, region = run.offer or ("", "", "")
    filters = Filters(
        providers=(provider,),
        regions=(region,),
        purchase="on-demand",
        include_retired=True,
        include_local=False,
        accelerators=(run.step.accelerator,),
        devices=(run.step.devices,),
    )
    workload = replace(load_measured_workload(run.step), samples=SAMPLES, epochs=run.epochs, steps=None)
    terms = CostTerms(costs=catalog.costs, overrides={"validation_samples": VALIDATION_SAMPLES_AN_EPOCH})
    context = EstimateContext(
        workload=workload,
        options=WorkloadOptions(),
        selection=select(filters, catalog=catalog),
        predictor=_Given(step_s),
        catalog=catalog,
        terms=terms,
    )
    answer = estimate_in_context(context, Question(scaling="weak"))
    return next(one for one in answer.offers if one.offer.instance_type == instance)
