"""From what a user asks to what is read: one job a provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import UsageError, near_names_hint
from ..load import Catalog
from .registry import PROVIDERS, sources_of
from .run import Job
from .shapes import shapes_of
from .skypilot import SkyPilotCatalog
from .source import Request

__all__ = ["jobs_of"]


def jobs_of(
    catalog: Catalog,
    *,
    providers: Sequence[str] = (),
    regions: Sequence[str] = (),
    environ: Mapping[str, str],
    endpoints: Mapping[str, str],
    accept_moves: bool = False,
    file: Path | None = None,
) -> list[Job]:
    """Return the jobs of a refresh; UsageError for a provider that has no source.

    Args:
        catalog: The packaged catalog: what machines are made of, and the prices until now.
        providers: Only these; empty: all.
        regions: Only these; ``all``: every region of the catalog; empty: what each source reads unasked.
        environ: Where credentials and keys are.
        endpoints: Other addresses, by source name.
        accept_moves: Take prices that moved a lot.
        file: A catalog in SkyPilot's format, read instead of the one provider's sources.
    """
    if file is not None:
        _require_importable(file, providers)
    for name in providers:
        if name not in PROVIDERS:
            hint = near_names_hint(name, PROVIDERS, see_all="gpuplan catalog refresh --help")
            raise UsageError(f"no source of prices is known for `{name}` in `--provider`", hint=hint)
    jobs = []
    for provider in dict.fromkeys(providers or PROVIDERS):
        packaged = [offer for offer in catalog.offers if offer.provider == provider]
        shapes = shapes_of(provider, packaged, catalog.names)
        known_regions = tuple(sorted({offer.region for offer in packaged}))
        jobs.append(
            Job(
                provider=provider,
                slots=sources_of(provider, shapes)
                if file is None
                else ((SkyPilotCatalog(provider, shapes, file=file),),),
                shapes=shapes,
                packaged=packaged,
                request=Request(
                    regions=_regions_of(regions, known_regions),
                    known_regions=known_regions,
                    environ=environ,
                    endpoints=endpoints,
                ),
                accept_moves=accept_moves,
            )
        )
    wanted = {region for job in jobs for region in job.request.regions}
    for region in regions:
        if region not in wanted:
            raise UsageError(
                f"no provider that is refreshed has a region `{region}` (in `--region`)",
                hint=near_names_hint(region, _all_regions(jobs), see_all="gpuplan offers"),
            )
    return [job for job in jobs if job.request.regions or not regions]


def _require_importable(file: Path, providers: Sequence[str]) -> None:
    """Raise UsageError unless a file can be imported: it is there, and it is said whose prices are in it."""
    if len(providers) != 1:
        raise UsageError("`--from` reads the prices of one provider", hint="add `--provider gcp`, say")
    if not file.is_file():
        raise UsageError(f"no file `{file}` (in `--from`)", hint="give a vms.csv of SkyPilot's catalog")


def _regions_of(regions: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return which of the regions are a provider's, as the catalog spells them."""
    if "all" in regions:
        return ("all",)
    by_lower = {region.lower(): region for region in known}
    return tuple(by_lower[region.lower()] for region in regions if region.lower() in by_lower)


def _all_regions(jobs: Sequence[Job]) -> set[str]:
    return {region for job in jobs for region in job.request.known_regions}
