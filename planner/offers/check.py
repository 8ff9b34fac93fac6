"""All consistency checks of a catalog folder, as run by `gpuplan catalog check` and the data tests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from importlib.resources.abc import Traversable
from typing import TypeVar

from . import invariants, price_laws
from .catalog import LINKS_FILE, find_price_files
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
from .costs import ANY_PROVIDER, COSTS_FILE, PriceMove, ProviderCost, Region, read_costs
from .rows import (
    CPU,
    Accelerator,
    CpuFamily,
    CpuSeries,
    MachineLinks,
    NotebookPlan,
    NotebookRuntime,
    Offer,
    Provider,
    Row,
    UnitPrice,
    UnitRate,
)

R = TypeVar("R", bound=Row)
DatedRow = TypeVar("DatedRow", NotebookPlan, NotebookRuntime, UnitPrice, UnitRate)


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

    def table(self, name: str) -> Table:
        """Read a TOML file; if it cannot be read, add a finding and return an empty table."""
        try:
            table = read_table(self.folder, name)
            _ = table.data  # parse now, so that invalid TOML is reported here
            return table
        except CatalogError as error:
            self.findings += error.findings
            return Table(name, "")

    def texts(self, table: Table, key: str) -> dict[str, str]:
        """Read a table of strings; if it is malformed, add a finding and return an empty table."""
        try:
            return read_text_table(table, key)
        except CatalogError as error:
            self.findings += error.findings if table.text else ()
            return {}

    def lists(self, table: Table, key: str) -> dict[str, tuple[str, ...]]:
        """Read a table of string lists; if it is malformed, add a finding and return an empty table."""
        try:
            return read_list_table(table, key)
        except CatalogError as error:
            self.findings += error.findings
            return {}

    def rows(self, table: Table, array: str, model: type[R]) -> list[Located[R]]:
        """Read the valid rows of an array; add findings for the others."""
        rows, findings = read_rows(table, array, model)
        self.findings += findings
        return rows

    def prices(self, sources: dict[str, str]) -> dict[str, list[Located[Offer]]]:
        """Read the offers of every price file, by provider."""
        prices: dict[str, list[Located[Offer]]] = {}
        try:
            for file in find_price_files(self.folder):
                provider = file.name.removesuffix(".csv")
                prices[provider], findings = read_prices(file, provider, sources)
                self.findings += findings
        except CatalogError as error:
            self.findings += error.findings
        return prices


def check_catalog(folder: Traversable, *, today: date) -> CatalogReport:
    """Check every file of a catalog folder.

    Args:
        folder: A folder with the same files as the packaged catalog.
        today: The current date; later dates of reading are errors.
    """
    reader = _CollectingReader(folder)
    source_table = reader.table("sources.toml")
    sources = reader.texts(source_table, "sources")
    prices = reader.prices(sources)
    offers = [offer for rows in prices.values() for offer in rows]
    accelerator_table = reader.table("accelerators.toml")
    accelerators = reader.rows(accelerator_table, "accelerator", Accelerator)
    known = {located.row.name for located in accelerators}
    providers = reader.rows(reader.table("providers.toml"), "provider", Provider)
    found = [
        *_source_findings(source_table, sources),
        *_offer_findings(offers, known | {CPU}, {p.row.name: p.row for p in providers}, today),
        *_accelerator_findings(accelerators, today),
        *_name_findings(accelerator_table, reader, known),
        *_host_findings(reader, today),
        *_notebook_findings(reader, known | {CPU}, today),
        *_coverage_findings(reader, providers, prices),
        *_links_findings(reader, {p.row.name for p in providers}, today),
        *_cost_findings(folder, {p.row.name for p in providers}, offers),
    ]
    findings = sorted({*reader.findings, *found}, key=lambda f: (f.file, f.line, f.field))
    return CatalogReport(tuple(findings), len(accelerators), len(offers), len(prices))


def _offer_findings(
    offers: list[Located[Offer]], known: set[str], providers: dict[str, Provider], today: date
) -> Iterator[Finding]:
    """Yield inconsistencies in offers."""
    yield from invariants.check_price_is_positive(offers)
    yield from invariants.check_price_bounds(offers)
    yield from invariants.check_accelerator_is_known(offers, known)
    yield from invariants.check_no_duplicate_offers(offers)
    yield from invariants.check_rows_are_sorted(offers)
    yield from invariants.check_region_format(offers, providers)
    yield from invariants.check_machine_size(offers)
    yield from invariants.check_tpu_slices_count_chips(offers)
    yield from invariants.check_spot_not_above_on_demand(offers)
    yield from invariants.check_source_is_present(offers)
    yield from invariants.check_date_not_in_future(offers, today)
    yield from price_laws.check_spot_share(offers)
    yield from price_laws.check_no_exact_tenths(offers)
    yield from price_laws.check_active_dates_have_a_day(offers)
    yield from price_laws.check_names_are_the_vendors(offers, providers)
    yield from price_laws.check_chip_price_across_regions(offers)
    yield from price_laws.check_spot_price_across_regions(offers)
    yield from price_laws.check_chip_price_across_vendors(offers)
    yield from price_laws.check_chips_are_ordered_by_price(offers)


def _source_findings(table: Table, sources: dict[str, str]) -> Iterator[Finding]:
    """Yield sources that are not an address."""
    for key, source in sources.items():
        if not re.match(r"https?://\S+", source):
            yield Finding(table.file, table.line_of_key(key), key, "does not begin with an address")


def _accelerator_findings(accelerators: list[Located[Accelerator]], today: date) -> Iterator[Finding]:
    """Yield inconsistencies in accelerators."""
    yield from invariants.check_names_are_unique(accelerators)
    yield from invariants.check_bandwidth_and_memory(accelerators)
    yield from invariants.check_peak_bounds(accelerators)
    yield from invariants.check_peaks_are_ordered(accelerators)
    yield from invariants.check_source_is_an_address(accelerators)
    yield from invariants.check_source_names_no_bare_commit(accelerators)
    for accelerator in accelerators:
        if accelerator.row.read_on > today:
            yield accelerator.finding("read_on", f"{accelerator.row.read_on} is in the future")


def _name_findings(table: Table, reader: _CollectingReader, known: set[str]) -> Iterator[Finding]:
    """Yield aliases that name no row, shadow a row, or are also ambiguous."""
    aliases = reader.texts(table, "aliases")
    ambiguous = reader.lists(table, "ambiguous")
    for alias, name in aliases.items():
        if name not in known:
            yield Finding(table.file, table.line_of_key(alias), alias, f"means `{name}`, which is not a row")
        if alias in known or alias in ambiguous:
            yield Finding(table.file, table.line_of_key(alias), alias, "has another meaning as well")
    for name, candidates in ambiguous.items():
        if name in known or len(candidates) < 2 or not set(candidates) <= known:
            message = "does not list two or more rows, or is a row itself"
            yield Finding(table.file, table.line_of_key(name), name, message)


def _host_findings(reader: _CollectingReader, today: date) -> Iterator[Finding]:
    """Yield inconsistencies in CPU families."""
    table = reader.table("hosts.toml")
    hosts = reader.rows(table, "host", CpuFamily)
    yield from invariants.check_names_are_unique(hosts)
    yield from invariants.check_source_names_no_bare_commit(hosts)
    for host in hosts:
        if not 0.5 <= host.row.all_core_turbo_ghz <= 7:
            yield host.finding("all_core_turbo_ghz", f"is {host.row.all_core_turbo_ghz:g}: outside 0.5 to 7")
        if host.row.read_on > today:
            yield host.finding("read_on", f"{host.row.read_on} is in the future")
    families = {host.row.family for host in hosts}
    for series in reader.rows(table, "series", CpuSeries):
        if series.row.host not in families:
            yield series.finding("host", f"unknown family `{series.row.host}`")


def _links_findings(reader: _CollectingReader, providers: set[str], today: date) -> Iterator[Finding]:
    """Yield inconsistencies in links.toml, which is optional."""
    if not (reader.folder / LINKS_FILE).is_file():
        return
    links = reader.rows(reader.table(LINKS_FILE), "links", MachineLinks)
    yield from invariants.check_source_names_no_bare_commit(links)
    for row in links:
        if row.row.provider not in providers:
            yield row.finding("provider", f"`{row.row.provider}` has no row in providers.toml")
        if row.row.read_on > today:
            yield row.finding("read_on", f"{row.row.read_on} is in the future")
        if row.row.topology is None and row.row.network_gbit_per_s is None:
            yield row.finding("topology", "the row has neither a topology nor a network rate")


def _notebook_findings(reader: _CollectingReader, known: set[str], today: date) -> Iterator[Finding]:
    """Yield inconsistencies in hosted notebooks."""
    table = reader.table("notebooks.toml")
    plans = reader.rows(table, "plan", NotebookPlan)
    runtimes = reader.rows(table, "runtime", NotebookRuntime)
    prices = reader.rows(table, "unit_price", UnitPrice)
    rates = reader.rows(table, "rate", UnitRate)
    plan_names = {(p.row.provider, p.row.plan) for p in plans}
    runtime_names = {(r.row.provider, r.row.runtime) for r in runtimes}
    for runtime in runtimes:
        if runtime.row.accelerator not in known:
            yield runtime.finding("accelerator", f"`{runtime.row.accelerator}` is not in accelerators.toml")
        for name in runtime.row.plans:
            if (runtime.row.provider, name) not in plan_names:
                yield runtime.finding("plans", f"`{name}` is not a plan of `{runtime.row.provider}`")
    free = {(p.row.provider, p.row.plan) for p in plans if p.row.free}
    for price in prices:
        if (price.row.provider, price.row.plan) not in plan_names - free:
            yield price.finding("plan", f"`{price.row.plan}` is not a paid plan of `{price.row.provider}`")
    for rate in rates:
        if (rate.row.provider, rate.row.runtime) not in runtime_names:
            yield rate.finding("runtime", f"`{rate.row.runtime}` is not a runtime of `{rate.row.provider}`")
    yield from _future_rows(plans, today)
    yield from _future_rows(runtimes, today)
    yield from _future_rows(prices, today)
    yield from _future_rows(rates, today)


def _future_rows(rows: Iterable[Located[DatedRow]], today: date) -> Iterator[Finding]:
    """Yield notebook rows dated in the future."""
    for located in rows:
        if invariants.is_future(located.row.as_of, today):
            yield located.finding("as_of", f"{located.row.as_of} is in the future")


def _coverage_findings(
    reader: _CollectingReader, providers: list[Located[Provider]], prices: dict[str, list[Located[Offer]]]
) -> Iterator[Finding]:
    """Yield providers without an offer and price files without a provider."""
    table = reader.table("notebooks.toml")
    notebooks = {runtime.row.provider for runtime in read_rows(table, "runtime", NotebookRuntime)[0]}
    for provider in providers:
        if not prices.get(provider.row.name) and provider.row.name not in notebooks:
            yield provider.finding("name", f"`{provider.row.name}` has no offer: no prices and no notebook")
    names = {provider.row.name for provider in providers}
    for name in prices:
        if name not in names:
            yield Finding(f"prices/{name}.csv", 1, "provider", f"`{name}` has no row in providers.toml")


def _cost_findings(
    folder: Traversable, providers: set[str], offers: list[Located[Offer]]
) -> Iterator[Finding]:
    """Yield inconsistencies in costs and regions; a folder without these files uses the packaged ones."""
    if not (folder / COSTS_FILE).is_file():
        return
    try:
        rows, findings = read_costs(folder)
    except CatalogError as error:
        yield from error.findings
        return
    yield from findings
    for located in rows:
        if isinstance(located.row, ProviderCost | Region) and located.row.provider not in providers:
            yield located.finding("provider", f"`{located.row.provider}` has no row in providers.toml")
        if isinstance(located.row, PriceMove) and located.row.provider not in providers | {ANY_PROVIDER}:
            yield located.finding("provider", f"`{located.row.provider}` has no row in providers.toml")
    known = {(row.row.provider, row.row.region) for row in rows if isinstance(row.row, Region)}
    clouds = {provider for provider, _ in known}
    for offer in offers:
        if offer.row.provider in clouds and (offer.row.provider, offer.row.region) not in known:
            yield offer.finding("region", f"`{offer.row.region}` is not in regions.csv")
