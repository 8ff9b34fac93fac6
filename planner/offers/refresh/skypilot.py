"""SkyPilot's hosted catalog: prices of clouds whose own lists need an account or hours of reading.

https://github.com/skypilot-org/skypilot-catalog, `catalogs/v8/<cloud>/vms.csv`, is written every seven hours from
the vendors' own interfaces (`.github/workflows` there; not that of Azure, and RunPod's and Vast's have names of
SkyPilot's own). A row is an instance type with or without accelerators in a zone, or (Google) accelerators that
attach to a host. SkyPilot writes 700.0 for an unknown TPU v6e price, and 0 for a host whose
price is included in the accelerator's: neither is used as a price. Its search by name also finds the rates of
Google's Dynamic Workload Scheduler, which stand as on-demand prices of H100 and H200 in some regions: a price far
below that of other regions is not used.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from ..rows import CPU, Purchase
from .gcp import ACCELERATOR_SERIES
from .http import FetchError
from .source import NAMES, LeftOut, ListedPrice, PriceSource, RefreshRequest, parse_decimal, parse_float

if TYPE_CHECKING:
    from .http import HttpClient
    from .source import InstanceSpec, InstanceSpecs


ENDPOINT = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8"
NEEDED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Region", "Price", "SpotPrice")
PLACEHOLDER = Decimal(700)
NOTE = "by way of SkyPilot's catalog"
MEGA = ("H100-MEGA", "a3-megagpu")  # a part of its own price, and the machine type that it belongs to
# On-demand prices of regions differ by up to 1.6x, the rates of the Dynamic Workload Scheduler are at most half.
MIN_SHARE_OF_HIGHEST = Decimal("0.55")
PriceKey = tuple[str, str, Purchase]
Machines = dict[PriceKey, tuple[Decimal, dict[str, str]]]


class SkyPilotCatalog(PriceSource):
    """Prices of one cloud in SkyPilot's format.

    Args:
        provider: The provider, which is also SkyPilot's name of the cloud.
        specs: Instance types, to assemble machines that SkyPilot lists in parts.
    """

    is_complete = False  # not the vendor's own list

    def __init__(self, provider: str, specs: InstanceSpecs) -> None:
        self.provider = provider
        self.name = f"skypilot-{provider}"
        self.label = f"{provider} (SkyPilot)"
        super().__init__(specs)

    def read_all(self, request: RefreshRequest, http: HttpClient) -> Iterable[ListedPrice | LeftOut]:
        """Return the prices of all regions: the lowest over the zones."""
        self.url = f"{request.endpoint(self.name, ENDPOINT)}/{self.provider}/vms.csv"
        text = http.text(self.url, etag=request.etags.get(self.url, ""))
        one = request.regions[0] if len(request.regions) == 1 else ""
        return parse_catalog(text, self._specs.known, url=self.url, one_region=one)


def parse_catalog(
    text: str, known: Mapping[str, InstanceSpec], *, url: str, one_region: str = ""
) -> Iterator[ListedPrice | LeftOut]:
    """Yield the machines of a catalog, assembling those listed in parts, and the parts of no known machine.

    Args:
        text: The CSV file.
        known: Hardware by instance type.
        url: Source of the file.
        one_region: Region that stands for all of a provider whose prices do not differ by region; empty: none.
    """
    rows = _parse_rows(text, url)
    for row in rows if one_region else ():
        row["Region"] = one_region
    machines = _select_cheapest((row["InstanceType"], row) for row in rows if not _is_part(row))
    attached = ((row["AcceleratorName"], row) for row in rows if _is_part(row))
    parts = _select_cheapest(
        (_format_part(name, NAMES["skypilot"].get(name, name), parse_float(row["AcceleratorCount"]) or 1), row)
        for name, row in attached
    )
    for (name, region, purchase), (usd, row) in machines.items():
        shape = known.get(name)
        if shape is None or shape.accelerator == CPU or row["AcceleratorName"]:
            yield _build_price((name, region, purchase), usd, row, url)
    by_part: dict[str, list[tuple[str, Purchase, Decimal]]] = {}
    for (part, region, purchase), usd in _drop_scheduler_rates(parts).items():
        by_part.setdefault(part, []).append((region, purchase, usd))
    part_of = {name: _format_part(name, shape.accelerator, shape.devices) for name, shape in known.items()}
    for part in by_part.keys() - part_of.values():
        yield LeftOut(reason="unknown machine", name=part)
    for name, part in part_of.items():
        for region, purchase, usd in by_part.get(part, ()):
            host_usd = _find_host_usd(name, region, purchase, machines)
            if host_usd is not None:
                yield _build_price((name, region, purchase), usd + host_usd, {}, url)


def _format_part(name: str, accelerator: str, devices: float) -> str:
    """Return the name of the part of a machine, or of a SkyPilot accelerator: that of a slice, or its devices."""
    mega = " mega" if name.startswith(MEGA) else ""
    return name if name.startswith("tpu-") else f"{devices:g} x {accelerator}{mega}"


def _is_part(row: Mapping[str, str]) -> bool:
    """Return whether a row is an attachable accelerator or a TPU slice."""
    return row["InstanceType"] in ("", "TPU-VM")


def _drop_scheduler_rates(parts: Machines) -> dict[PriceKey, Decimal]:
    """Return the prices of parts, without scheduler rates that stand in place of on-demand prices."""
    highest: dict[str, Decimal] = {}
    for (part, _, purchase), (usd, _) in parts.items():
        if purchase == "on_demand":
            highest[part] = max(usd, highest.get(part, usd))
    return {
        key: usd
        for key, (usd, _) in parts.items()
        if key[2] == "spot" or usd >= MIN_SHARE_OF_HIGHEST * highest[key[0]]
    }


def _find_host_usd(name: str, region: str, purchase: Purchase, machines: Machines) -> Decimal | None:
    """Return the price of a machine's host without accelerators [USD/h]; 0 if included in theirs."""
    if name.startswith(("tpu-", "attach:")):
        return Decimal(0)
    found = machines.get((name.partition("+")[0], region, purchase))
    return None if found is None or found[1]["AcceleratorName"] else found[0]


