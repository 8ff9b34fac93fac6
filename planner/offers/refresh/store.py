"""Where refreshed prices are kept: whole files, replaced at once; a history that is only appended to.

    <data folder>/prices/aws.csv     what holds now, each row with address, SKU and time
                 /previous/aws.csv   what held before the last refresh that changed anything
                 /history/aws.csv    every price ever read, one row a change
                 /refresh/aws.json   how the last refresh went: findings and what is in quarantine

A reader sees the old file or the new one. The history is written before the prices: after a crash between the two
it may know more than the prices do, never less. One process refreshes a provider at a time (a lock file).
"""

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

from ...errors import GpuplanError, UsageError
from ...files import write_whole
from ..files import CatalogError, Finding
from ..rows import Offer

__all__ = ["HISTORY_COLUMNS", "STORE_COLUMNS", "DatedPrice", "RefreshedOffer", "Store"]

STORE_COLUMNS = (
    "instance_type", "accelerator", "devices", "vcpus", "memory_gib", "region", "purchase", "usd_per_hour",
    "price_as_of", "estimated", "complete", "status", "note", "url", "sku", "fetched_at",
)  # fmt: skip
HISTORY_COLUMNS = ("as_of", "instance_type", "region", "purchase", "usd_per_hour", "url", "sku", "fetched_at")
_NULLABLE = ("vcpus", "memory_gib")
LOCK_WAIT_S = 30.0
Key = tuple[str, str, str]


class RefreshedOffer(Offer):
    """An offer whose price was read from its vendor, with the address, the raw SKU or meter, and the time."""

    url: str
    sku: str
    fetched_at: datetime

    @property
    def key(self) -> Key:
        """Instance type, region and purchase option."""
        return (self.instance_type, self.region, self.purchase)


@dataclass(frozen=True, slots=True)
class DatedPrice:
    """One row of the history; the fields are the columns, as text."""

    as_of: str
    instance_type: str
    region: str
    purchase: str
    usd_per_hour: str
    url: str
    sku: str
    fetched_at: str

    @property
    def key(self) -> Key:
        """Instance type, region and purchase option."""
        return (self.instance_type, self.region, self.purchase)


@dataclass(frozen=True, slots=True)
class Store:
    """The refreshed prices in a folder; a folder that is not there is an empty store."""

    folder: Path

    @property
    def providers(self) -> tuple[str, ...]:
        """Providers with refreshed prices."""
        return tuple(sorted(file.stem for file in (self.folder / "prices").glob("*.csv")))

    def path(self, part: str, provider: str) -> Path:
        """Return the file of a provider: of `prices`, `previous`, `history` or (JSON) `refresh`."""
        return self.folder / part / f"{provider}.{'json' if part == 'refresh' else 'csv'}"

    def offers(self, provider: str, *, part: str = "prices") -> tuple[RefreshedOffer, ...]:
        """Return the prices that hold now, or held before (`previous`); CatalogError when a file is damaged."""
        path = self.path(part, provider)
        return tuple(_offer(path, provider, line, cells) for line, cells in _rows(path, STORE_COLUMNS))

    def history(self, provider: str) -> tuple[DatedPrice, ...]:
        """Return every price ever read, in the order in which it was."""
        path = self.path("history", provider)
        return tuple(DatedPrice(**cells) for _, cells in _rows(path, HISTORY_COLUMNS))

    def table(self, part: str, provider: str, columns: Sequence[str]) -> list[dict[str, str]]:
        """Return the rows of another table of a provider (`interruption`); none when it is not there."""
        return [cells for _, cells in _rows(self.path(part, provider), columns)]

    def write_table(
        self, part: str, provider: str, columns: Sequence[str], rows: Iterable[Sequence[str]]
    ) -> None:
        """Replace another table of a provider, at once."""
        _replace(self.path(part, provider), _csv(columns, rows))

    def report(self, provider: str) -> Mapping[str, Any]:
        """Return how the last refresh went; empty when there was none."""
        path = self.path("refresh", provider)
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def write(self, provider: str, offers: Iterable[RefreshedOffer]) -> None:
        """Replace the prices of a provider, at once, after their changes went into the history."""
        offers = sorted(offers, key=lambda offer: offer.key)
        history = self.history(provider)
        changes = new_history(history, offers)
        if changes:
            _replace(self.path("history", provider), _csv(HISTORY_COLUMNS, map(_cells, (*history, *changes))))
            current = self.path("prices", provider)
            if current.is_file():
                _replace(self.path("previous", provider), current.read_text(encoding="utf-8"))
        _replace(self.path("prices", provider), _csv(STORE_COLUMNS, map(_offer_cells, offers)))

    def write_report(self, provider: str, report: Mapping[str, Any]) -> None:
        """Replace the report on the last refresh of a provider."""
        text = json.dumps(report, indent=1, ensure_ascii=False, default=str) + "\n"
        _replace(self.path("refresh", provider), text)

    @contextmanager
    def locked(self, provider: str) -> Iterator[None]:
        """Keep other processes from refreshing the same provider; GpuplanError when one goes on doing so."""
        from filelock import FileLock, Timeout

        folder = _made(self.folder / "refresh")
        try:
            with FileLock(folder / f".{provider}.lock", timeout=LOCK_WAIT_S):
                yield
        except Timeout as error:
            message = f"another process refreshes the prices of `{provider}` in {self.folder}"
            raise GpuplanError(message, hint="let it finish") from error


