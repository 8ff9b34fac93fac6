"""The Python face: `gpuplan.estimate(model, ...)`, and its result in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from .plan.rank import SortBy
from .plan.result import Estimate as PlanEstimate

__all__ = ["Estimate", "estimate"]


class Estimate(PlanEstimate):
    """What a workload takes and costs on every offer that was asked for; a table in a notebook."""

    def __repr__(self) -> str:
        model, count = self.workload.model, len(self.offers)
        cheapest = self.recommendation.cheapest
        best = "" if cheapest is None else f", cheapest {self.offers[cheapest].offer.instance_type}"
        return f"<gpuplan.Estimate of {model} on {count} offers{best}>"

    def _repr_html_(self) -> str:
        from .render.html import estimate_html

        return estimate_html(self)


def estimate(
    model: Any,
    *,
    batch_size: int | None = None,
    samples: int | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    precision: str | None = None,
    mode: Literal["train", "infer"] = "train",
    loss: str | None = None,
    optimizer: str | None = None,
    accelerators: Sequence[str] = (),
    providers: Sequence[str] = (),
    regions: Sequence[str] = (),
    purchase: Literal["on-demand", "spot", "any"] = "any",
    devices: Sequence[float] = (),
    hosts: Sequence[int] = (),
    scaling: Literal["weak", "strong"] = "weak",
    residency: Sequence[str] = (),
    deadline: str | float | None = None,
    by: str | None = None,
    budget: float | None = None,
    assume: Mapping[str, float] | None = None,
    profiles: Sequence[str | Path] = (),
    feed: str | None = None,
    sort: SortBy = "cost",
    retired: bool = False,
    compile: bool = False,
    best_batch: bool = False,
    spot_life: str | None = None,
    checkpoint_every: str | None = None,
    checkpoint_time: str | None = None,
    restart_time: str | None = None,
    live: bool = False,
) -> Estimate:
    """Estimate time, cost and memory of a run on every accelerator that can be rented. Nothing is trained.

    Args:
        model: A `keras.Model`, or a MODEL reference as on the command line (`"ResNet50"`, `"train.py"`).
        batch_size: Samples per device and step [-].
        samples: Training samples of an epoch [-].
        epochs: Passes over the samples [-].
        steps: Optimizer steps on one device, instead of epochs [-].
        precision: A Keras dtype policy, or `tf32`.
        mode: Training steps, or predictions.
        loss, optimizer: By name, of a model that is not compiled.
        accelerators, providers, regions, purchase, devices: Which offers to look at; empty: all.
        hosts: Equal machines that share the work, each number that is asked about; empty: one [-].
        scaling: Several devices: each keeps the batch (weak), or they share it (strong).
        residency: Where the data may lie: `eu`, `eea`, `uk` or countries.
        deadline: Longest time of the run: `"12h"`, or a number of seconds [s].
        by: When it must be done: `"Mon 08:00"`.
        budget: Highest cost of the run [USD].
        assume: What you know better than the catalog: `{"boot_s": 90, "dataset_gb": 150}`.
        profiles: Files that `gpuplan profile` or `StepTimer` wrote.
        feed: How samples are fed: `"arrays"`, `"jpeg"`, or samples per second of one vCPU; None: no limit.
        sort: What comes first in `offers`.
        retired: Also what can no longer be rented.
        compile: Let XLA compile the step for each of `accelerators` (of a MODEL reference; minutes).
        best_batch: Also each offer at the largest batch that fits.
        spot_life, checkpoint_every, checkpoint_time, restart_time: What you know of machines that can be taken
            back: `"5h"`, `"20m"`, `"30s"`, `"5m"`.
        live: Ask the official clients of Colab and Kaggle first.

    Raises:
        GpuplanError: Whatever the caller can fix; UsageError for a wrong argument, NoAnswerError when the
            filters leave no offer. A run that fits nowhere is no error: see `recommendation`.
    """
    from .plan.ask import ask
    from .plan.compiling import Compiling
    from .plan.live import ask_notebooks
    from .plan.spot_given import spot_terms_of
    from .plan.wanted import Wanted
    from .settings import load_settings
    from .workload.options import WorkloadOptions

    if live:
        list(ask_notebooks(load_settings()))
    asked = Wanted(
        accelerators=accelerators, providers=providers, regions=regions, purchase=purchase, devices=devices,
        retired=retired, hosts=hosts, scaling=scaling, residency=residency, deadline=deadline, by=by,
        budget=budget, feed=feed, sort=sort,
        assume=[f"{key}={value}" for key, value in (assume or {}).items()],
        spot=spot_terms_of(
            spot_life=spot_life, checkpoint_every=checkpoint_every, checkpoint_time=checkpoint_time,
            restart_time=restart_time,
        ),
    ).resolve()  # fmt: skip
    options = WorkloadOptions(
        batch_size=batch_size, samples=samples, epochs=epochs, steps=steps, precision=precision, mode=mode,
        loss=loss, optimizer=optimizer,
    )  # fmt: skip
    answer = ask(
        model, asked.question, options=options, catalog=asked.catalog, terms=asked.terms,
        profiles=[Path(path) for path in profiles], compiling=Compiling() if compile else None,
        best_batch=best_batch,
    )  # fmt: skip
    return Estimate(**{field.name: getattr(answer, field.name) for field in fields(answer)})
