"""Write refreshed prices into a catalog folder, before a release is built.

    python .ci/package_prices.py catalog

Prices come from the data folder of `gpuplan catalog refresh`. A source that the catalog does not name yet gets a
key in sources.toml, and a key that no row uses any more goes.
"""

from __future__ import annotations

import csv
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from gpuplan.files import get_data_folder
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.catalog_files import PRICE_COLUMNS
from gpuplan.offers.refreshed_prices import PriceStore, RefreshedOffer, merge_refreshed
from gpuplan.offers.rows import Offer
from gpuplan.settings import load_settings


def name_source(offer: Offer, keys: dict[str, str]) -> str:
    """Return the key of an offer's source, made from the address where it is new."""
    text = offer.url if isinstance(offer, RefreshedOffer) else offer.price_source or ""
    if text not in keys:
        slug = re.sub(r"[^a-z0-9]+", "-", re.sub(r"^https?://", "", text).lower()).strip("-")
        keys[text] = f"live-{slug}"
    return keys[text]


def format_row(offer: Offer, keys: dict[str, str]) -> list[str]:
    """Return an offer as cells of a price file."""

    def cell(value: object) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return "" if value is None else f"{value:g}" if isinstance(value, float) else f"{value}"

    fields = {"as_of": "price_as_of"}
    return [
        name_source(offer, keys) if c == "source" else cell(getattr(offer, fields.get(c, c)))
        for c in PRICE_COLUMNS
    ]


def package(folder: Path, offers: Sequence[Offer]) -> None:
    """Write the offers of every price file, and the sources that they name."""
    path = folder / "sources.toml"
    keys = {text: key for key, text in tomllib.loads(path.read_text())["sources"].items()}
    used: set[str] = set()
    for file in sorted((folder / "prices").glob("*.csv")):
        rows = [format_row(one, keys) for one in offers if one.provider == file.stem]
        used |= {row[PRICE_COLUMNS.index("source")] for row in rows}
        with file.open("w", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(PRICE_COLUMNS)
            writer.writerows(sorted(rows, key=lambda row: (row[0], row[5], row[6])))
    lines = [line for line in path.read_text().splitlines() if _is_kept(line, used)]
    known = set(tomllib.loads(path.read_text())["sources"])
    lines += [f'"{key}" = "{text}"' for text, key in sorted(keys.items()) if key in used - known]
    path.write_text("\n".join(lines) + "\n")


def _is_kept(line: str, used: set[str]) -> bool:
    key = re.match(r'"?([^"=\s]+)"? = ', line)
    return key is None or key.group(1) in used


def main() -> None:
    """Merge the refreshed prices into the packaged ones and write them."""
    catalog, store = load_catalog(), PriceStore(get_data_folder(load_settings().data_dir))
    package(Path(sys.argv[1]), merge_refreshed(catalog.offers, store))


if __name__ == "__main__":
    main()
