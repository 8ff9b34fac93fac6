"""Refresh jobs, one per provider, from the user's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import UsageError, near_names_hint
from ..catalog import Catalog
from ..clouds import NOTEBOOKS, PROVIDER_ALIASES
from .instance_types import InstanceSpecs, build_instance_specs
from .run import RefreshJob
from .skypilot import SkyPilotCatalog
from .source import PriceSource, RefreshRequest

PROVIDERS = ("aws", "azure", "gcp", "lambda", "nebius", "runpod", "vast")
VERIFIED = ("aws", "gcp")  # with lists of the vendors' own for those with an account
NOTEBOOK_HINT = "`gpuplan offers --provider {}` has its rows; `--assume notebook_hours_a_week=20` gives your hours"


def build_sources(provider: str, specs: InstanceSpecs, *, verify: bool) -> Sequence[PriceSource]:
    """Build the sources of a provider.

    Args:
        provider: One of ``PROVIDERS``.
        specs: Its instance types, for sources that list prices of parts.
        verify: Whether to take the vendor's own list where it needs an account.
    """
    from .aws_sdk import AwsQuery, AwsSpotHistory
    from .azure import AzureRetail
    from .gcp import GcpBilling
    from .gpu_clouds import RunPod, Vast

    own: Mapping[str, Sequence[PriceSource]] = {
        "aws": (AwsQuery(specs), AwsSpotHistory(specs)),
        "gcp": (GcpBilling(specs),),
    }
    public = {"azure": (AzureRetail(specs),), "runpod": (RunPod(specs),), "vast": (Vast(specs),)}
    hosted = (SkyPilotCatalog(provider, specs),)
    return own.get(provider, ()) if verify else public.get(provider, hosted)


def build_jobs(
    catalog: Catalog,
    *,
    providers: Sequence[str] = (),
    environ: Mapping[str, str],
    endpoints: Mapping[str, str],
    accept_moves: bool = False,
    verify: bool = False,
) -> list[RefreshJob]:
    """Build the jobs of a refresh; UsageError for a provider without a source.

    Args:
        catalog: The packaged catalog with instance types and previous prices.
        providers: Providers to refresh; empty for all.
        environ: Environment variables with credentials and keys.
        endpoints: Base URLs that replace the defaults, by source name.
        accept_moves: Accept large price changes.
        verify: Whether to take the vendors' own lists where they need an account.
    """
    known = VERIFIED if verify else PROVIDERS
    for name in providers:
        if name not in known:
            see_all = "gpuplan catalog refresh --help"
            near = near_names_hint(name, known, see_all=see_all, aliases=PROVIDER_ALIASES)
            hint = NOTEBOOK_HINT.format(name) if name in NOTEBOOKS else near
            if verify and name in PROVIDERS:
                hint = "its public list needs no account: leave out `--verify`"
            raise UsageError(f"no price source for provider `{name}` in `--provider`", hint=hint)
    jobs = []
    for provider in dict.fromkeys(providers or known):
        packaged = [offer for offer in catalog.offers if offer.provider == provider]
        specs = build_instance_specs(provider, packaged, catalog.names)
        regions = tuple(sorted({offer.region for offer in packaged}))
        jobs.append(
            RefreshJob(
                provider=provider,
                sources=build_sources(provider, specs, verify=verify),
                specs=specs,
                packaged=packaged,
                request=RefreshRequest(regions=regions, environ=environ, endpoints=endpoints),
                accept_moves=accept_moves,
            )
        )
    return jobs
