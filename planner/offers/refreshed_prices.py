"""Store of refreshed prices: atomically replaced files, an append-only history, and their merge."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import GpuplanError, UsageError
from ..files import write_atomically
from .catalog_files import CatalogError, Columns, CsvForm, Finding, read_csv, require_valid
from .rows import Offer, OfferKey

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


class HistoryRow(NamedTuple):
    """A row of the history; the fields are the columns, as strings."""

    as_of: str
    instance_type: str
    region: str
    purchase: str
    usd_per_hour: str
    url: str
    sku: str
    fetched_at: str

    @property
    def key(self) -> OfferKey:
        """Instance type, region and purchase option."""
        return (self.instance_type, self.region, self.purchase)


HISTORY_COLUMNS = HistoryRow._fields


@dataclass(frozen=True, slots=True)
class PriceStore:
    """Refreshed prices in a folder; a missing folder is an empty store."""

    folder: Path

    @property
    def providers(self) -> tuple[str, ...]:
        """Providers with refreshed prices."""
        return tuple(sorted(file.stem for file in (self.folder / "prices").glob("*.csv")))

    def path(self, part: str, provider: str) -> Path:
        """Return a provider's file in `prices`, `previous`, `history` or (JSON) `refresh`."""
        return self.folder / part / f"{provider}.{'json' if part == 'refresh' else 'csv'}"

    def offers(self, provider: str, *, part: str = "prices") -> tuple[RefreshedOffer, ...]:
        """Read the current or `previous` prices; CatalogError if a file is damaged."""
        path = self.path(part, provider)
        if not (text := _read_text(path)):
            return ()
        form = CsvForm(str(path), STORE_COLUMNS, derive=_derive_sources)
        return require_valid(*read_csv(RefreshedOffer, text, form, provider=provider))

    def etags(self, provider: str) -> dict[str, str]:
        """Return the ETags of the answers that the current prices are from, by URL."""
        try:
            stated = json.loads(self.path("refresh", provider).read_text(encoding="utf-8"))["etags"]
        except (OSError, ValueError, LookupError, TypeError):
            return {}
        known = {offer.url for offer in self.offers(provider)}
        return {url: tag for url, tag in stated.items() if url in known}

    def history(self, provider: str) -> tuple[HistoryRow, ...]:
        """Read all prices in the order of reading."""
        path = self.path("history", provider)
        return tuple(HistoryRow(**cells) for _, cells in _iter_rows(path, _read_text(path), HISTORY_COLUMNS))

    def _write_csv(self, part: str, provider: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Replace a file of a provider atomically."""
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows([columns, *rows])
        _write_file(self.path(part, provider), buffer.getvalue())

    def gone(self, provider: str) -> dict[OfferKey, str]:
        """Return the offers that the provider no longer lists, and the day on which that was read."""
        path = self.path("gone", provider)
        rows = _iter_rows(path, _read_text(path), GONE_COLUMNS)
        return {(row["instance_type"], row["region"], row["purchase"]): row["gone_on"] for _, row in rows}

    def write(
        self, provider: str, offers: Iterable[RefreshedOffer], *, gone: Mapping[OfferKey, str] | None = None
    ) -> None:
        """Replace the prices of a provider atomically, after adding changes to the history.

        Args:
            provider: The provider.
            offers: All of its current prices.
            gone: Offers that it no longer lists, with the day; None leaves those that are stored.
        """
        offers = sorted(offers, key=lambda offer: offer.key)
        history = self.history(provider)
        changes = find_new_history(history, offers)
        if changes:
            self._write_csv("history", provider, HISTORY_COLUMNS, (*history, *changes))
            current = self.path("prices", provider)
            if current.is_file():
                _write_file(self.path("previous", provider), current.read_text(encoding="utf-8"))
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


def find_new_history(history: Sequence[HistoryRow], offers: Iterable[RefreshedOffer]) -> list[HistoryRow]:
    """Return the history rows to add: offers whose price differs from the last one read."""
    last = {row.key: row for row in history}
    return [
        HistoryRow(
            as_of=offer.price_as_of or "",
            **{column: _format_cell(getattr(offer, column)) for column in HISTORY_COLUMNS[1:]},
        )
        for offer in offers
        if offer.key not in last or last[offer.key].usd_per_hour != _format_cell(offer.usd_per_hour)
    ]


def _read_text(path: Path) -> str:
    """Return the text of a file; empty if it does not exist; CatalogError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogError([Finding(str(path), 1, "file", f"cannot be read: {error}")]) from error


def _iter_rows(path: Path, text: str, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the numbered lines of a CSV file; none of one that does not exist; CatalogError if it is damaged."""
    if not text:
        return
    reader = csv.reader(io.StringIO(text, newline=""))
    if tuple(next(reader, ())) != tuple(columns):
        raise CatalogError([Finding(str(path), 1, "header", f"is not `{','.join(columns)}`")])
    for cells in reader:
        if len(cells) != len(columns):
            message = f"{len(cells)} cells where {len(columns)} are expected"
            raise CatalogError([Finding(str(path), reader.line_num, "columns", message)])
        yield reader.line_num, dict(zip(columns, cells, strict=True))


def _derive_sources(columns: Columns) -> Columns:
    """Return the sources of prices: address, and SKU or meter."""
    pairs = zip(columns["url"], columns["sku"], strict=True)
    return {"price_source": [f"{url} ({sku})" for url, sku in pairs]}


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
