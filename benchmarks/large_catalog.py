"""A catalog of 100,000 offers: every instance type in every region and zone, on demand and spot.

python benchmarks/large_catalog.py FOLDER
"""

from __future__ import annotations

import csv
import itertools
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["OFFERS", "write_large_catalog"]

CATALOG = Path(__file__).parents[1] / "catalog"
OFFERS = 100_000
ZONES = ("", "-a", "-b", "-c", "-d", "-e", "-f")
SPOT_SHARE = 0.4  # of the price on demand [-]


def write_large_catalog(folder: Path) -> None:
    """Write the catalog with generated prices: those of an instance type differ by zone."""
    shutil.copytree(CATALOG, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    left = OFFERS
    for source in sorted((CATALOG / "prices").glob("*.csv")):
        with source.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows, columns = list(reader), list(reader.fieldnames or ())
        with (folder / "prices" / source.name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            for row in itertools.islice(_iter_rows(rows), left):
                writer.writerow(row)
                left -= 1


def _iter_rows(rows: list[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Yield each instance type in every region, zone and purchase option of its provider."""
    machines = {row["instance_type"]: row for row in rows if row["usd_per_hour"]}
    places = list(itertools.product(sorted({row["region"] for row in rows}), ZONES))
    for number, machine in enumerate(machines.values()):
        for position, (region, zone) in enumerate(places):
            usd = float(machine["usd_per_hour"]) * (1.0 + ((7 * position + number) % 97) / 1000.0)
            for purchase, share in (("on_demand", 1.0), ("spot", SPOT_SHARE)):
                price = f"{share * usd:.5f}"
                yield {**machine, "region": f"{region}{zone}", "purchase": purchase, "usd_per_hour": price}


if __name__ == "__main__":
    write_large_catalog(Path(sys.argv[1]))
