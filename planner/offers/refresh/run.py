"""A refresh: ask the sources of a provider, guard what they say, and replace its file at once, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..laws import MARK_ABOVE
from ..rows import Offer
from .guards import Guarded, Suspicion, guard
from .shapes import Shape, Shapes
from .source import FetchError, Listed, Part, PriceSource, Request
from .store import Key, RefreshedOffer, Store

if TYPE_CHECKING:
    from .http import Http

__all__ = ["Job", "Outcome", "Progress", "refresh"]

CLOCK_TOLERANCE_S = 300.0
NOT_LISTED = "not listed on"
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a refresh of one provider needs.

    Args:
        provider: Whose prices.
        slots: Sources by what they are for; of each the first that can be read is, and the next when it fails.
        shapes: What the provider's machines are made of.
        packaged: The provider's offers that came with gpuplan.
        request: Regions, credentials, endpoints.
        accept_moves: Take prices that moved a lot.
    """

    provider: str
    slots: Sequence[Sequence[PriceSource]]
    shapes: Shapes
    packaged: Sequence[Offer]
    request: Request
    accept_moves: bool = False


@dataclass(kw_only=True)
class Outcome:
    """How the refresh of one provider went.

    Args:
        provider: Whose prices.
        sources: What was read.
        accepted, refused: Parts.
        new, changed, same: Accepted prices, against those before.
        suspicions: What was not believed, or failed.
        needs: What else could be read, and what that takes.
    """

    provider: str
    sources: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    new: int = 0
    changed: int = 0
    same: int = 0
    suspicions: list[Suspicion] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)

    @property
    def quarantined(self) -> int:
        """How many single prices were not believed."""
        return sum(1 for suspicion in self.suspicions if not suspicion.refuses and suspicion.code != "clock")

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as the JSON contract has it."""
        return {
            "provider": self.provider,
            "sources": self.sources,
            "accepted": self.accepted,
            "refused": self.refused,
            "new": self.new,
            "changed": self.changed,
            "same": self.same,
            "quarantined": self.quarantined,
            "findings": [
                {
                    "code": found.code, "what": found.what, "message": found.message, "refuses": found.refuses,
                    "sku": found.sku or None, "url": found.url or None,
                }
                for found in self.suspicions
            ],
            "needs": self.needs,
        }  # fmt: skip


def refresh(
    job: Job,
    *,
    store: Store,
    http: Http,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    progress: Progress = lambda *_: None,
) -> Outcome:
    """Return how the refresh of a provider went; its file is replaced when anything was accepted.

    Args:
        job: What to read.
        store: Where prices are kept.
        http: Asks vendors.
        now: The local clock; one that is far off is told, and the vendor's is used.
        progress: Called with a label, parts done and parts in all.
    """
    outcome = Outcome(provider=job.provider)
    with store.locked(job.provider):
        old = {offer.key: offer for offer in store.offers(job.provider)}
        reference: dict[Key, Offer] = {
            **{(o.instance_type, o.region, o.purchase): o for o in job.packaged if not _is_past(o)}, **old
        }  # fmt: skip
        fresh = dict(old)
        for source, part, rows in _answers(job, http, outcome, progress):
            verdict = guard(part, rows, old=reference, shapes=job.shapes, accept_moves=job.accept_moves)
            outcome.suspicions += verdict.suspicions
            if verdict.refused:
                outcome.refused.append(part.label)
                continue
            outcome.accepted.append(part.label)
            at = _time(now(), http, outcome)
            _merge(verdict, part, source=source, at=at, fresh=fresh, reference=reference, outcome=outcome)
        # What a fall-back read after all was not refused.
        outcome.refused = [label for label in outcome.refused if label not in outcome.accepted]
        if outcome.accepted:
            store.write(job.provider, fresh.values())
        if outcome.sources:
            report = {"finished_at": _time(now(), http, outcome).isoformat(), **outcome.to_json()}
            store.write_report(job.provider, report)
    return outcome


def _answers(
    job: Job, http: Http, outcome: Outcome, progress: Progress
) -> Iterable[tuple[PriceSource, Part, list[Listed]]]:
    """Yield every part that a vendor answered whole; what failed goes into the outcome."""
    for slot in job.slots:
        for source in slot:
            needed = source.missing(job.request)
            if needed is not None:
                outcome.needs.append(f"{source.name}: {needed}")
                continue
            outcome.sources.append(source.name)
            answered, failed = False, list[tuple[Part, FetchError]]()
            parts = _parts(source, job, outcome)
            for done, part in enumerate(parts):
                progress(part.label, done, len(parts))
                try:
                    rows = list(source.read(part, job.request, http))
                except FetchError as error:
                    failed.append((part, error))
                    continue
                answered = True
                yield source, part, rows
            _note_failures(failed, outcome, answered=answered)
            if answered:
                break


def _note_failures(failed: Sequence[tuple[Part, FetchError]], outcome: Outcome, *, answered: bool) -> None:
    """Put what failed into the outcome. A region that an account may not see is no failure beside others."""
    for part, error in failed:
        refuses = not (answered and error.kind == "credentials")
        outcome.suspicions.append(
            Suspicion(code="failed", what=part.label, message=_told(error), refuses=refuses)
        )
        if refuses:
            outcome.refused.append(part.label)


def _parts(source: PriceSource, job: Job, outcome: Outcome) -> Sequence[Part]:
    """Return the parts of a source; none, and a finding, when even those cannot be told."""
    try:
        return source.parts(job.request)
    except FetchError as error:
        outcome.refused.append(source.name)
        outcome.suspicions.append(
            Suspicion(code="failed", what=source.name, message=_told(error), refuses=True)
        )
        return ()


def _merge(
    verdict: Guarded,
    part: Part,
    *,
    source: PriceSource,
    at: datetime,
    fresh: dict[Key, RefreshedOffer],
    reference: Mapping[Key, Offer],
    outcome: Outcome,
) -> None:
    """Put accepted rows in their places; refreshed rows that are no longer listed stay, and say so."""
    listed = {row.key for row, _ in verdict.accepted}
    doubted = {suspicion.what for suspicion in verdict.suspicions}
    for key, offer in list(fresh.items()):
        name = f"{key[0]} {key[1]} {key[2].replace('_', ' ')}"
        is_gone = part.covers(key[1], key[2]) and key not in listed and name not in doubted
        if is_gone and NOT_LISTED not in offer.note:
            note = _joined(offer.note, f"{NOT_LISTED} {at.date()}")
            fresh[key] = replace(offer, note=note)
    for row, shape in verdict.accepted:
        before = reference.get(row.key)
        if before is None or before.usd_per_hour is None:
            outcome.new += 1
        elif before.usd_per_hour == row.usd_per_hour:
            outcome.same += 1
        else:
            outcome.changed += 1
        fresh[row.key] = _offer(row, shape, provider=source.provider, at=at)
    for row, _ in verdict.accepted:  # once all prices of the part are there
        _mark_above_on_demand(fresh, row)


def _offer(row: Listed, shape: Shape, *, provider: str, at: datetime) -> RefreshedOffer:
    """Return a row of the store."""
    values = {
        "provider": provider,
        "instance_type": row.instance_type,
        "accelerator": shape.accelerator,
        "devices": shape.devices,
        "vcpus": shape.vcpus,
        "memory_gib": shape.memory_gib,
        "region": row.region,
        "purchase": row.purchase,
        "usd_per_hour": row.usd_per_hour,
        "price_as_of": at.date().isoformat(),
        "price_source": f"{row.url} ({row.sku})",
        "complete": shape.complete,
        "status": shape.status,
        "note": row.note,
        "url": row.url,
        "sku": row.sku,
        "fetched_at": at.replace(microsecond=0),
    }
    return RefreshedOffer.read(values)


def _mark_above_on_demand(fresh: dict[Key, RefreshedOffer], row: Listed) -> None:
    """Say it in the note when a spot price is above the on-demand price of the same machine."""
    on_demand = fresh.get((row.instance_type, row.region, "on_demand"))
    spot = fresh.get((row.instance_type, row.region, "spot"))
    if on_demand is None or spot is None or MARK_ABOVE in spot.note:
        return
    if on_demand.usd_per_hour and spot.usd_per_hour and spot.usd_per_hour > on_demand.usd_per_hour:
        fresh[spot.key] = replace(spot, note=_joined(spot.note, MARK_ABOVE))


def _time(local: datetime, http: Http, outcome: Outcome) -> datetime:
    """Return the time: the local clock, or the vendors' when the local one is far off, which is told once."""
    if abs(http.skew_s) <= CLOCK_TOLERANCE_S:
        return local
    if not any(suspicion.code == "clock" for suspicion in outcome.suspicions):
        message = f"is {-http.skew_s / 3600:+.1f} h off the vendor's; the vendor's date is used"
        outcome.suspicions.append(Suspicion(code="clock", what="the clock of this machine", message=message))
    return local + timedelta(seconds=http.skew_s)


def _told(error: FetchError) -> str:
    """Return an error as one line, with the way out."""
    return f"{error}; {error.hint}" if error.hint else str(error)


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _is_past(offer: Offer) -> bool:
    return offer.status == "historical"