def new_history(history: Sequence[DatedPrice], offers: Iterable[RefreshedOffer]) -> list[DatedPrice]:
    """Return what the history does not say yet: offers whose price differs from the last that was read."""
    last = {row.key: row for row in history}
    return [
        DatedPrice(
            as_of=offer.price_as_of or "",
            instance_type=offer.instance_type,
            region=offer.region,
            purchase=offer.purchase,
            usd_per_hour=_text(offer.usd_per_hour),
            url=offer.url,
            sku=offer.sku,
            fetched_at=offer.fetched_at.isoformat(),
        )
        for offer in offers
        if offer.key not in last or last[offer.key].usd_per_hour != _text(offer.usd_per_hour)
    ]


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the lines of a CSV file with their numbers; none when it is not there; CatalogError when damaged."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogError([Finding(str(path), 1, "file", f"cannot be read: {error}")]) from error
    reader = csv.reader(io.StringIO(text, newline=""))
    if tuple(next(reader, ())) != tuple(columns):
        raise CatalogError([Finding(str(path), 1, "header", f"is not `{','.join(columns)}`")])
    for cells in reader:
        if len(cells) != len(columns):
            message = f"{len(cells)} cells where {len(columns)} are expected"
            raise CatalogError([Finding(str(path), reader.line_num, "columns", message)])
        yield reader.line_num, dict(zip(columns, cells, strict=True))


def _offer(path: Path, provider: str, line: int, cells: dict[str, str]) -> RefreshedOffer:
    """Return the offer of a line."""
    values: dict[str, Any] = {
        **cells,
        "provider": provider,
        "price_source": f"{cells['url']} ({cells['sku']})",
    }
    values |= {name: cells[name] or None for name in _NULLABLE}
    from pydantic import ValidationError

    try:
        return RefreshedOffer.read(values)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        field = str(detail["loc"][0]) if detail["loc"] else "row"
        raise CatalogError([Finding(str(path), line, field, detail["msg"].lower())]) from error


def _offer_cells(offer: RefreshedOffer) -> list[str]:
    return [_text(getattr(offer, column)) for column in STORE_COLUMNS]


def _cells(row: DatedPrice) -> list[str]:
    return [getattr(row, column) for column in HISTORY_COLUMNS]


def _text(value: Any) -> str:
    """Return a value as a cell: no exponents, no needless ``.0``."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, datetime):
        return value.isoformat()
    return format(value, "f") if hasattr(value, "as_tuple") else str(value)


def _csv(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return lines of CSV under a header."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return buffer.getvalue()


def _made(folder: Path) -> Path:
    """Return a folder that is there now; UsageError when it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the data folder `{folder}` cannot be made: {error.strerror}"
        raise UsageError(message, hint="set another with `GPUPLAN_DATA_DIR`") from error
    return folder


def _replace(path: Path, text: str) -> None:
    """Write a file that is on the disk afterwards; its folder is made where it is missing."""
    _made(path.parent)
    write_whole(path, text, durable=True)
