"""The catalog as one object, packaged or a user's folder with the same files, and the selection of its offers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cached_property, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..errors import NoAnswerError, UsageError, near_names_hint
from ..settings import get_today, load_settings
from .aliases import AcceleratorNames
from .catalog_files import (
    CatalogError,
    Finding,
    Table,
    load_rows,
    read_list_table,
    read_prices,
    read_table,
    read_text_table,
    require_valid,
)
from .clouds import PROVIDER_ALIASES
from .costs import COSTS_FILE, CostAssumption, Costs, PriceMove, ProviderCost, read_regions
from .cpu import build_cpu_accelerator, build_unknown_cpu, find_offer_host
from .images import ImageTables
from .notebooks import NotebookTables, build_notebook_offers
from .rows import (
    CPU,
    Accelerator,
    AvailabilityRule,
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
    Status,
    UnitPrice,
    UnitRate,
    Wheel,
)
from .user_prices import apply_committed_prices, build_own_offers

if TYPE_CHECKING:
    from ..settings import Settings
    from ..settings_entries import CommittedPrice, OwnMachine


GENERIC_HOST = "Generic AVX2"
R = TypeVar("R", bound=Row)
LINKS_FILE, AVAILABILITY_FILE, IMAGES_FILE = "links.toml", "availability.toml", "images.toml"
# File and array of every type of row.
TABLES: Mapping[type[Row], tuple[str, str]] = {
    Accelerator: ("accelerators.toml", "accelerator"),
    Provider: ("providers.toml", "provider"),
    CpuFamily: ("hosts.toml", "host"),
    CpuSeries: ("hosts.toml", "series"),
    NotebookPlan: ("notebooks.toml", "plan"),
    NotebookRuntime: ("notebooks.toml", "runtime"),
    UnitPrice: ("notebooks.toml", "unit_price"),
    UnitRate: ("notebooks.toml", "rate"),
    MachineLinks: (LINKS_FILE, "links"),
    AvailabilityRule: (AVAILABILITY_FILE, "availability"),
    Image: (IMAGES_FILE, "image"),
    MachineNeed: (IMAGES_FILE, "machine"),
    Wheel: (IMAGES_FILE, "wheel"),
    ProviderCost: (COSTS_FILE, "provider_cost"),
    CostAssumption: (COSTS_FILE, "assumption"),
    PriceMove: (COSTS_FILE, "price_move"),
}
OPTIONAL_FILES = (LINKS_FILE, AVAILABILITY_FILE, IMAGES_FILE, COSTS_FILE)


@dataclass(frozen=True)
class Catalog:
    """Accelerators, offers and related data. Accessing a malformed part raises CatalogError (exit code 2)."""

    folder: Traversable  # folder of the catalog files
    refreshed: Path | None = None  # folder of refreshed prices; None if there is none
    machines: tuple[OwnMachine, ...] = ()  # the user's own machines, offered by the provider ``own``
    committed: tuple[CommittedPrice, ...] = ()  # committed prices that replace list prices
    today: date = date.min  # date at which committed prices must be valid

    @cached_property
    def accelerators(self) -> dict[str, Accelerator]:
        """All GPUs, TPUs and NPUs by name, with aliases; CPU hosts are excluded."""
        spellings: dict[str, list[str]] = {}
        for alias, name in read_text_table(self._table("accelerators.toml"), "aliases").items():
            spellings.setdefault(name, []).append(alias)
        rows = self._rows(Accelerator)
        return {row.name: replace(row, aliases=tuple(spellings.get(row.name, ()))) for row in rows}

    @cached_property
    def names(self) -> AcceleratorNames:
        """Names and aliases of every accelerator."""
        table = self._table("accelerators.toml")
        return AcceleratorNames(
            canonical=tuple(self.accelerators),
            aliases=read_text_table(table, "aliases"),
            families=read_list_table(table, "family"),
        )

    @cached_property
    def offers(self) -> tuple[Offer, ...]:
        """All machine prices, notebook tiers and the user's own machines; the local machine is excluded."""
        priced = tuple(
            offer
            for file in find_price_files(self.folder)
            for offer in require_valid(*read_prices(file, file.name.removesuffix(".csv"), self.sources))
        )
        if self.refreshed is not None:
            from .refreshed_prices import PriceStore, merge_refreshed

            priced = merge_refreshed(priced, PriceStore(self.refreshed))
        listed = priced + build_notebook_offers(self.notebooks)
        own = build_own_offers(self.machines, self.names)
        return apply_committed_prices(listed, self.committed, today=self.today) + own

    @cached_property
    def hosts(self) -> dict[str, CpuFamily]:
        """All CPU families by name."""
        return {row.family: row for row in self._rows(CpuFamily)}

    @cached_property
    def host_series(self) -> tuple[CpuSeries, ...]:
        """CPU families of instance types."""
        series = self._rows(CpuSeries)
        for index, entry in enumerate(series):
            if entry.host not in self.hosts:
                line = self._table("hosts.toml").line_of("series", index, "host")
                raise CatalogError([Finding("hosts.toml", line, "host", f"unknown family `{entry.host}`")])
        return series

    @cached_property
    def links(self) -> tuple[MachineLinks, ...]:
        """Interconnects of instance types; empty for a folder without links.toml."""
        return self._rows(MachineLinks)

    @cached_property
    def availability(self) -> tuple[AvailabilityRule, ...]:
        """Rules of what can be had; empty for a folder without availability.toml."""
        return self._rows(AvailabilityRule)

    @cached_property
    def images(self) -> ImageTables:
        """Images to launch with, and what machines and wheels need of them; for a folder without, the packaged."""
        if not (self.folder / IMAGES_FILE).is_file():
            return _packaged_catalog().images
        wheels = {row.name: row for row in self._rows(Wheel)}
        return ImageTables(self._rows(Image), self._rows(MachineNeed), wheels)

    @cached_property
    def notebooks(self) -> NotebookTables:
        """Plans, runtimes, unit prices and unit rates of hosted notebooks."""
        return NotebookTables(
            plans=self._rows(NotebookPlan),
            runtimes=self._rows(NotebookRuntime),
            unit_prices=self._rows(UnitPrice),
            rates=self._rows(UnitRate),
        )

    @cached_property
    def providers(self) -> dict[str, Provider]:
        """Providers by name."""
        return {row.name: row for row in self._rows(Provider)}

    @cached_property
    def sources(self) -> dict[str, str]:
        """Full text of every source by its key."""
        return read_text_table(self._table("sources.toml"), "sources")

    @cached_property
    def costs(self) -> Costs:
        """Fees, assumptions and regions; for a folder without, the packaged ones."""
        if not (self.folder / COSTS_FILE).is_file():
            return _packaged_catalog().costs
        sources = read_text_table(self._table(COSTS_FILE), "region_sources")
        regions = require_valid(*read_regions(self.folder, sources))
        return Costs(
            providers={row.provider: row for row in self._rows(ProviderCost)},
            assumptions={(row.key, row.place): row for row in self._rows(CostAssumption)},
            regions={(row.provider, row.region): row for row in regions},
            moves={(row.provider, row.purchase): row for row in self._rows(PriceMove)},
        )

    @cached_property
    def as_of(self) -> str:
        """Date of the newest price above $0: a year, a month or a day."""
        dates = (offer.price_as_of for offer in self.offers if offer.usd_per_hour and offer.price_as_of)
        return max(dates, default="unknown")

    def _rows(self, model: type[R]) -> tuple[R, ...]:
        """Return all rows of a type; none for a folder without an optional file."""
        file, array = TABLES[model]
        if file in OPTIONAL_FILES and not (self.folder / file).is_file():
            return ()
        return load_rows(self._table(file), array, model)

    @cached_property
    def _tables(self) -> dict[str, Table]:
        return {}

    def _table(self, file: str) -> Table:
        if file not in self._tables:
            self._tables[file] = read_table(self.folder, file)
        return self._tables[file]


