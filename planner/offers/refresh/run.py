"""Refresh of providers: query their sources, check the prices, and replace the file of each atomically."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from typing import Any

from ...errors import UsageError, near_names_hint
from ..catalog import Catalog
from ..clouds import NOTEBOOKS, PROVIDER_ALIASES
from ..refreshed_prices import PriceStore, RefreshedOffer
from ..rows import Offer, OfferKey
from .http import USUAL, FetchError, HttpClient, RetryPolicy, map_in_threads
from .sanity_checks import Anomaly, CheckedPart, Code, check_part, find_on_sale, format_key
from .skypilot import SkyPilotCatalog
from .source import (
    InstanceSpecs,
    LeftOut,
    LeftOutReason,
    ListedPrice,
    PricePart,
    PriceSource,
    RefreshRequest,
    build_instance_specs,
)

_PLAIN = ("provider", "sources", "accepted", "refused", "new", "changed", "same", "gone")


@dataclass(kw_only=True)
class RefreshOutcome:
    """Result of the refresh of one provider."""

    provider: str  # refreshed provider
    sources: list[str] = field(default_factory=list)  # sources that were read
    # accepted, refused: labels of accepted and rejected parts
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    # new, changed, same: numbers of accepted prices, compared with the previous ones
    new: int = 0
    changed: int = 0
    same: int = 0
    gone: int = 0  # number of offers that an accepted part no longer lists
    anomalies: list[Anomaly] = field(default_factory=list)  # implausible prices and failures
    left_out: set[LeftOut] = field(default_factory=set)  # items that the sources list and the catalog lacks
    needs: list[str] = field(default_factory=list)  # requirements of further sources

    @property
    def quarantined(self) -> int:
        """Number of quarantined prices."""
        others = ("clock", "failed", "unreachable")
        return sum(1 for anomaly in self.anomalies if not anomaly.refuses and anomaly.code not in others)

    @property
    def names_left_out(self) -> dict[LeftOutReason, list[str]]:
        """Sorted names of omitted items, by reason."""
        found: dict[LeftOutReason, list[str]] = {}
        for entry in sorted(self.left_out, key=lambda entry: (entry.reason, entry.name)):
            found.setdefault(entry.reason, []).append(entry.name)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the outcome under the keys of the JSON contract."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "quarantined": self.quarantined,
            "findings": [asdict(found) for found in self.anomalies],
            "left_out": [
                {"reason": reason, "count": len(names), "names": names}
                for reason, names in self.names_left_out.items()
            ],
            "needs": self.needs,
        }


CLOCK_TOLERANCE_S = 300.0
MARK_ABOVE = "above on demand"  # note of a spot price that truly exceeds on demand
LISTED = ("instance_type", "region", "purchase", "usd_per_hour", "note", "url", "sku")  # kept as listed
TOTAL_S = 18.0  # of all requests together
REGIONS_AT_ONCE = 8
FAILED: Code = "failed"
ReadPart = tuple[PriceSource, PricePart, Sequence[ListedPrice] | None]  # None: as it was the last time


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshJob:
    """Inputs of the refresh of one provider."""

    provider: str  # provider to refresh
    sources: Sequence[PriceSource]  # its sources
    specs: InstanceSpecs  # instance types of the provider
    packaged: Sequence[Offer]  # the provider's packaged offers
    request: RefreshRequest  # regions, credentials, endpoints
    accept_moves: bool = False  # accept large price changes


def refresh_providers(
    jobs: Sequence[RefreshJob],
    *,
    store: PriceStore,
    total_s: float = TOTAL_S,
    policy: RetryPolicy = USUAL,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> list[RefreshOutcome]:
    """Refresh providers, all at once, so that a host that does not answer delays no other.

    What was not read after `total_s` stays as it is. `progress` gets the providers that are still read, the number
    done and the total.
    """
    failed: dict[str, FetchError] = {}
    until = time.monotonic() + total_s

    def read(job: RefreshJob) -> tuple[RefreshOutcome, list[ReadPart], HttpClient]:
        with closing(HttpClient(policy, failed=failed, until=until)) as http:
            return *read_prices(job, store=store, http=http), http

    outcomes = {job.provider: RefreshOutcome(provider=job.provider) for job in jobs}
    waiting = list(outcomes)
    progress(" ".join(waiting), 0, len(jobs))
    for job, (outcome, found, http) in map_in_threads(read, jobs, most=len(jobs)):
        keep_prices(job, outcome, found, store=store, http=http, now=datetime.now(UTC))
        outcomes[job.provider] = outcome
        waiting.remove(job.provider)
        progress(" ".join(waiting), len(jobs) - len(waiting), len(jobs))
    return list(outcomes.values())


def keep_prices(
    job: RefreshJob,
    outcome: RefreshOutcome,
    found: Iterable[ReadPart],
    *,
    store: PriceStore,
    http: HttpClient,
    now: datetime,
) -> None:
    """Check what was read, complete the outcome, and store what is accepted, as a whole.

    If the local time is far off, this is reported and the provider's clock is used.
    """
    at = _resolve_time(now, http, outcome).replace(microsecond=0)
    etags = dict(http.etags)
    with store.locked(job.provider):
        old = {offer.key: offer for offer in store.offers(job.provider)}
        packaged = {offer.key: offer for offer in job.packaged if offer.status != "historical"}
        reference: dict[OfferKey, Offer] = {**packaged, **old}
        fresh, gone = dict(old), dict(store.gone(job.provider))
        for source, part, rows in found:
            if rows is None:
                _confirm(fresh, source.url, at=at, outcome=outcome)
                outcome.accepted.append(part.label)
                continue
            verdict = check_part(
                part,
                rows,
                old=reference,
                specs=job.specs,
                accept_moves=job.accept_moves,
                is_complete=source.is_complete,
            )
            outcome.anomalies += verdict.anomalies
            outcome.left_out |= verdict.left_out
            if verdict.refused:
                outcome.refused.append(part.label)
                etags.pop(source.url, None)
                continue
            outcome.accepted.append(part.label)
            _merge(verdict, source=source, at=at, fresh=fresh, reference=reference, outcome=outcome)
            for key in _find_unlisted(verdict, part, source, reference):
                outcome.gone += key not in gone
                gone[key] = at.date().isoformat()
            for row, _ in verdict.accepted:
                gone.pop(row.key, None)
        if outcome.accepted:
            store.write(job.provider, [offer for key, offer in fresh.items() if key not in gone], gone=gone)
        if outcome.sources:
            report = {"finished_at": at.isoformat(), **outcome.to_json()}
            store.write_report(job.provider, {**report, "etags": store.etags(job.provider) | etags})


def read_prices(job: RefreshJob, *, store: PriceStore, http: HttpClient) -> tuple[RefreshOutcome, list[ReadPart]]:
    """Read every part, some at a time; those without a complete response are failures of the outcome."""
    outcome, found = RefreshOutcome(provider=job.provider), list[ReadPart]()
    request = replace(job.request, etags=store.etags(job.provider))
    for source in job.sources:
        needed = source.missing(request)
        if needed is not None:
            outcome.needs.append(f"{source.name}: {needed}")
            continue
        outcome.sources.append(source.name)
        parts, before = source.parts(request), len(found)
        failed = list[tuple[PricePart, FetchError]]()
        read = partial(_read_part, source, request, http)
        answers = dict(map_in_threads(read, parts, most=REGIONS_AT_ONCE))
        for part in parts:
            answer = answers[part]
            if not isinstance(answer, FetchError):
                outcome.left_out.update(row for row in answer if isinstance(row, LeftOut))
                found.append((source, part, [row for row in answer if isinstance(row, ListedPrice)]))
            elif answer.kind == "unchanged":
                found.append((source, part, None))
            else:
                failed.append((part, answer))
        _note_failures(failed, outcome, is_answered=len(found) > before)
    return outcome, found


def _read_part(
    source: PriceSource, request: RefreshRequest, http: HttpClient, part: PricePart
) -> list[ListedPrice | LeftOut] | FetchError:
    """Return the rows of a part, or its error."""
    try:
        return list(source.read(part, request, http))
    except FetchError as error:
        return error


def _note_failures(
    failed: Sequence[tuple[PricePart, FetchError]], outcome: RefreshOutcome, *, is_answered: bool
) -> None:
    """Add failures to the outcome, those of several parts for the same reason as one.

    A region that is not enabled for the account is no failure where others were read.
    """
    by_reason: dict[str, list[tuple[PricePart, FetchError]]] = {}
    for part, error in failed:
        by_reason.setdefault(str(error), []).append((part, error))
    for message, ((part, error), *others) in by_reason.items():
        refuses = not (is_answered and error.kind == "credentials")
        outcome.refused += [one.label for one, _ in by_reason[message]] if refuses else []
        what = f"{part.label} and {len(others)} more" if others else part.label
        why, code = f"{message}; {error.hint}" if error.hint else message, FAILED
        if error.kind == "unreachable" and error.host:
            what, why, code = error.host, error.hint or message, "unreachable"
        outcome.anomalies.append(Anomaly(code=code, what=what, message=why, refuses=refuses))


def _confirm(fresh: dict[OfferKey, RefreshedOffer], url: str, *, at: datetime, outcome: RefreshOutcome) -> None:
    """Date the prices of an answer that is the same as the last time."""
    for key, offer in fresh.items():
        if offer.url == url:
            fresh[key] = replace(offer, price_as_of=at.date().isoformat(), fetched_at=at)
            outcome.same += 1


def _merge(
    verdict: CheckedPart,
    *,
    source: PriceSource,
    at: datetime,
    fresh: dict[OfferKey, RefreshedOffer],
    reference: Mapping[OfferKey, Offer],
    outcome: RefreshOutcome,
) -> None:
    """Add the accepted rows."""
    for row, shape in verdict.accepted:
        before = reference.get(row.key)
        if before is None or before.usd_per_hour is None:
            outcome.new += 1
        elif before.usd_per_hour == row.usd_per_hour:
            outcome.same += 1
        else:
            outcome.changed += 1
        values = {
            **asdict(shape),
            **{name: getattr(row, name) for name in LISTED},
            "provider": source.provider,
            "price_as_of": at.date().isoformat(),
            "price_source": f"{row.url} ({row.sku})",
            "fetched_at": at,
        }
        fresh[row.key] = RefreshedOffer.read(values)
    for row, _ in verdict.accepted:  # after all prices of the part are merged
        _mark_above_on_demand(fresh, row)


def _find_unlisted(
    verdict: CheckedPart, part: PricePart, source: PriceSource, reference: Mapping[OfferKey, Offer]
) -> list[OfferKey]:
    """Return the offers of an accepted part that the vendor no longer lists; quarantined ones are listed."""
    if not source.is_complete:
        return []
    listed = {row.key for row, _ in verdict.accepted}
    doubted = {anomaly.what for anomaly in verdict.anomalies}
    on_sale = (key for key, _ in find_on_sale(part, reference))
    return [key for key in on_sale if key not in listed and format_key(key) not in doubted]


def _mark_above_on_demand(fresh: dict[OfferKey, RefreshedOffer], row: ListedPrice) -> None:
    """Note that a spot price exceeds the on-demand price of the same machine."""
    on_demand = fresh.get((row.instance_type, row.region, "on_demand"))
    spot = fresh.get((row.instance_type, row.region, "spot"))
    if on_demand is None or spot is None or MARK_ABOVE in spot.note:
        return
    if on_demand.usd_per_hour and spot.usd_per_hour and spot.usd_per_hour > on_demand.usd_per_hour:
        fresh[spot.key] = replace(spot, note="; ".join(filter(None, (spot.note, MARK_ABOVE))))


def _resolve_time(local: datetime, http: HttpClient, outcome: RefreshOutcome) -> datetime:
    """Return the local time, or the provider's if the local clock is far off, which is reported once."""
    if abs(http.skew_s) <= CLOCK_TOLERANCE_S:
        return local
    if not any(anomaly.code == "clock" for anomaly in outcome.anomalies):
        message = f"is {-http.skew_s / 3600:+.1f} h off the provider's; the provider's date is used"
        outcome.anomalies.append(Anomaly(code="clock", what="the clock of this machine", message=message))
    return local + timedelta(seconds=http.skew_s)


