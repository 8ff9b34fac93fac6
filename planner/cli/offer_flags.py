"""Flags that say which offers are asked for, within which limits, and what an hour is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..frozen import Frozen
from .option_values import complete_accelerators, complete_providers, complete_regions

if TYPE_CHECKING:
    from ..plan.request import EstimateRequest

# Fields of a request whose flags, which may be repeated, have a name in the singular.
PLURAL = {"accelerator": "accelerators", "provider": "providers", "region": "regions"}

Accelerator = Annotated[
    list[str] | None,
    typer.Option(help="Only this accelerator; repeatable.", autocompletion=complete_accelerators),
]
Provider = Annotated[
    list[str] | None,
    typer.Option(help="Only this provider; repeatable.", autocompletion=complete_providers),
]
Region = Annotated[
    list[str] | None, typer.Option(help="Only this region; repeatable.", autocompletion=complete_regions)
]
Shard = Annotated[
    str | None,
    typer.Option(
        help="Sharding over devices: none, zero1, zero2, fsdp, tensor:N (N devices share each product), "
        "auto, or a list with commas, of which the first that fits is taken. "
        "Default: as the script says, else none."
    ),
]
Assume = Annotated[
    list[str] | None,
    typer.Option(help="Replace an assumption: boot_s=90, dataset_gb=150; repeatable (see --breakdown)."),
]


class OfferFlags(Frozen):
    """Filters of offers."""

    accelerator: Accelerator = None
    provider: Provider = None
    region: Region = None
    purchase: Annotated[Literal["on-demand", "spot", "any"], typer.Option(help="Purchase option.")] = "any"
    devices: Annotated[list[float] | None, typer.Option(help="Only this number of devices; repeatable.")] = (
        None
    )


class PlacementFlags(Frozen):
    """Locations of the data, and the division of the work over machines and devices."""

    residency: Annotated[
        list[str] | None,
        typer.Option(help="Only regions in eu, eea, uk or a country; repeatable."),
    ] = None
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
    shard: Shard = None
    retired: Annotated[
        bool, typer.Option("--retired", help="Include offers that can no longer be rented.")
    ] = False


class LimitFlags(Frozen):
    """Limits of time and cost of a run, values of hours, and assumptions."""

    deadline: Annotated[
        str | None, typer.Option(help="Time limit of the run: 90s, 12h, 2d; or its end: 'Mon 08:00', 18:30.")
    ] = None
    budget: Annotated[float | None, typer.Option(help="Maximum cost of the run in dollars.")] = None
    hour_value: Annotated[
        float | None, typer.Option(help="Value of an hour of your own time in dollars. Default: 0.")
    ] = None
    wait_value: Annotated[
        float | None,
        typer.Option(help="Value of an unattended hour until the run ends, in dollars. Default: 0."),
    ] = None
    assume: Assume = None


class OrderFlags(Frozen):
    """Input pipeline, order of the offers, and quotas."""

    feed: Annotated[
        str | None, typer.Option(help="How samples are fed: arrays, jpeg, or samples/s per vCPU.")
    ] = None
    sort: Annotated[Literal["cost", "time", "co2"], typer.Option(help="Order of the offers.")] = "cost"
    quota: Annotated[
        bool,
        typer.Option("--quota", help="Check your quotas at AWS, Azure and Google Cloud (a few seconds)."),
    ] = False


def build_request(*groups: Frozen, **single: Any) -> EstimateRequest:
    """Combine groups of flags and single ones, by the names of their fields, into a request."""
    from ..plan.request import EstimateRequest

    given = {name: value for group in groups for name, value in vars(group).items()} | single
    return EstimateRequest(
        **{PLURAL.get(name, name): value for name, value in given.items() if value is not None}
    )
