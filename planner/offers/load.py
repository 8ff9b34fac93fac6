"""The catalog as one object: the packaged one, or a user's folder with the same files.

Each part is read when it is first asked for, and kept: listing accelerators reads no price.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from .costs import Costs, load_costs
from .cpu import cpu_accelerator, host_of, unknown_cpu
from .files import (
    CatalogError,
    Finding,
    Table,
    read_list_table,
    read_table,
    read_text_table,
    valid_prices,
    valid_rows,
    valid_table,
)
from .names import Names
from .notebooks import Notebooks, notebook_offers, read_notebooks
from .own import machine_offers, with_committed_prices
from .rows import CPU, Accelerator, Host, HostSeries, MachineLinks, Offer, Provider

if TYPE_CHECKING:
    from ..settings import Settings
    from ..settings_own import Committed, Machine

__all__ = [
    "Catalog",
    "catalog_of",
    "device_of",
    "links_of",
    "load_catalog",
    "price_files",
    "resolve_accelerator",
]

GENERIC_HOST = "Generic AVX2"
LINKS_FILE = "links.toml"


@dataclass(frozen=True)
class Catalog:
    """What can be rented, and what it is made of. CatalogError (exit 2) from any part that is broken.

    Args:
        folder: Where the files are.
        refreshed: Where refreshed prices are kept; None: nowhere.
        machines: The user's own, among the offers as the provider ``own``.
        committed: Prices that the user has instead of those of the list.
        today: The day for which committed prices are looked up.
    """

    folder: Traversable
    refreshed: Path | None = None
    machines: tuple[Machine, ...] = ()
    committed: tuple[Committed, ...] = ()
    today: date = date.min

    @cached_property
    def accelerators(self) -> dict[str, Accelerator]:
        """All GPUs, TPUs and NPUs by name, with their other spellings; CPU hosts are not among them."""
        spellings: dict[str, list[str]] = {}
        for alias, name in valid_table(self._accelerator_table, "aliases", read_text_table).items():
            spellings.setdefault(name, []).append(alias)
        rows = valid_rows(self._accelerator_table, "accelerator", Accelerator)
        return {row.name: replace(row, aliases=tuple(spellings.get(row.name, ()))) for row in rows}

    @cached_property
    def names(self) -> Names:
        """Every spelling of every accelerator."""
        table = self._accelerator_table
        return Names(
            canonical=tuple(self.accelerators),
            aliases=valid_table(table, "aliases", read_text_table),
            ambiguous=valid_table(table, "ambiguous", read_list_table),
        )

    @cached_property
    def offers(self) -> tuple[Offer, ...]:
        """Every dated price, every notebook tier and the user's own machines; this one is not among them."""
        priced = tuple(
            offer
            for file in price_files(self.folder)
            for offer in valid_prices(file, file.name.removesuffix(".csv"), self.sources)
        )
        listed = self._with_refreshed(priced) + notebook_offers(self.notebooks)
        own = machine_offers(self.machines, self.names)
        return with_committed_prices(listed, self.committed, today=self.today) + own

    def _with_refreshed(self, packaged: tuple[Offer, ...]) -> tuple[Offer, ...]:
        """Return prices of the files with refreshed ones in their places."""
        if self.refreshed is None:
            return packaged
        from .refresh.overlay import with_refreshed
        from .refresh.store import Store

        return with_refreshed(packaged, Store(self.refreshed))

    @cached_property
    def hosts(self) -> dict[str, Host]:
        """All CPU families by name."""
        return {row.family: row for row in valid_rows(self._host_table, "host", Host)}

    @cached_property
    def host_series(self) -> tuple[HostSeries, ...]:
        """Which instance types run on which CPU family."""
        series = valid_rows(self._host_table, "series", HostSeries)
        for index, entry in enumerate(series):
            if entry.host not in self.hosts:
                line = self._host_table.line_of("series", index, "host")
                raise CatalogError([Finding("hosts.toml", line, "host", f"unknown family `{entry.host}`")])
        return series

    @cached_property
    def links(self) -> tuple[MachineLinks, ...]:
        """How the accelerators of instance types are joined; nothing in a folder that does not say."""
        if not (self.folder / LINKS_FILE).is_file():
            return ()
        return valid_rows(read_table(self.folder, LINKS_FILE), "links", MachineLinks)

    @cached_property
    def notebooks(self) -> Notebooks:
        """Plans, machines, unit prices and rates of hosted notebooks."""
        packaged = read_notebooks(read_table(self.folder, "notebooks.toml"))
        if self.refreshed is None:
            return packaged
        from .refresh.notebook_overlay import with_readings
        from .refresh.store import Store

        return with_readings(packaged, Store(self.refreshed))

    @cached_property
    def providers(self) -> dict[str, Provider]:
        """Who sells or gives machines, by name."""
        table = read_table(self.folder, "providers.toml")
        return {row.name: row for row in valid_rows(table, "provider", Provider)}

    @cached_property
    def sources(self) -> dict[str, str]:
        """Full text of every source by its key."""
        return valid_table(read_table(self.folder, "sources.toml"), "sources", read_text_table)

    @cached_property
    def costs(self) -> Costs:
        """What is charged and assumed beside the machines' hours."""
        return load_costs(self.folder)

    @cached_property
    def as_of(self) -> str:
        """Date of the newest price that is not $0: a year, a month or a day."""
        dates = (offer.price_as_of for offer in self.offers if offer.usd_per_hour and offer.price_as_of)
        return max(dates, default="unknown")

    @cached_property
    def _accelerator_table(self) -> Table:
        return read_table(self.folder, "accelerators.toml")

    @cached_property
    def _host_table(self) -> Table:
        return read_table(self.folder, "hosts.toml")


