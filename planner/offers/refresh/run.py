"""Refresh of one provider: query its sources, check the prices, and replace its file atomically."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..refreshed_prices import PriceStore, RefreshedOffer
from ..rows import Offer, OfferKey
from .errors import FetchError
from .instance_types import InstanceSpec, InstanceSpecs
from .sanity_checks import Anomaly, CheckedPart, check_part, find_on_sale, format_key
from .source import LeftOut, LeftOutReason, ListedPrice, PricePart, PriceSource, RefreshRequest

if TYPE_CHECKING:
    from .http import HttpClient


_PLAIN = ("provider", "sources", "accepted", "refused", "new", "changed", "same", "gone")


@dataclass(kw_only=True)
class RefreshOutcome:
    """Result of the refresh of one provider.

    Args:
        provider: Refreshed provider.
        sources: Sources that were read.
        accepted, refused: Labels of accepted and rejected parts.
        new, changed, same: Numbers of accepted prices, compared with the previous ones.
        gone: Number of offers that an accepted part no longer lists.
        anomalies: Implausible prices and failures.
        left_out: Items that the sources list and the catalog lacks.
        needs: Requirements of further sources.
    """

    provider: str
    sources: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    new: int = 0
    changed: int = 0
    same: int = 0
    gone: int = 0
    anomalies: list[Anomaly] = field(default_factory=list)
    left_out: set[LeftOut] = field(default_factory=set)
    needs: list[str] = field(default_factory=list)

    @property
    def quarantined(self) -> int:
        """Number of quarantined prices."""
        return sum(1 for anomaly in self.anomalies if not anomaly.refuses and anomaly.code != "clock")

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
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshJob:
    """Inputs of the refresh of one provider.

    Args:
        provider: Provider to refresh.
        slots: Sources by purpose; of each slot, the first usable source is read, and the next if it fails.
        specs: Instance types of the provider.
        packaged: The provider's packaged offers.
        request: Regions, credentials, endpoints.
        accept_moves: Accept large price changes.
    """

    provider: str
    slots: Sequence[Sequence[PriceSource]]
    specs: InstanceSpecs
    packaged: Sequence[Offer]
    request: RefreshRequest
    accept_moves: bool = False


def refresh_provider(
    job: RefreshJob,
    *,
    store: PriceStore,
    http: HttpClient,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    progress: Progress = lambda *_: None,
) -> RefreshOutcome:
    """Refresh the prices of a provider; its file is replaced if any price was accepted.

    Args:
        job: Inputs of the refresh.
        store: Store of prices.
        http: HTTP client.
        now: Local clock; if it is far off, this is reported and the provider's clock is used.
        progress: Called with a label, the parts done and the total number of parts.
    """
    outcome = RefreshOutcome(provider=job.provider)
    with store.locked(job.provider):
        old = {offer.key: offer for offer in store.offers(job.provider)}
        packaged = {offer.key: offer for offer in job.packaged if offer.status != "historical"}
        reference: dict[OfferKey, Offer] = {**packaged, **old}
        fresh = dict(old)
        gone = dict(store.gone(job.provider))
        for source, part, rows in _read_parts(job, http, outcome, progress):
            verdict = check_part(part, rows, old=reference, specs=job.specs, accept_moves=job.accept_moves)
            outcome.anomalies += verdict.anomalies
            outcome.left_out |= verdict.left_out
            if verdict.refused:
                outcome.refused.append(part.label)
                continue
            outcome.accepted.append(part.label)
            at = _resolve_time(now(), http, outcome)
            _merge(verdict, source=source, at=at, fresh=fresh, reference=reference, outcome=outcome)
            for key in _find_unlisted(verdict, part, source, reference):
                outcome.gone += key not in gone
                gone[key] = at.date().isoformat()
            for row, _ in verdict.accepted:
                gone.pop(row.key, None)
        # Parts read by a fallback source are not rejected.
        outcome.refused = [label for label in outcome.refused if label not in outcome.accepted]
        if outcome.accepted:
            store.write(job.provider, [offer for key, offer in fresh.items() if key not in gone], gone=gone)
        if outcome.sources:
            report = {"finished_at": _resolve_time(now(), http, outcome).isoformat(), **outcome.to_json()}
            store.write_report(job.provider, report)
    return outcome


def _read_parts(
    job: RefreshJob, http: HttpClient, outcome: RefreshOutcome, progress: Progress
) -> Iterable[tuple[PriceSource, PricePart, list[ListedPrice]]]:
    """Yield every part with a complete response; failures are added to the outcome."""
    for slot in job.slots:
        for source in slot:
            needed = source.missing(job.request)
            if needed is not None:
                outcome.needs.append(f"{source.name}: {needed}")
                continue
            outcome.sources.append(source.name)
            answered, failed = False, list[tuple[PricePart, FetchError]]()
            parts = source.parts(job.request)
            for done, part in enumerate(parts):
                progress(part.label, done, len(parts))
                try:
                    rows = list(source.read(part, job.request, http))
                except FetchError as error:
                    failed.append((part, error))
                    if error.host:  # the same for all parts
                        outcome.refused += [rest.label for rest in parts[done + 1 :]]
                        break
                    continue
                answered = True
                outcome.left_out.update(row for row in rows if isinstance(row, LeftOut))
                yield source, part, [row for row in rows if isinstance(row, ListedPrice)]
            _note_failures(failed, outcome, answered=answered)
            if answered:
                break


def _note_failures(
    failed: Sequence[tuple[PricePart, FetchError]], outcome: RefreshOutcome, *, answered: bool
) -> None:
    """Add failures to the outcome; a region not enabled for the account is no failure if others succeeded."""
    for part, error in failed:
        refuses = not (answered and error.kind == "credentials")
        message = f"{error}; {error.hint}" if error.hint else str(error)
        outcome.anomalies.append(Anomaly(code="failed", what=part.label, message=message, refuses=refuses))
        if refuses:
            outcome.refused.append(part.label)


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
        fresh[row.key] = _build_offer(row, shape, provider=source.provider, at=at)
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


def _build_offer(row: ListedPrice, shape: InstanceSpec, *, provider: str, at: datetime) -> RefreshedOffer:
    """Build a row of the store."""
    values = {
        **asdict(shape),
        **{name: getattr(row, name) for name in LISTED},
        "provider": provider,
        "price_as_of": at.date().isoformat(),
        "price_source": f"{row.url} ({row.sku})",
        "fetched_at": at.replace(microsecond=0),
    }
    return RefreshedOffer.read(values)


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