def _parse_rows(text: str, url: str) -> list[dict[str, str]]:
    """Parse the file; FetchError if it is incomplete or lacks a column."""
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="…")
    lacking = [column for column in NEEDED if column not in (reader.fieldnames or ())]
    if lacking:
        raise FetchError(f"{url} has no column `{lacking[0]}`: not SkyPilot's format", kind="malformed")
    if not text.endswith("\n"):
        raise FetchError(f"the last line of {url} is incomplete", kind="truncated")
    rows = list(reader)
    if any(None in row.values() or "…" in row for row in rows):
        raise FetchError(f"a line of {url} has too few or too many cells", kind="truncated")
    return rows


def _select_cheapest(named: Iterable[tuple[str, dict[str, str]]]) -> Machines:
    """Return the lowest price over zones by name, region and purchase option."""
    found: Machines = {}
    prices: tuple[tuple[str, Purchase], ...] = (("Price", "on_demand"), ("SpotPrice", "spot"))
    for name, row in named:
        for column, purchase in prices:
            usd = parse_decimal(row[column], what=f"{column} of {name}") if row[column] else Decimal(0)
            key = (name, row["Region"], purchase)
            if 0 < usd != PLACEHOLDER and (key not in found or usd < found[key][0]):
                found[key] = (usd, row)
    return found


def _build_price(key: PriceKey, usd: Decimal, row: Mapping[str, str], url: str) -> ListedPrice:
    """Build a listed price."""
    instance_type, region, purchase = key
    name = row.get("AcceleratorName") or None
    return ListedPrice(
        instance_type=instance_type,
        region=region.lower(),
        purchase=purchase,
        usd_per_hour=usd,
        sku=f"{instance_type} {region}",
        url=url,
        accelerator=NAMES["skypilot"].get(name, name) if name else None,
        devices=parse_float(row.get("AcceleratorCount")),
        vcpus=parse_float(row.get("vCPUs")),
        memory_gib=parse_float(row.get("MemoryGiB")),
        # Google's hosts stand apart from their accelerators.
        is_accelerated=bool(name or ACCELERATOR_SERIES.match(instance_type)),
        note=NOTE,
    )
