"""Amazon's published documents: the offer file of a region and the feed of spot prices.

The documents are files in `documents`, in Amazon's form; their sources are in `documents/README.md`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gpuplan.offers.rows import CPU, Offer

__all__ = [
    "LISTED_USD",
    "SPOT_FEED",
    "offer_file",
    "offer_line",
    "plain_line",
    "read_offer_lines",
    "spot_feed",
]

DOCUMENTS = Path(__file__).parent / "documents"
OFFER_FILE = DOCUMENTS / "aws-AmazonEC2-us-east-1.csv"
SPOT_FEED: dict[str, Any] = json.loads((DOCUMENTS / "aws-spot.json").read_text())
PREAMBLE_LINES = 5
# What a plain Linux machine costs by the document: on demand, on shared hardware, in the region itself [USD/h].
LISTED_USD = {
    "g4dn.xlarge": "0.526", "g4dn.2xlarge": "0.752", "g4dn.12xlarge": "3.912", "g4dn.metal": "7.824",
    "g5.xlarge": "1.006", "g5.2xlarge": "1.212", "g5.48xlarge": "16.288", "g6.xlarge": "0.8048",
    "g6e.xlarge": "1.861", "g6e.48xlarge": "30.13118", "p3.2xlarge": "3.06", "p4d.24xlarge": "21.957642",
    "p5.4xlarge": "6.88", "p5.48xlarge": "55.04", "p5en.48xlarge": "63.296", "inf2.xlarge": "0.7582",
    "trn1.32xlarge": "21.5", "m5.xlarge": "0.192",
}  # fmt: skip


@cache
def _read_document() -> tuple[list[str], list[str], list[dict[str, str]]]:
    """Return the preamble, the columns and the lines of the offer file."""
    text = OFFER_FILE.read_text()
    preamble = text.splitlines()[:PREAMBLE_LINES]
    reader = csv.DictReader(text.splitlines()[PREAMBLE_LINES:])
    return preamble, list(reader.fieldnames or ()), list(reader)


def read_offer_lines() -> list[dict[str, str]]:
    """Return all lines of the offer file, by column."""
    return [dict(line) for line in _read_document()[2]]


def plain_line(instance_type: str, **changes: str) -> dict[str, str]:
    """Return the document's on-demand line of a Linux machine on shared hardware, with changes by column."""
    (found,) = (
        line
        for line in _read_document()[2]
        if line["usageType"] == f"BoxUsage:{instance_type}"
        and (line["TermType"], line["operation"], line["CapacityStatus"])
        == ("OnDemand", "RunInstances", "Used")
    )
    return {**found, **changes}


def offer_line(offer: Offer, **changes: str) -> dict[str, str]:
    """Return a plain line that bears an offer's type, region and price, for tests of what follows the parsing."""
    is_gpu = offer.accelerator != CPU
    sku = f"{abs(hash((offer.instance_type, offer.region))) % 36**8:08X}".rjust(16, "S")
    own = {
        "SKU": sku,
        "RateCode": f"{sku}.JRTCKXETXF.6YS6EN2CT7",
        "PricePerUnit": f"{offer.usd_per_hour:.10f}",
        "Instance Type": offer.instance_type,
        "Instance Family": "GPU instance" if is_gpu else "Compute optimized",
        "vCPU": f"{offer.vcpus or 0:g}",
        "Memory": f"{offer.memory_gib or 0:,g} GiB",
        "GPU": f"{offer.devices:g}" if is_gpu else "",
        "usageType": f"BoxUsage:{offer.instance_type}",
        "Region Code": offer.region,
    }
    return plain_line("g4dn.xlarge", **{**own, **changes})


def offer_file(lines: Iterable[dict[str, str]]) -> bytes:
    """Return an offer file with these lines: cells in quotes and empty cells without, as Amazon writes them."""
    preamble, columns, _ = _read_document()
    buffer = io.StringIO()
    buffer.writelines(f"{line}\n" for line in preamble)
    csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(columns)
    for line in lines:
        buffer.write(",".join(_quote(line[column]) for column in columns) + "\n")
    return buffer.getvalue().encode()


def _quote(cell: str) -> str:
    return '"{}"'.format(cell.replace('"', '""')) if cell else ""


def spot_feed(offers: Sequence[Offer]) -> dict[str, Any]:
    """Return the feed of spot prices with these offers, two regions under their old names."""
    old_names = {"us-east-1": "us-east", "eu-west-1": "eu-ireland"}
    sizes: dict[str, list[dict[str, Any]]] = {}
    for offer in offers:
        prices = {"linux": f"{offer.usd_per_hour:.4f}", "mswin": "N/A*"}
        columns = [{"name": system, "prices": {"USD": usd}} for system, usd in prices.items()]
        sizes.setdefault(offer.region, []).append({"size": offer.instance_type, "valueColumns": columns})
    template = SPOT_FEED["config"]["regions"][0]
    regions = [
        {
            **template,
            "region": old_names.get(region, region),
            "instanceTypes": [{"type": "gpuCurrentGen", "sizes": found}],
        }
        for region, found in sizes.items()
    ]
    return {**SPOT_FEED, "config": {**SPOT_FEED["config"], "regions": regions}}
