"""Refresh jobs, one per provider, from the user's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import UsageError, near_names_hint
from ..catalog import Catalog
from ..clouds import NOTEBOOKS, PROVIDER_ALIASES
from .instance_types import InstanceSpecs, build_instance_specs
from .run import RefreshJob
from .skypilot import SkyPilotCatalog
from .source import PriceSource, RefreshRequest

PROVIDERS = ("aws", "azure", "gcp", "lambda", "runpod", "vast")
NOTEBOOK_HINT = "`gpuplan offers --provider {}` has its rows; `--assume notebook_hours_a_week=20` gives your hours"


def build_sources(provider: str, specs: InstanceSpecs) -> Sequence[Sequence[PriceSource]]:
    """Build the sources of a provider in slots; the first usable source of each slot is read.

    Args:
        provider: One of ``PROVIDERS``.
        specs: Its instance types, for sources that list prices of parts.
    """
    from .aws_public import AwsBulk, AwsSpotFeed
    from .aws_sdk import AwsQuery, AwsSpotHistory
    from .azure import AzureRetail
    from .gcp import GcpBilling
    from .gpu_clouds import LambdaCloud, RunPod, Vast

    slots: Mapping[str, Sequence[Sequence[PriceSource]]] = {
        "aws": ((AwsQuery(specs), AwsBulk()), (AwsSpotHistory(specs), AwsSpotFeed())),
        "azure": ((AzureRetail(),),),
        "gcp": ((GcpBilling(specs), SkyPilotCatalog("gcp", specs)),),
        "lambda": ((LambdaCloud(specs),),),
        "runpod": ((RunPod(specs),),),
        "vast": ((Vast(specs),),),
    }
    return slots[provider]


def build_jobs(
    catalog: Catalog,
    *,
    providers: Sequence[str] = (),
    regions: Sequence[str] = (),
    environ: Mapping[str, str],
    endpoints: Mapping[str, str],
    accept_moves: bool = False,
    file: Path | None = None,
) -> list[RefreshJob]:
    """Build the jobs of a refresh; UsageError for a provider without a source.

    Args:
        catalog: The packaged catalog with instance types and previous prices.
        providers: Providers to refresh; empty for all.
        regions: Regions to refresh; ``all`` for every region of the catalog; empty for each source's default.
        environ: Environment variables with credentials and keys.
        endpoints: Base URLs that replace the defaults, by source name.
        accept_moves: Accept large price changes.
        file: A catalog in SkyPilot's format, read instead of the provider's sources.
    """
    if file is not None:
        _require_importable(file, providers)
    for name in providers:
        if name not in PROVIDERS:
            see_all = "gpuplan catalog refresh --help"
            near = near_names_hint(name, PROVIDERS, see_all=see_all, aliases=PROVIDER_ALIASES)
            hint = NOTEBOOK_HINT.format(name) if name in NOTEBOOKS else near
            raise UsageError(f"no price source for provider `{name}` in `--provider`", hint=hint)
    jobs = []
    for provider in dict.fromkeys(providers or PROVIDERS):
        packaged = [offer for offer in catalog.offers if offer.provider == provider]
        specs = build_instance_specs(provider, packaged, catalog.names)
        known_regions = tuple(sorted({offer.region for offer in packaged}))
        imported = ((SkyPilotCatalog(provider, specs, file=file),),)
        jobs.append(
            RefreshJob(
                provider=provider,
                slots=build_sources(provider, specs) if file is None else imported,
                specs=specs,
                packaged=packaged,
                request=RefreshRequest(
                    regions=_select_regions(regions, known_regions),
                    known_regions=known_regions,
                    environ=environ,
                    endpoints=endpoints,
                ),
                accept_moves=accept_moves,
            )
        )
    wanted = {region for job in jobs for region in job.request.regions}
    known = {region for job in jobs for region in job.request.known_regions}
    for region in regions:
        if region not in wanted:
            message = f"no refreshed provider has the region `{region}` in `--region`"
            raise UsageError(message, hint=near_names_hint(region, known, see_all="gpuplan offers"))
    return [job for job in jobs if job.request.regions or not regions]


def _require_importable(file: Path, providers: Sequence[str]) -> None:
    """Raise UsageError unless the file to import exists and one provider is given."""
    if len(providers) != 1:
        hint = "add `--provider`, e.g. `--provider gcp`"
        raise UsageError("`--from` needs exactly one provider", hint=hint)
    if not file.is_file():
        raise UsageError(f"no file `{file}` (in `--from`)", hint="give a vms.csv file of SkyPilot's catalog")


def _select_regions(regions: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the given regions that the provider has, as spelled in the catalog."""
    if "all" in regions:
        return ("all",)
    by_lower = {region.lower(): region for region in known}
    return tuple(by_lower[region.lower()] for region in regions if region.lower() in by_lower)
