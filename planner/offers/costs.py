"""What a run costs beside its hours: what providers charge on top, what is assumed, and where regions lie."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import field
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Any, Literal

from ..frozen import Frozen
from .files import (
    CatalogError,
    Finding,
    Located,
    Table,
    read_rows,
    read_table,
    read_text_table,
    stop_at_first,
    valid_rows,
)
from .kept import kept_rows
from .rows import Checked, Confidence, PartialDate, Row

__all__ = [
    "COSTS_FILE", "Assumption", "Costs", "Place", "ProviderCost", "Region", "load_costs", "place_of",
    "read_costs",
]  # fmt: skip

COSTS_FILE, REGIONS_FILE = "costs.toml", "regions.csv"
Place = Literal["vm", "tpu", "marketplace", "notebook", "local"]
MARKETPLACES = frozenset({"lambda", "runpod", "vast"})
NOTEBOOKS = frozenset({"colab", "kaggle"})
OWNED = frozenset({"local", "own"})
NotNegative = Annotated[float, Checked(ge=0)]
Money = Annotated[Decimal, Checked(ge=0)]


class ProviderCost(Row):
    """What a provider charges beside the machine, and how its houses use power. None means unknown."""

    provider: str
    minimum_billed_s: NotNegative | None = None
    disk_usd_per_gb_month: Money | None = None
    egress_usd_per_gb: Money | None = None
    vcpu_idle_w: NotNegative | None = None
    vcpu_full_w: NotNegative | None = None
    pue: Annotated[float, Checked(ge=1)] | None = None
    minimum_source: str = ""
    disk_source: str
    egress_source: str
    as_of: PartialDate
    confidence: Confidence


class Assumption(Row):
    """One assumed number at the soonest, the usual and the latest; a rate falls where a time rises."""

    key: str
    place: Literal["vm", "tpu", "marketplace", "notebook", "local", "any"]
    low: NotNegative
    mid: NotNegative
    high: NotNegative
    basis: Literal["measured", "published", "assumed", "given"]
    source: str

    @property
    def bounds(self) -> tuple[float, float, float]:
        """The three numbers."""
        return (self.low, self.mid, self.high)


class Region(Row):
    """Where a region lies, and how dirty its electricity is. None means unknown."""

    provider: str
    region: str
    country: Annotated[str, Checked(pattern=r"^[A-Z]{2}$")]  # ISO 3166-1
    g_co2_per_kwh: NotNegative | None
    source: str


class Costs(Frozen):
    """All rows about what is charged and assumed.

    Args:
        providers: By name.
        assumptions: By key and place; ``any`` is for every place.
        regions: By provider and region.
    """

    providers: Mapping[str, ProviderCost] = field(repr=False)
    assumptions: Mapping[tuple[str, str], Assumption] = field(repr=False)
    regions: Mapping[tuple[str, str], Region] = field(repr=False)


def place_of(provider: str, instance_type: str, *, kind: str | None) -> Place:
    """Return what sort of place an offer is; ``kind`` is its accelerator's.

    Example:
        >>> place_of("gcp", "v3-8", kind="tpu"), place_of("vast", "vast:1xK80", kind="gpu")
        ('tpu', 'marketplace')
    """
    if provider in OWNED:
        return "local"
    if provider in NOTEBOOKS:
        return "notebook"
    if provider in MARKETPLACES:
        return "marketplace"
    return "tpu" if kind == "tpu" else "vm"


def load_costs(folder: Traversable | None = None) -> Costs:
    """Return the rows of a catalog folder; a folder without them gets those that come with gpuplan.

    CatalogError when a file cannot be read as it is.
    """
    if folder is None or not (folder / COSTS_FILE).is_file():
        return _packaged_costs()
    return _of_folder(folder)


def read_costs(folder: Traversable) -> tuple[list[Located[Any]], list[Finding]]:
    """Return every row that is as it should be, and what is wrong with the others, for `catalog check`."""
    table = read_table(folder, COSTS_FILE)
    providers, provider_findings = read_rows(table, "provider_cost", ProviderCost)
    assumptions, assumption_findings = read_rows(table, "assumption", Assumption)
    regions, region_findings = _read_regions(folder, read_text_table(table, "region_sources"))
    return [*providers, *assumptions, *regions], [*provider_findings, *assumption_findings, *region_findings]


def _of_folder(folder: Traversable) -> Costs:
    table = read_table(folder, COSTS_FILE)
    return Costs(
        providers={row.provider: row for row in valid_rows(table, "provider_cost", ProviderCost)},
        assumptions={(row.key, row.place): row for row in valid_rows(table, "assumption", Assumption)},
        regions={(row.provider, row.region): row for row in _regions(folder, table)},
    )


def _regions(folder: Traversable, table: Table) -> tuple[Region, ...]:
    """Return the rows of the regions file; CatalogError when one is broken."""

    def read() -> Iterator[Region]:
        sources = read_text_table(table, "region_sources")
        return (located.row for located in stop_at_first(*_read_regions(folder, sources)))

    return kept_rows(Region, _regions_text(folder), table.text, make=read)


def _regions_text(folder: Traversable) -> str:
    """Return the regions file; CatalogError when there is none."""
    file = folder / REGIONS_FILE
    if not file.is_file():
        raise CatalogError([Finding(REGIONS_FILE, 1, "file", "is missing")])
    return file.read_text(encoding="utf-8")


def _read_regions(
    folder: Traversable, sources: Mapping[str, str]
) -> tuple[list[Located[Region]], list[Finding]]:
    """Return the rows of the regions file with their lines, the full text of each source in place of its key."""
    from pydantic import ValidationError

    rows, findings = [], []
    for line, cells in _lines(_regions_text(folder)):
        key = cells.pop("source")
        if key not in sources and cells["g_co2_per_kwh"] is not None:
            findings.append(Finding(REGIONS_FILE, line, "source", f"`{key}` is no key of [region_sources]"))
            continue
        try:
            row = Region.read({**cells, "source": sources.get(key, "")})
            rows.append(Located(row, REGIONS_FILE, line))
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            field = ".".join(map(str, detail["loc"])) or "row"
            findings.append(Finding(REGIONS_FILE, line, field, detail["msg"].lower()))
    return rows, findings


def _lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each line of the regions file by column; an empty intensity is unknown."""
    reader = csv.DictReader(io.StringIO(text, newline=""))
    for cells in reader:
        yield reader.line_num, {**cells, "g_co2_per_kwh": cells.get("g_co2_per_kwh") or None}


@lru_cache(maxsize=1)
def _packaged_costs() -> Costs:
    return _of_folder(files("gpuplan.catalog"))
