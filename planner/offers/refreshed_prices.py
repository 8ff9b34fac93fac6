"""Store of refreshed prices: atomically replaced files, and their merge with the packaged ones."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import GpuplanError, UsageError
from ..files import write_atomically
from .catalog_files import Columns, CsvForm, R, read_csv, read_text, require_valid
from .rows import Offer, OfferKey, Row

STORE_COLUMNS = (
    "instance_type", "accelerator", "devices", "vcpus", "memory_gib", "region", "purchase", "usd_per_hour",
    "price_as_of", "estimated", "complete", "status", "note", "url", "sku", "fetched_at",
)  # fmt: skip
GONE_COLUMNS = ("instance_type", "region", "purchase", "gone_on")
LOCK_WAIT_S = 30.0


class RefreshedOffer(Offer):
    """An offer with a price read from its provider, its URL, SKU or meter, and time."""

    url: str
    sku: str
    fetched_at: datetime


class WithdrawnOffer(Row):
    """An offer that its provider no longer lists, and the day on which that was read."""

    instance_type: str
    region: str
    purchase: str
    gone_on: str


@dataclass(frozen=True, slots=True)
class PriceStore:
    """Refreshed prices in a folder; a missing folder is an empty store."""

    folder: Path

    @property
    def providers(self) -> tuple[str, ...]:
        """Providers with refreshed prices."""
        return tuple(sorted(file.stem for file in (self.folder / "prices").glob("*.csv")))

    def path(self, part: str, provider: str) -> Path:
        """Return a provider's file in `prices`, `previous`, `gone` or (JSON) `refresh`."""
        return self.folder / part / f"{provider}.{'json' if part == 'refresh' else 'csv'}"

    def offers(self, provider: str, *, part: str = "prices") -> tuple[RefreshedOffer, ...]:
        """Read the current or `previous` prices; CatalogError if a file is damaged."""
        path = self.path(part, provider)

        def derive(columns: Columns) -> Columns:
            pairs = zip(columns["url"], columns["sku"], strict=True)
            return {"price_source": [f"{url} ({sku})" for url, sku in pairs]}

        form = CsvForm(str(path), STORE_COLUMNS, derive=derive)
        return _read_file(path, RefreshedOffer, form, provider=provider)

    def etags(self, provider: str) -> dict[str, str]:
        """Return the ETags of the answers that the current prices are from, by URL."""
        try:
            stated = json.loads(self.path("refresh", provider).read_text(encoding="utf-8"))["etags"]
        except (OSError, ValueError, LookupError, TypeError):
            return {}
        known = {offer.url for offer in self.offers(provider)}
        return {url: tag for url, tag in stated.items() if url in known}

    def _write_csv(self, part: str, provider: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Replace a file of a provider atomically."""
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows([columns, *rows])
        _write_file(self.path(part, provider), buffer.getvalue())

    def gone(self, provider: str) -> dict[OfferKey, str]:
        """Return the offers that the provider no longer lists, and the day on which that was read."""
        path = self.path("gone", provider)
        rows = _read_file(path, WithdrawnOffer, CsvForm(str(path), GONE_COLUMNS))
        return {(row.instance_type, row.region, row.purchase): row.gone_on for row in rows}

    def write(
        self, provider: str, offers: Iterable[RefreshedOffer], *, gone: Mapping[OfferKey, str] | None = None
    ) -> None:
        """Replace all prices of a provider atomically; those before the last change are the `previous` ones.

        `gone` are the offers that it no longer lists, with the day; None leaves those that are stored.
        """
        offers = sorted(offers, key=lambda offer: offer.key)
        before = {offer.key: offer.usd_per_hour for offer in self.offers(provider)}
        if before and any(before.get(offer.key) != offer.usd_per_hour for offer in offers):
            _write_file(self.path("previous", provider), self.path("prices", provider).read_text(encoding="utf-8"))
        prices = [[_format_cell(getattr(offer, column)) for column in STORE_COLUMNS] for offer in offers]
        self._write_csv("prices", provider, STORE_COLUMNS, prices)
        if gone is not None:
            rows = [(*key, day) for key, day in sorted(gone.items())]
            self._write_csv("gone", provider, GONE_COLUMNS, rows)

    def write_report(self, provider: str, report: Mapping[str, Any]) -> None:
        """Write the report on the last refresh of a provider."""
        text = json.dumps(report, indent=1, ensure_ascii=False, default=str) + "\n"
        _write_file(self.path("refresh", provider), text)

    @contextmanager
    def locked(self, provider: str) -> Iterator[None]:
        """Lock a provider against other processes; GpuplanError if one holds the lock for too long."""
        from filelock import FileLock, Timeout

        folder = _ensure_folder(self.folder / "refresh")
        try:
            with FileLock(folder / f".{provider}.lock", timeout=LOCK_WAIT_S):
                yield
        except Timeout as error:
            message = f"another process is refreshing the prices of `{provider}` in {self.folder}"
            raise GpuplanError(message, hint="wait until it has finished") from error


def merge_refreshed(packaged: Sequence[Offer], store: PriceStore) -> tuple[Offer, ...]:
    """Merge refreshed offers into packaged ones, replacing prices and adding new offers.

    The later date wins, so that a newer gpuplan brings newer prices; on equal dates, the refreshed price
    wins. An offer that its provider no longer lists is left out, unless the packaged price is of a later day.
    Rows of a provider are sorted by instance type, region and purchase option.
    """
    merged: dict[tuple[str, str, str, str], Offer] = {(o.provider, *o.key): o for o in packaged}
    before = list(merged)
    for provider in store.providers:
        for unlisted, day in store.gone(provider).items():
            packaged_offer = merged.get((provider, *unlisted))
            if packaged_offer is not None and (packaged_offer.price_as_of or "") <= day:
                del merged[provider, *unlisted]
        for offer in store.offers(provider):
            key = (provider, *offer.key)
            known = merged.get(key)
            if known is None or (offer.price_as_of or "") >= (known.price_as_of or ""):
                merged[key] = offer
    if list(merged) == before:
        return tuple(merged.values())
    return tuple(merged[key] for key in sorted(merged))


def _read_file(path: Path, model: type[R], form: CsvForm, **fixed: str) -> tuple[R, ...]:
    """Return the rows of a file; none of one that does not exist; CatalogError if it is damaged."""
    if not path.is_file():
        return ()
    return require_valid(*read_csv(model, read_text(path, form.file), form, **fixed))


def _format_cell(value: Any) -> str:
    """Format a value as a cell: no exponents, no trailing ``.0``."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, datetime):
        return value.isoformat()
    return format(value, "f") if hasattr(value, "as_tuple") else str(value)


def _ensure_folder(folder: Path) -> Path:
    """Create a folder if needed; UsageError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the data folder `{folder}` cannot be created: {error.strerror}"
        raise UsageError(message, hint="set another with `GPUPLAN_DATA_DIR`") from error
    return folder


def _write_file(path: Path, text: str) -> None:
    """Write a file durably, creating its folder if needed."""
    _ensure_folder(path.parent)
    write_atomically(path, text, durable=True)
