"""Flags that say which offers are asked for, within which limits, and what an hour is worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..frozen import Frozen
from .option_values import complete_accelerators, complete_providers, complete_regions

if TYPE_CHECKING:
    from ..plan.request import EstimateRequest
    from ..plan.spot.preemption import SpotTerms


class LimitFlags(Frozen):
    """Limits of time and cost of a run, and assumptions."""

    deadline: Annotated[str | None, typer.Option(help="Time limit of the run: 90s, 15m, 12h, 2d.")] = None
    by: Annotated[str | None, typer.Option(help="Time by which the run must end: 'Mon 08:00' or 18:30.")] = (
        None
    )
    budget: Annotated[float | None, typer.Option(help="Maximum cost of the run in dollars.")] = None
    assume: Annotated[
        list[str] | None,
        typer.Option(help="Replace an assumption: boot_s=90, dataset_gb=150; repeatable (see --breakdown)."),
    ] = None
    feed: Annotated[
        str | None, typer.Option(help="How samples are fed: arrays, jpeg, or samples/s per vCPU.")
    ] = None
    sort: Annotated[Literal["cost", "time", "co2"], typer.Option(help="Order of the offers.")] = "cost"
    quota: Annotated[
        bool,
        typer.Option("--quota", help="Check your quotas at AWS, Azure and Google Cloud (a few seconds)."),
    ] = False


class ValueFlags(Frozen):
    """Values of hours, which decide whether paying for speed is worth it."""

    hour_value: Annotated[
        float | None, typer.Option(help="Value of an hour of your own time in dollars. Default: 0.")
    ] = None
    wait_value: Annotated[
        float | None,
        typer.Option(help="Value of an unattended hour until the run ends, in dollars. Default: 0."),
    ] = None


class SpotFlags(Frozen):
    """Properties of spot machines that replace the catalog's assumptions."""

    spot_life: Annotated[
        str | None, typer.Option(help="Mean lifetime of a spot machine: 5h. Default: observed or published.")
    ] = None
    checkpoint_every: Annotated[
        str | None, typer.Option(help="Interval between checkpoints on spot: 20m. Default: Daly's optimum.")
    ] = None
    checkpoint_time: Annotated[
        str | None, typer.Option(help="Duration of a checkpoint: 30s. Default: from the size of the weights.")
    ] = None
    restart_time: Annotated[
        str | None, typer.Option(help="Time from the start of a new spot machine until training resumes: 5m.")
    ] = None

    def terms(self) -> SpotTerms:
        """Convert the flags to durations; UsageError for invalid ones."""
        from ..plan.request import build_spot_terms

        return build_spot_terms(
            spot_life=self.spot_life,
            checkpoint_every=self.checkpoint_every,
            checkpoint_time=self.checkpoint_time,
            restart_time=self.restart_time,
        )


class OfferFlags(Frozen):
    """Filters of offers."""

    accelerator: Annotated[
        list[str] | None,
        typer.Option(help="Only this accelerator; repeatable.", autocompletion=complete_accelerators),
    ] = None
    provider: Annotated[
        list[str] | None,
        typer.Option(help="Only this provider; repeatable.", autocompletion=complete_providers),
    ] = None
    region: Annotated[
        list[str] | None, typer.Option(help="Only this region; repeatable.", autocompletion=complete_regions)
    ] = None
    residency: Annotated[
        list[str] | None,
        typer.Option(help="Only regions in eu, eea, uk or a country; repeatable."),
    ] = None
    purchase: Annotated[Literal["on-demand", "spot", "any"], typer.Option(help="Purchase option.")] = "any"
    devices: Annotated[list[float] | None, typer.Option(help="Only this number of devices; repeatable.")] = (
        None
    )
    hosts: Annotated[
        list[int] | None, typer.Option(help="Number of equal machines that share the work; repeatable.")
    ] = None
    scaling: Annotated[
        Literal["weak", "strong"] | None,
        typer.Option(
            help="Batch on several devices: kept by each (weak), or shared (strong). Default: as the script "
            "distributes its model, else weak."
        ),
    ] = None
    shard: Annotated[
        str | None,
        typer.Option(
            help="Sharding over devices: none, zero1, zero2, fsdp, tensor:N (N devices share each product), "
            "auto, or a list with commas, of which the first that fits is taken. "
            "Default: as the script says, else none."
        ),
    ] = None
    retired: Annotated[
        bool, typer.Option("--retired", help="Include offers that can no longer be rented.")
    ] = False
    catalog: Annotated[Path | None, typer.Option(help="Folder with your own catalog.")] = None

    def build_request(
        self,
        limits: LimitFlags | None = None,
        spot: SpotFlags | None = None,
        values: ValueFlags | None = None,
    ) -> EstimateRequest:
        """Combine offer filters, limits, spot properties and values of hours."""
        from ..plan.request import EstimateRequest

        within, interrupted, hours = limits or LimitFlags(), spot or SpotFlags(), values or ValueFlags()
        return EstimateRequest(
            accelerators=self.accelerator or (),
            providers=self.provider or (),
            regions=self.region or (),
            purchase=self.purchase,
            devices=self.devices or (),
            retired=self.retired,
            catalog=self.catalog,
            residency=self.residency or (),
            scaling=self.scaling,
            shard=self.shard,
            hosts=self.hosts or (),
            deadline=within.deadline,
            by=within.by,
            feed=within.feed,
            budget=within.budget,
            sort=within.sort,
            quota=within.quota,
            assume=within.assume or (),
            spot=interrupted.terms(),
            hour_value=hours.hour_value or 0.0,
            wait_value=hours.wait_value or 0.0,
        )
