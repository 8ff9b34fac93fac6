"""Python API: `gpuplan.estimate(model, ...)`, and its display in notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .files import cache_dir_restored
from .plan.estimate import Estimate as PlanEstimate
from .plan.question import SortBy

if TYPE_CHECKING:
    from pandas import DataFrame

    from .plan.breakeven import Breakeven


# Arguments of `estimate` that describe the run, not the offers.
WORK = (
    "batch_size", "samples", "epochs", "steps", "tokens", "precision", "mode", "loss", "optimizer", "remat",
    "script_timeout",
)  # fmt: skip


class Estimate(PlanEstimate):
    """Time and cost of a workload on every selected offer, displayed as a table in a notebook."""

    def __repr__(self) -> str:
        model, count = self.workload.model, len(self.offers)
        taken = self.decision.recommended
        best = "" if taken is None else f": take {self.offers[taken].offer.instance_type}"
        return f"<gpuplan.Estimate of {model} on {count} offers{best}>"

    def _repr_html_(self) -> str:
        from .render.estimate_html import format_estimate_html

        return format_estimate_html(self)

    def to_pandas(self) -> DataFrame:
        """Return a pandas data frame with one row per offer, in the order of `offers`.

        Columns are those of the TSV of `gpuplan estimate`, units in their names: `usd_per_hour` [USD/h],
        `run_time_s_low`, `run_time_s_mid`, `run_time_s_high` [s], `cost_usd_mid` [USD], `memory_bytes` and so on.
        Money is float here; exact amounts are in `offers`. Unknown values are missing, never 0.

        Raises:
            UsageError: pandas is not installed (`pip install 'gpuplan[pandas]'`).
        """
        from .render.estimate_html import build_offer_frame

        return build_offer_frame(self)


@cache_dir_restored()
def estimate(
    model: Any,
    *,
    batch_size: int | None = None,
    samples: int | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    tokens: float | None = None,
    precision: str | None = None,
    mode: Literal["train", "infer"] = "train",
    loss: str | None = None,
    optimizer: str | None = None,
    remat: bool = False,
    accelerators: Sequence[str] = (),
    providers: Sequence[str] = (),
    regions: Sequence[str] = (),
    purchase: Literal["on-demand", "spot", "any"] = "any",
    devices: Sequence[float] = (),
    hosts: Sequence[int] = (),
    scaling: Literal["weak", "strong"] | None = None,
    shard: str | None = None,
    residency: Sequence[str] = (),
    deadline: str | float | None = None,
    budget: float | None = None,
    hour_value: float | None = None,
    wait_value: float | None = None,
    quota: bool = False,
    assume: Mapping[str, float] | None = None,
    profiles: Sequence[str | Path] = (),
    feed: str | None = None,
    sort: SortBy = "cost",
    retired: bool = False,
    compile: bool = False,
    best_batch: bool = False,
    fit: bool = False,
    script_timeout: str | float | None = None,
) -> Estimate:
    """Estimate time, cost and memory of a run on every accelerator that can be rented. Nothing is trained.

    Environment, garbage collector and threads of the calling process stay as they are.

    Args:
        model: A `keras.Model`, or a MODEL reference as on the command line (`"ResNet50"`, `"train.py"`).
        batch_size: Samples per device and step [-].
        samples: Training samples per epoch [-].
        epochs: Passes over the samples [-].
        steps: Optimizer steps on one device, instead of epochs [-].
        tokens: Training tokens of a language model's run, instead of samples, epochs and steps [-].
        precision: A Keras dtype policy, or `tf32`.
        mode: Training or inference.
        loss: Name of the loss, for a model that is not compiled.
        optimizer: Name of the optimizer, for a model that is not compiled.
        remat: Recompute each layer's activations in the backward pass, as under `keras.RematScope(mode="full")`.
        accelerators: Accelerators to include, such as `"T4"`; empty for all.
        providers: Providers to include, such as `"aws"`; empty for all.
        regions: Regions to include; empty for all.
        purchase: Purchase option to include, or any.
        devices: Numbers of devices per machine to include; empty for all [-].
        hosts: Numbers of equal machines that share the work; empty for one [-].
        scaling: Several devices: they share the batch (strong), or each keeps it (weak), which is another
            training; None for strong. A script without a distribution runs on one device.
        shard: What several devices hold in parts: `"none"`, `"zero1"`, `"zero2"`, `"fsdp"`, `"tensor:4"`,
            or `"auto"` for the least of the first four that fits; None for what the script says.
        residency: Permitted locations of the data: `eu`, `eea`, `uk` or countries.
        deadline: Maximum time of the run: `"12h"`, the time by which it must end: `"Mon 08:00"`, or a number of
            seconds [s].
        budget: Maximum cost of the run [USD].
        hour_value: Value of an hour of your time; None for the setting, 20 by default [USD/h].
        wait_value: Value of an hour of waiting for results; None for the setting, 1 by default [USD/h].
        quota: Compare the offers with your quotas at AWS, Azure and Google Cloud (asks them, a few seconds).
        assume: Values that replace the catalog's assumptions: `{"boot_s": 90, "spot_life_h": 5}`.
        profiles: Files written by `gpuplan profile` or `StepTimer`.
        feed: Input pipeline: `"arrays"`, `"jpeg"`, or samples per second of one vCPU; None for no limit.
        sort: Sort order of `offers`.
        retired: Include offers that are no longer available.
        compile: Exact memory: compile the step with XLA for each of `accelerators` (for a MODEL reference; takes
            minutes).
        best_batch: Also estimate each offer at the largest batch size that fits.
        fit: Plan steps that do not fit as they could: sharded, in smaller passes whose gradients are accumulated,
            with recomputed activations.
        script_timeout: Time limit of a script: `"30m"`, or a number of seconds; None for 10 min [s].

    Raises:
        GpuplanError: The caller can fix the error: UsageError for a wrong argument, NoAnswerError if no offer
            passes the filters. A run that fits nowhere is no error: see `recommendation`.
    """
    given = {**locals(), "assume": [f"{key}={value}" for key, value in (assume or {}).items()]}
    from .plan.estimate_model import estimate_model
    from .plan.request import EstimateRequest, build_workload_options

    asked = EstimateRequest(**{one.name: given[one.name] for one in fields(EstimateRequest)}).resolve()
    options = build_workload_options(**{name: given[name] for name in WORK})
    compiling = None
    if compile:
        from .plan.compilation import StepCompiler

        compiling = StepCompiler()
    answer = estimate_model(
        model,
        asked.question,
        options=options,
        catalog=asked.catalog,
        terms=asked.terms,
        profiles=[Path(path) for path in profiles],
        compiling=compiling,
        best_batch=best_batch,
        fit=fit,
    )
    return Estimate(**{field.name: getattr(answer, field.name) for field in fields(answer)})


@cache_dir_restored()
def breakeven(model: Any, *, runs: int = 1, against: Sequence[str] = (), **asked: Any) -> Breakeven:
    """Compare notebooks, this machine and the clouds for one run and for several. Nothing is trained.

    Args:
        model: A `keras.Model`, or a MODEL reference as on the command line.
        runs: Number of equal runs, one after the other [-].
        against: Alternatives by name, such as `"colab-free"`, `"aws:g4dn.xlarge:spot"`; empty for the best ones.
        asked: Arguments of `estimate` that describe the run, the offers and the values of hours.

    Raises:
        GpuplanError: The caller can fix the error: UsageError for a wrong argument, NoAnswerError if nothing can
            run the work.
    """
    from .plan.breakeven import compare_alternatives
    from .plan.context import build_context
    from .plan.request import EstimateRequest, build_workload_options

    asked["assume"] = [f"{key}={value}" for key, value in (asked.get("assume") or {}).items()]
    request = EstimateRequest(**{name: value for name, value in asked.items() if name not in WORK}).resolve()
    options = build_workload_options(**{name: value for name, value in asked.items() if name in WORK})
    context = build_context(model, request.question, options=options, catalog=request.catalog, terms=request.terms)
    return compare_alternatives(context, question=request.question, against=tuple(against), runs=runs)
