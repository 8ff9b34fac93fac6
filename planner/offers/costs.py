"""Costs besides machine hours: provider fees, assumed durations, power and carbon data of regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from datetime import date
from decimal import Decimal
from importlib.resources.abc import Traversable
from typing import Annotated, Literal

from ..records import Frozen
from .catalog_files import CsvForm, Finding, Located, read_csv, read_text
from .clouds import HYPERSCALERS, NOTEBOOKS, OWNED
from .rows import Confidence, Constraint, PartialDate, Purchase, Row

COSTS_FILE, REGIONS_FILE = "costs.toml", "regions.csv"
HostKind = Literal["vm", "tpu", "marketplace", "notebook", "local"]
ANY_PROVIDER = "any"
NotNegative = Annotated[float, Constraint(ge=0)]
NotNegativeDecimal = Annotated[Decimal, Constraint(ge=0)]


class ProviderCost(Row):
    """Fees of a provider besides the machine price, and power figures of its data centers. None means unknown."""

    provider: str
    minimum_billed_s: NotNegative | None = None
    disk_usd_per_gb_month: NotNegativeDecimal | None = None
    egress_usd_per_gb: NotNegativeDecimal | None = None
    vcpu_idle_w: NotNegative | None = None
    vcpu_full_w: NotNegative | None = None
    pue: Annotated[float, Constraint(ge=1)] | None = None
    minimum_source: str = ""
    disk_source: str
    egress_source: str
    as_of: PartialDate
    confidence: Confidence


class CostAssumption(Row):
    """An assumed quantity as low, mid and high value; low is the fast end (a rate falls where a time rises)."""

    key: str
    place: Literal["vm", "tpu", "marketplace", "notebook", "local", "any"]
    low: NotNegative
    mid: NotNegative
    high: NotNegative
    basis: Literal["measured", "published", "assumed", "given"]
    source: str

    @property
    def bounds(self) -> tuple[float, float, float]:
        """The low, mid and high value."""
        return (self.low, self.mid, self.high)


class PriceMove(Row):
    """Rate at which the prices of a provider and purchase option move; `any` is for providers without two dates.

    ``log_per_sqrt_year`` is the 80 % quantile of |ln(later price / earlier price)| / sqrt(years between), over
    ``pairs`` of dates of ``machines``.
    """

    provider: str
    purchase: Purchase
    log_per_sqrt_year: NotNegative
    pairs: Annotated[int, Constraint(gt=0)]
    machines: Annotated[int, Constraint(gt=0)]
    since: date
    until: date
    source: str


class Region(Row):
    """Country of a region and carbon intensity of its grid. None means unknown."""

    provider: str
    region: str
    country: Annotated[str, Constraint(pattern=r"^[A-Z]{2}$")]  # ISO 3166-1
    g_co2_per_kwh: NotNegative | None
    source: str


class Costs(Frozen):
    """All rows on fees, assumptions and regions."""

    providers: Mapping[str, ProviderCost] = field(repr=False)  # by name
    # by key and kind of host; ``any`` applies to every kind
    assumptions: Mapping[tuple[str, str], CostAssumption] = field(repr=False)
    regions: Mapping[tuple[str, str], Region] = field(repr=False)  # by provider and region
    # rates at which prices move, by provider and purchase option
    moves: Mapping[tuple[str, str], PriceMove] = field(repr=False, default_factory=dict)

    def find_move(self, provider: str, purchase: str) -> PriceMove | None:
        """Return the rate at which such prices move: the provider's row, or that of `any`; None without one."""
        return self.moves.get((provider, purchase)) or self.moves.get((ANY_PROVIDER, purchase))


def classify_host(provider: str, instance_type: str, *, kind: str | None) -> HostKind:
    """Return the kind of host behind an offer; ``kind`` is that of its accelerator.

    Example:
        >>> classify_host("gcp", "v3-8", kind="tpu"), classify_host("vast", "1x Tesla T4", kind="gpu")
        ('tpu', 'marketplace')
    """
    if provider in OWNED:
        return "local"
    if provider in NOTEBOOKS:
        return "notebook"
    if provider not in HYPERSCALERS:
        return "marketplace"
    return "tpu" if kind == "tpu" else "vm"


def read_regions(folder: Traversable, sources: Mapping[str, str]) -> tuple[list[Located[Region]], list[Finding]]:
    """Return the rows of the regions file and the findings on all others; `sources` are those of the grids."""
    columns = [one.name for one in fields(Region)]
    form = CsvForm(REGIONS_FILE, columns, sources={**sources, "": ""}, keys_of="[region_sources]")
    rows, findings = read_csv(Region, read_text(folder / REGIONS_FILE, REGIONS_FILE), form)
    unread = [one for one in rows if not one.row.source and one.row.g_co2_per_kwh is not None]
    return rows, findings + [one.finding("source", "`` is not a key of [region_sources]") for one in unread]