def load_catalog(folder: Path | None = None) -> Catalog:
    """Return the packaged catalog, or a user's folder with the same layout.

    UsageError when the folder does not exist; the parts report their own errors when they are read.
    """
    if folder is None:
        return _packaged_catalog()
    if not folder.is_dir():
        raise UsageError(f"no catalog folder `{folder}`", hint="give a folder with prices/ in it")
    return Catalog(folder)


def catalog_of(settings: Settings, *, today: date | None = None) -> Catalog:
    """Return the catalog that a user's settings ask for: theirs or the packaged one, with what is their own.

    Refreshed prices take their places in the packaged catalog, not in a user's. UsageError when their folder
    does not exist.
    """
    from ..files import data_folder

    catalog = load_catalog(settings.catalog_dir)
    folder = data_folder(settings.data_dir)
    is_there = any((folder / part).is_dir() for part in ("prices", "notebooks"))
    refreshed = folder if settings.catalog_dir is None and is_there else None
    if not (settings.machine or settings.committed or refreshed):
        return catalog
    return replace(
        catalog,
        refreshed=refreshed,
        machines=settings.machine,
        committed=settings.committed,
        today=today or date.today(),
    )


def resolve_accelerator(catalog: Catalog, name: str) -> Accelerator:
    """Return the accelerator that a name means; ``CPU`` gives a row that says nothing but its name.

    UsageError when the name is unknown (with near names) or has several meanings (with all of them).
    """
    canonical = catalog.names.resolve(name)
    if canonical == CPU:
        return unknown_cpu(catalog.hosts[GENERIC_HOST])
    return catalog.accelerators[canonical]


def device_of(catalog: Catalog, offer: Offer) -> Accelerator | None:
    """Return one whole accelerator of an offer; None for a CPU host whose family or size is unknown.

    An offer of ``devices`` < 1 has a share of it: memory and peaks are still those of the whole chip.
    """
    if offer.accelerator != CPU:
        return catalog.accelerators.get(offer.accelerator)
    host = host_of(offer, catalog.hosts, catalog.host_series)
    if host is None or offer.vcpus is None:
        return None
    return cpu_accelerator(host, offer.vcpus, offer.memory_gib)


def links_of(catalog: Catalog, offer: Offer) -> MachineLinks | None:
    """Return how the accelerators of an offer are joined: the first row that matches; None when none does."""
    for row in catalog.links:
        if row.provider == offer.provider and re.fullmatch(row.pattern, offer.instance_type):
            return row
    return None


def price_files(folder: Traversable) -> Iterator[Traversable]:
    """Yield the price files of a catalog in order of provider; CatalogError when the folder is missing."""
    prices = folder / "prices"
    if not prices.is_dir():
        raise CatalogError([Finding("prices", 1, "folder", "is missing")])
    yield from sorted((f for f in prices.iterdir() if f.name.endswith(".csv")), key=lambda file: file.name)


@lru_cache(maxsize=1)
def _packaged_catalog() -> Catalog:
    return Catalog(files("gpuplan.catalog"))