def load_catalog(folder: Path | None = None) -> Catalog:
    """Load the packaged catalog, or a user's folder with the same layout.

    UsageError if the folder does not exist. Files are read, and their errors raised, on first access.
    """
    if folder is None:
        return _packaged_catalog()
    if not folder.is_dir():
        raise UsageError(f"no catalog folder `{folder}`", hint="give a folder with prices/ in it")
    return Catalog(folder)


def load_chosen_catalog() -> Catalog:
    """Load the catalog that the settings name, without the user's prices; a folder is read once."""
    return _load_once(load_settings().catalog_dir)


_load_once = lru_cache(maxsize=1)(load_catalog)


def find_chosen_accelerator(name: str) -> Accelerator | None:
    """Return the row of an accelerator in the catalog that the settings name; None without one, as for a CPU."""
    return load_chosen_catalog().accelerators.get(name)


def load_user_catalog(settings: Settings, *, today: date | None = None) -> Catalog:
    """Load the catalog selected by the settings, with the user's machines and committed prices.

    Refreshed prices replace those of the packaged catalog only, not those of a user's folder. UsageError if
    the user's folder does not exist.
    """
    from ..files import get_data_folder

    catalog = load_catalog(settings.catalog_dir)
    folder = get_data_folder(settings.data_dir)
    refreshed = folder if settings.catalog_dir is None and (folder / "prices").is_dir() else None
    if not (settings.machine or settings.committed or refreshed):
        return catalog
    return replace(
        catalog,
        refreshed=refreshed,
        machines=settings.machine,
        committed=settings.committed,
        today=today or get_today(),
    )