PROVIDERS = ("aws", "azure", "gcp", "lambda", "nebius", "runpod", "vast")
NOTEBOOK_HINT = "`gpuplan offers --provider {}` has its rows; `--assume notebook_hours_a_week=20` gives your hours"


# Module and classes of the vendors' own lists: public ones, and those that need an account.
PUBLIC = {"azure": ("azure", "AzureRetail"), "runpod": ("gpu_clouds", "RunPod"), "vast": ("gpu_clouds", "Vast")}
VERIFIED = {"aws": ("aws_sdk", "AwsQuery", "AwsSpotHistory"), "gcp": ("gcp", "GcpBilling")}


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
        environ, endpoints: Credentials and base URLs, as in `RefreshRequest`.
        accept_moves: Accept large price changes.
        verify: Whether to take the vendors' own lists where they need an account, not SkyPilot's catalog.
    """
    known = tuple(VERIFIED) if verify else PROVIDERS
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
        sources: list[PriceSource] = [SkyPilotCatalog(provider, specs)]
        if own := (VERIFIED if verify else PUBLIC).get(provider):
            module = import_module(f".{own[0]}", __package__)
            sources = [getattr(module, name)(specs) for name in own[1:]]
        jobs.append(
            RefreshJob(
                provider=provider,
                sources=sources,
                specs=specs,
                packaged=packaged,
                request=RefreshRequest(regions=regions, environ=environ, endpoints=endpoints),
                accept_moves=accept_moves,
            )
        )
    return jobs
