"""Hard laws of a catalog folder, as run by `gpuplan catalog check`: types, and what rows need to be priced.

Positive prices within bounds, known accelerators and regions, unique names and offers, dated sources, references
that resolve, and slices that count chips. The bounds are wide: they catch a wrong unit, not a surprising price.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

from .catalog import OPTIONAL_FILES, TABLES, find_price_files
from .catalog_files import (
    CatalogError,
    Finding,
    Located,
    Table,
    read_list_table,
    read_prices,
    read_rows,
    read_table,
    read_text_table,
)
from .costs import ANY_PROVIDER, COSTS_FILE, PriceMove, ProviderCost, read_regions
from .images import BEFORE_TURING
from .rows import (
    CPU,
    Accelerator,
    CpuFamily,
    CpuSeries,
    Image,
    MachineLinks,
    MachineNeed,
    NotebookPlan,
    NotebookRuntime,
    Offer,
    Provider,
    Row,
    UnitPrice,
    UnitRate,
    Wheel,
)

R = TypeVar("R", bound=Row)
T = TypeVar("T")
UNIQUE: tuple[tuple[type[Row], str], ...] = ((Accelerator, "name"), (CpuFamily, "family"), (Image, "name"))
MIN_USD_PER_DEVICE_HOUR, MAX_USD_PER_DEVICE_HOUR = Decimal("0.001"), Decimal(100)


@dataclass(frozen=True, slots=True)
class CatalogReport:
    """Findings in a catalog, ordered by file and line, and the number of rows checked."""

    findings: tuple[Finding, ...]
    accelerators: int
    offers: int
    providers: int


class _CollectingReader:
    """Reader of a catalog folder that collects unreadable rows as findings instead of stopping at the first."""

    def __init__(self, folder: Traversable) -> None:
        self.folder = folder
        self.findings: list[Finding] = []

    def attempt(self, read: Callable[[], T], otherwise: T) -> T:
        """Return the result of a reader; if it fails, add its findings and return a substitute."""
        try:
            return read()
        except CatalogError as error:
            self.findings += error.findings
            return otherwise

    def table(self, name: str) -> Table:
        """Read a TOML file; an empty table if it cannot be read."""
        table = self.attempt(lambda: read_table(self.folder, name), Table(name, ""))
        return table if self.attempt(lambda: table.data, None) is not None else Table(name, "")

    def entries(self, table: Table, key: str, read: Callable[[Table, str], dict[str, T]]) -> dict[str, T]:
        """Read a table of strings or lists; an empty one if it is malformed."""
        return self.attempt(lambda: read(table, key), {}) if table.text else {}

    def located(self, read: Callable[[], tuple[list[Located[R]], list[Finding]]]) -> list[Located[R]]:
        """Return the valid rows that are read; add findings for the others."""
        nothing: tuple[list[Located[R]], list[Finding]] = ([], [])
        rows, findings = self.attempt(read, nothing)
        self.findings += findings
        return rows

    def rows(self, model: type[R]) -> list[Located[R]]:
        """Return the valid rows of a type; add findings for the others."""
        file, array = TABLES[model]
        if file in OPTIONAL_FILES and not (self.folder / file).is_file():
            return []
        return self.located(lambda: read_rows(self.table(file), array, model))

    def prices(self) -> dict[str, list[Located[Offer]]]:
        """Return the valid offers of every price file, by provider; add findings for the others."""
        sources = self.entries(self.table("sources.toml"), "sources", read_text_table)
        prices, none = {}, list[Traversable]()
        for file in self.attempt(lambda: list(find_price_files(self.folder)), none):
            provider = file.name.removesuffix(".csv")
            prices[provider] = self.located(partial(read_prices, file, provider, sources))
        return prices


def check_catalog(folder: Traversable, *, today: date) -> CatalogReport:
    """Check every file of a folder with the files of the packaged catalog; dates after today are errors."""
    reader = _CollectingReader(folder)
    prices = reader.prices()
    offers = [offer for rows in prices.values() for offer in rows]
    accelerators, providers = reader.rows(Accelerator), reader.rows(Provider)
    known = {located.row.name: located.row for located in accelerators}
    by_name = {located.row.name: located.row for located in providers}
    found = [
        *_offer_findings(offers, known, by_name, today),
        *_name_findings(reader, set(known)),
        *_reference_findings(reader, set(by_name)),
        *_notebook_findings(reader, {CPU, *known}),
        *_coverage_findings(reader, providers, prices),
        *_image_findings(reader, {located.row.architecture for located in accelerators}),
        *_region_findings(reader, set(by_name), offers),
    ]
    for located in (row for model in TABLES for row in reader.rows(model)):
        days = {field: str(getattr(located.row, field, "")) for field in ("as_of", "read_on")}
        late = {field: day for field, day in days.items() if day and is_future(day, today)}
        found += [located.finding(field, f"{day} is in the future") for field, day in late.items()]
    for model, field in UNIQUE:
        found += _unique_name_findings(reader.rows(model), field)
    findings = sorted({*reader.findings, *found}, key=lambda f: (f.file, f.line, f.field))
    return CatalogReport(tuple(findings), len(accelerators), len(offers), len(prices))


def _offer_findings(
    offers: list[Located[Offer]], known: dict[str, Accelerator], providers: dict[str, Provider], today: date
) -> Iterator[Finding]:
    """Yield inconsistencies in offers."""
    seen: dict[tuple[str, str, str, str], Located[Offer]] = {}
    for offer in offers:
        row = offer.row
        yield from _price_findings(offer, today)
        accelerator = known.get(row.accelerator)
        if accelerator is None and row.accelerator != CPU:
            yield offer.finding("accelerator", f"`{row.accelerator}` is not in accelerators.toml")
        provider = providers.get(row.provider)
        if provider is not None and not re.fullmatch(provider.region, row.region):
            message = f"`{row.region}` does not match the region pattern of {provider.title}"
            yield offer.finding("region", message)
        first = seen.setdefault((row.provider, *row.key), offer)
        if first is not offer:
            yield offer.finding("instance_type", f"is the same offer as in line {first.line}")
        slice_name = re.match(r"tpu-\w+?-(\d+)(@|$)", row.instance_type)
        if slice_name and accelerator is not None and accelerator.slice_cores:
            chips = int(slice_name[1]) / accelerator.slice_cores
            if row.devices != chips:
                yield offer.finding("devices", f"is {row.devices:g}: this slice has {chips:g} chips")


def _price_findings(offer: Located[Offer], today: date) -> Iterator[Finding]:
    """Yield a price that is not positive or out of bounds, and one without a source or a past date."""
    row = offer.row
    if row.usd_per_hour is not None and row.usd_per_hour <= 0:
        yield offer.finding("usd_per_hour", "is not above 0; leave it empty when no price is published")
    if row.usd_per_hour:
        per_device = row.usd_per_hour / Decimal(str(row.devices))
        if not MIN_USD_PER_DEVICE_HOUR <= per_device <= MAX_USD_PER_DEVICE_HOUR:
            yield offer.finding("usd_per_hour", f"is {per_device:.4g} USD per device and hour: out of bounds")
    if not row.price_source:
        yield offer.finding("source", "is missing")
    if not row.price_as_of:
        yield offer.finding("as_of", "is missing")
    elif is_future(row.price_as_of, today):
        yield offer.finding("as_of", f"{row.price_as_of} is in the future")


def _unique_name_findings(rows: Iterable[Located[Any]], field: str) -> Iterator[Finding]:
    """Yield rows whose name is that of another row, ignoring case."""
    seen: dict[str, int] = {}
    for located in rows:
        name = str(getattr(located.row, field)).lower()
        if seen.setdefault(name, located.line) != located.line:
            yield located.finding(field, f"is the same as in line {seen[name]}")


def is_future(partial: str, today: date) -> bool:
    """Return whether a year, month, day or range of years begins after today.

    Example:
        >>> is_future("2026-08", date(2026, 8, 1)), is_future("2019-2023", date(2026, 8, 1))
        (False, False)
    """
    if re.fullmatch(r"\d{4}-\d{4}", partial):
        partial = partial[:4]
    return partial > today.isoformat()[: len(partial)]


def _name_findings(reader: _CollectingReader, known: set[str]) -> Iterator[Finding]:
    """Yield aliases that name no row, shadow a row, or are also that of a family."""
    table = reader.table("accelerators.toml")
    aliases = reader.entries(table, "aliases", read_text_table)
    families = reader.entries(table, "family", read_list_table)
    for alias, name in aliases.items():
        if name not in known:
            yield Finding(table.file, table.line_of_key(alias), alias, f"means `{name}`, which is not a row")
        if alias in known or alias in families:
            yield Finding(table.file, table.line_of_key(alias), alias, "has another meaning as well")
    for name, candidates in families.items():
        if name in known or len(candidates) < 2 or not set(candidates) <= known:
            message = "does not list two or more rows, or is a row itself"
            yield Finding(table.file, table.line_of_key(name), name, message)


def _reference_findings(reader: _CollectingReader, providers: set[str]) -> Iterator[Finding]:
    """Yield rows about unknown providers or CPU families, and links that say nothing."""
    families = {host.row.family for host in reader.rows(CpuFamily)}
    for series in reader.rows(CpuSeries):
        if series.row.host not in families:
            yield series.finding("host", f"unknown family `{series.row.host}`")
    placed: tuple[type[Any], ...] = (MachineLinks, Image, MachineNeed, ProviderCost, PriceMove)
    for located in (row for model in placed for row in reader.rows(model)):
        if located.row.provider not in (
            {*providers, ANY_PROVIDER} if isinstance(located.row, PriceMove) else providers
        ):
            yield located.finding("provider", f"`{located.row.provider}` has no row in providers.toml")
    for links in reader.rows(MachineLinks):
        if links.row.topology is None and links.row.network_gbit_per_s is None:
            yield links.finding("topology", "the row has neither a topology nor a network rate")


def _image_findings(reader: _CollectingReader, generations: set[str]) -> Iterator[Finding]:
    """Yield images and wheels for unknown accelerators, and images whose driver does not serve theirs."""
    images = reader.rows(Image)
    serving: list[Located[Any]] = [*images, *reader.rows(Wheel)]
    for served in serving:
        for name in sorted(set(served.row.serves) - generations):
            yield served.finding("serves", f"`{name}` is no architecture of accelerators.toml")
    for image in images:
        if image.row.driver == "open" and (old := sorted(BEFORE_TURING & set(image.row.serves))):
            yield image.finding("serves", f"an open driver does not serve {', '.join(old)}")


def _notebook_findings(reader: _CollectingReader, known: set[str]) -> Iterator[Finding]:
    """Yield inconsistencies in hosted notebooks."""
    plans, runtimes = reader.rows(NotebookPlan), reader.rows(NotebookRuntime)
    plan_names = {(p.row.provider, p.row.plan) for p in plans}
    runtime_names = {(r.row.provider, r.row.runtime) for r in runtimes}
    for runtime in runtimes:
        if runtime.row.accelerator not in known:
            yield runtime.finding("accelerator", f"`{runtime.row.accelerator}` is not in accelerators.toml")
        for name in runtime.row.plans:
            if (runtime.row.provider, name) not in plan_names:
                yield runtime.finding("plans", f"`{name}` is not a plan of `{runtime.row.provider}`")
    free = {(p.row.provider, p.row.plan) for p in plans if p.row.free}
    for price in reader.rows(UnitPrice):
        if (price.row.provider, price.row.plan) not in plan_names - free:
            yield price.finding("plan", f"`{price.row.plan}` is not a paid plan of `{price.row.provider}`")
    for rate in reader.rows(UnitRate):
        if (rate.row.provider, rate.row.runtime) not in runtime_names:
            yield rate.finding("runtime", f"`{rate.row.runtime}` is not a runtime of `{rate.row.provider}`")


def _coverage_findings(
    reader: _CollectingReader, providers: list[Located[Provider]], prices: dict[str, list[Located[Offer]]]
) -> Iterator[Finding]:
    """Yield providers without an offer and price files without a provider."""
    notebooks = {runtime.row.provider for runtime in reader.rows(NotebookRuntime)}
    for provider in providers:
        if not prices.get(provider.row.name) and provider.row.name not in notebooks:
            yield provider.finding("name", f"`{provider.row.name}` has no offer: no prices and no notebook")
    names = {provider.row.name for provider in providers}
    for name in prices:
        if name not in names:
            yield Finding(f"prices/{name}.csv", 1, "provider", f"`{name}` has no row in providers.toml")


def _region_findings(
    reader: _CollectingReader, providers: set[str], offers: list[Located[Offer]]
) -> Iterator[Finding]:
    """Yield regions of no provider, and offers in none; a folder without costs uses the packaged regions."""
    if not (reader.folder / COSTS_FILE).is_file():
        return
    sources = reader.entries(reader.table(COSTS_FILE), "region_sources", read_text_table)
    rows = reader.located(lambda: read_regions(reader.folder, sources)) if sources else []
    for region in rows:
        if region.row.provider not in providers:
            yield region.finding("provider", f"`{region.row.provider}` has no row in providers.toml")
    regions = {(row.row.provider, row.row.region) for row in rows}
    clouds = {provider for provider, _ in regions}
    for offer in offers:
        if offer.row.provider in clouds and (offer.row.provider, offer.row.region) not in regions:
            yield offer.finding("region", f"`{offer.row.region}` is not in regions.csv")