def resolve_accelerator(catalog: Catalog, name: str) -> Accelerator:
    """Return the accelerator with a given name or alias; ``CPU`` gives a row without figures.

    UsageError if the name is unknown (listing similar names) or that of a family (listing all of it).
    """
    canonical = catalog.names.resolve(name)
    if canonical == CPU:
        return build_unknown_cpu(catalog.hosts[GENERIC_HOST])
    return catalog.accelerators[canonical]


def find_device(catalog: Catalog, offer: Offer) -> Accelerator | None:
    """Return one whole accelerator of an offer; None for a CPU host of unknown family or size.

    For an offer with ``devices`` < 1, memory and peaks are still those of the whole chip.
    """
    if offer.accelerator != CPU:
        return catalog.accelerators.get(offer.accelerator)
    host = find_offer_host(offer, catalog.hosts, catalog.host_series)
    if host is None or offer.vcpus is None:
        return None
    return build_cpu_accelerator(host, offer.vcpus, offer.memory_gib)


def find_links(catalog: Catalog, offer: Offer) -> MachineLinks | None:
    """Return the interconnect of an offer's accelerators: the first matching row; None if there is none."""
    for row in catalog.links:
        if row.provider == offer.provider and re.fullmatch(row.pattern, offer.instance_type):
            return row
    return None


def find_image(
    catalog: Catalog, *, provider: str, instance_type: str, accelerator: str, name: str = ""
) -> tuple[Image | None, str]:
    """Return the image that serves a machine, or what the machine lacks; neither where the table knows nothing.

    The table knows nothing of TPU slices, of this computer, and of images that users bring.

    Args:
        catalog: Catalog with the table of images.
        provider, instance_type, accelerator: The machine.
        name: Name of the image; empty: the first that serves the machine.
    """
    known = catalog.accelerators.get(accelerator)
    if known is not None and known.kind == "tpu":
        return None, ""
    architecture = CPU if accelerator == CPU else known.architecture if known else ""
    images = [one for one in catalog.images.images if one.provider == provider and name in ("", one.name)]
    problems = [next(catalog.images.list_problems(one, instance_type, architecture), "") for one in images]
    served = next((one for one, problem in zip(images, problems, strict=True) if not problem), None)
    return served, "" if served else next(iter(problems), "")


def find_price_files(folder: Traversable) -> Iterator[Traversable]:
    """Yield the price files of a catalog sorted by provider; CatalogError if the folder is missing."""
    prices = folder / "prices"
    if not prices.is_dir():
        raise CatalogError([Finding("prices", 1, "folder", "is missing")])
    yield from sorted((f for f in prices.iterdir() if f.name.endswith(".csv")), key=lambda file: file.name)


