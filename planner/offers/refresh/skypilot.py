"""A catalog in SkyPilot's format, hosted or a file: the fall-back where a vendor wants credentials, and an import.

https://github.com/skypilot-org/skypilot-catalog, `catalogs/v8/<cloud>/vms.csv`. A row is an instance type with or
without accelerators in a zone, or (Google) accelerators without an instance type, which attach to a host. SkyPilot
puts 700.0 where it has no price of a TPU v6e, and 0 where the host is in the price of the accelerator: neither is
taken for a price.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from ..rows import CPU, Purchase
from .source import ANYWHERE, FetchError, Listed, Part, Request, decimal_of, float_of

if TYPE_CHECKING:
    from .http import Http
    from .shapes import Shape, Shapes

__all__ = ["SkyPilotCatalog", "listed_of_catalog"]

ENDPOINT = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8"
NEEDED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Region", "Price", "SpotPrice")
PLACEHOLDER = Decimal(700)
NOTE = "by way of SkyPilot's catalog"
# What SkyPilot calls an accelerator where the catalog's names differ by more than spelling.
NAMES = {
    "A100": "A100-40GB", "V100": "V100-16GB", "P100": "P100-PCIe", "H100": "H100-SXM", "H100-MEGA": "H100-SXM",
}  # fmt: skip
Key = tuple[str, str, Purchase]
Machines = dict[Key, tuple[Decimal, dict[str, str]]]


class SkyPilotCatalog:
    """One cloud of a catalog in SkyPilot's format.

    Args:
        provider: Whose prices, under SkyPilot's name of the cloud as well.
        shapes: The provider's machines: those that SkyPilot lists in parts are put together.
        file: A file instead of the hosted catalog.
    """

    def __init__(self, provider: str, shapes: Shapes, *, file: Path | None = None) -> None:
        self.provider = provider
        self.name = f"skypilot-{provider}"
        self._shapes = shapes
        self._file = file
        self._rows: list[Listed] | None = None

    def missing(self, _request: Request) -> str | None:
        """Return None: nothing is needed."""
        return None

    def parts(self, request: Request) -> Sequence[Part]:
        """Return one part, or one a region that was asked for."""
        return request.parts_of(f"{self.provider} (SkyPilot)", "on_demand", "spot")

    def read(self, part: Part, request: Request, http: Http) -> Iterable[Listed]:
        """Return the prices of all regions, or of the part's; the lowest zone's of each."""
        if self._rows is None:
            if self._file is not None:
                text, url = _text_of(self._file), self._file.resolve().as_uri()
            else:
                url = f"{request.endpoint(self.name, ENDPOINT)}/{self.provider}/vms.csv"
                text = http.text(url)
            self._rows = list(listed_of_catalog(text, self._shapes.known, url=url))
        return [row for row in self._rows if part.region in (ANYWHERE, row.region)]


def listed_of_catalog(text: str, known: Mapping[str, Shape], *, url: str) -> Iterator[Listed]:
    """Yield the machines of a catalog; those that it lists in parts are put together.

    Args:
        text: The CSV file.
        known: What the provider's machines are made of.
        url: Where it was read.
    """
    rows = _read(text, url)
    machines = _cheapest((row["InstanceType"], row) for row in rows if not _is_part(row))
    parts = _cheapest((_part_name(row), row) for row in rows if _is_part(row))
    for (name, region, purchase), (usd, row) in machines.items():
        shape = known.get(name)
        if shape is None or shape.accelerator == CPU or row["AcceleratorName"]:
            yield _listed((name, region, purchase), usd, row, url)
    by_part: dict[str, list[tuple[str, Purchase, Decimal]]] = {}
    for (part, region, purchase), (usd, _) in parts.items():
        by_part.setdefault(part, []).append((region, purchase, usd))
    for name, shape in known.items():
        part = name if name.startswith("tpu-") else f"{shape.devices:g} x {shape.accelerator}"
        for region, purchase, usd in by_part.get(part, ()):
            host_usd = _host_usd(name, region, purchase, machines)
            if host_usd is not None:
                yield _listed((name, region, purchase), usd + host_usd, {}, url)


def _is_part(row: Mapping[str, str]) -> bool:
    """Return whether a row is of accelerators that attach to a host, or of a TPU slice."""
    return row["InstanceType"] in ("", "TPU-VM")


def _part_name(row: Mapping[str, str]) -> str:
    """Return what a part is: the slice's own name, or how many of which accelerator."""
    name = row["AcceleratorName"]
    if name.startswith("tpu-"):
        return name
    return f"{float_of(row['AcceleratorCount']) or 1:g} x {NAMES.get(name, name)}"


def _host_usd(name: str, region: str, purchase: Purchase, machines: Machines) -> Decimal | None:
    """Return what the host of a machine costs beside its accelerators; 0 where it is in their price."""
    if name.startswith(("tpu-", "attach:")):
        return Decimal(0)
    found = machines.get((name.partition("+")[0], region, purchase))
    return None if found is None or found[1]["AcceleratorName"] else found[0]


def _read(text: str, url: str) -> list[dict[str, str]]:
    """Return the rows of the file; FetchError unless it is whole and has the columns."""
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="…")
    lacking = [column for column in NEEDED if column not in (reader.fieldnames or ())]
    if lacking:
        raise FetchError(f"{url} has no column `{lacking[0]}`: not SkyPilot's format", kind="malformed")
    if not text.endswith("\n"):
        raise FetchError(f"the last line of {url} is not whole", kind="truncated")
    rows = list(reader)
    if any(None in row.values() or "…" in row for row in rows):
        raise FetchError(f"a line of {url} has too few or too many cells", kind="truncated")
    return rows


def _cheapest(named: Iterable[tuple[str, dict[str, str]]]) -> Machines:
    """Return the lowest price over the zones of a region, by name, region and purchase option."""
    found: Machines = {}
    prices: tuple[tuple[str, Purchase], ...] = (("Price", "on_demand"), ("SpotPrice", "spot"))
    for name, row in named:
        for column, purchase in prices:
            usd = decimal_of(row[column], what=f"{column} of {name}") if row[column] else Decimal(0)
            key = (name, row["Region"], purchase)
            if 0 < usd != PLACEHOLDER and (key not in found or usd < found[key][0]):
                found[key] = (usd, row)
    return found


def _listed(key: Key, usd: Decimal, row: Mapping[str, str], url: str) -> Listed:
    """Return a price."""
    instance_type, region, purchase = key
    name = row.get("AcceleratorName") or None
    return Listed(
        instance_type=instance_type,
        region=region.lower(),
        purchase=purchase,
        usd_per_hour=usd,
        sku=f"{instance_type} {region}",
        url=url,
        accelerator=NAMES.get(name, name) if name else None,
        devices=float_of(row.get("AcceleratorCount")),
        vcpus=float_of(row.get("vCPUs")),
        memory_gib=float_of(row.get("MemoryGiB")),
        is_accelerated=bool(name),
        note=NOTE,
    )


def _text_of(file: Path) -> str:
    """Return the text of a file; FetchError when it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FetchError(f"{file} cannot be read: {error}", kind="not found") from error