@lru_cache(maxsize=1)
def _packaged_catalog() -> Catalog:
    return Catalog(files("gpuplan.catalog"))


PURCHASES = ("any", "on-demand", "spot")
UNAVAILABLE: tuple[Status, ...] = ("retired", "historical")  # listed, but no longer available


def sort_by_device_price(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Sort offers by price per device, cheapest first, unknown prices last; the sort is stable."""

    def key(offer: Offer) -> tuple[bool, Decimal]:
        usd = offer.usd_per_hour
        return usd is None, (usd or Decimal(0)) / Decimal(str(offer.devices))

    return tuple(sorted(offers, key=key))


def select_offers(
    offers: Sequence[Offer],
    *,
    accelerators: Sequence[str] = (),
    providers: Sequence[str] = (),
    regions: Sequence[str] = (),
    purchase: str = "any",
    devices: Sequence[float] = (),
    include_retired: bool = False,
    names: AcceleratorNames | None = None,
) -> tuple[Offer, ...]:
    """Return the offers that pass all filters, in their order; an empty filter passes every offer.

    Args:
        offers: Offers to filter.
        accelerators: Accelerator names, aliases or families.
        providers, regions: Names as in the offers, case-insensitive. An offer with region ``any`` (a
            notebook, a marketplace) passes only without a region filter.
        purchase: ``any``, ``on-demand`` or ``spot``.
        devices: Numbers of GPUs or TPU chips.
        include_retired: Include offers that are listed but no longer available.
        names: Accelerator names and aliases; by default those of the packaged catalog.

    UsageError for an unknown name (listing similar names). NoAnswerError (exit code 3) if no offer remains,
    naming the filter that removed the last one.
    """
    spellings = names or load_catalog().names
    wanted = {one for name in accelerators for one in spellings.resolve_all(name)}
    clouds = _match_names(providers, (offer.provider for offer in offers), what="provider")
    places = _match_names(regions, (offer.region for offer in offers), what="region")
    if purchase not in PURCHASES:
        choices = ", ".join(f"`{choice}`" for choice in PURCHASES)
        raise UsageError(f"unknown purchase option `{purchase}`", hint=f"choose one of {choices}")
    option, left, counts = purchase.replace("-", "_"), tuple(offers), " ".join(f"{one:g}" for one in devices)
    filters: list[tuple[str, bool, Callable[[Offer], bool]]] = [
        (f"--accelerator {' '.join(sorted(wanted))}", bool(wanted), lambda o: o.accelerator in wanted),
        (f"--provider {' '.join(sorted(clouds))}", bool(clouds), lambda o: o.provider in clouds),
        (f"--region {' '.join(sorted(places))}", bool(places), lambda o: o.region in places),
        (f"--purchase {purchase}", purchase != "any", lambda o: o.purchase == option),
        (f"--devices {counts}", bool(devices), lambda o: o.devices in devices),
        ("without --retired", not include_retired, lambda o: o.status not in UNAVAILABLE),
    ]
    for label, _, passes in (one for one in filters if one[1]):
        before, left = left, tuple(filter(passes, left))
        if not left:
            gone = label == "without --retired"
            hint = "add `--retired` to include them" if gone else f"remove or widen `{label}`"
            raise NoAnswerError(f"no offer matches `{label}` ({len(before)} before this filter)", hint=hint)
    return left


def _match_names(wanted: Sequence[str], names: Iterable[str], *, what: str) -> set[str]:
    """Return names as spelled in the offers; UsageError with similar names for an unknown one."""
    if not wanted:
        return set()
    known = set(names)
    by_lower = {name.lower(): name for name in known}
    found = set()
    for name in wanted:
        if name.lower() not in by_lower:
            aliases = PROVIDER_ALIASES if what == "provider" else {}
            hint = near_names_hint(name, known, see_all="gpuplan offers", aliases=aliases)
            raise UsageError(f"unknown {what} `{name}` in `--{what}`", hint=hint)
        found.add(by_lower[name.lower()])
    return found
