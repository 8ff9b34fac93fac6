"""Amazon's published documents: the offer file of a region and the feed of spot prices.

The documents are files in `documents`, in Amazon's form; their sources are in `documents/README.md`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["LISTED_USD", "SPOT_FEED", "offer_file", "plain_line", "read_offer_lines", "spot_feed"]

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
    "g4dn.4xlarge": "1.204", "g4dn.8xlarge": "2.176", "g4dn.16xlarge": "4.352", "g5.4xlarge": "1.624",
    "g5.8xlarge": "2.448", "g5.12xlarge": "5.672", "g5.16xlarge": "4.096", "g5.24xlarge": "8.144",
    "g6.2xlarge": "0.9776", "g6.4xlarge": "1.3232", "g6.8xlarge": "2.0144", "g6.12xlarge": "4.6016",
    "g6.16xlarge": "3.3968", "g6.24xlarge": "6.6752", "g6.48xlarge": "13.3504", "gr6.4xlarge": "1.5392",
    "gr6.8xlarge": "2.4464", "g6e.2xlarge": "2.24208", "g6e.4xlarge": "3.00424", "g6e.8xlarge": "4.52856",
    "g6e.12xlarge": "10.49264", "g6e.16xlarge": "7.57719", "g6e.24xlarge": "15.06559",
    "p3.8xlarge": "12.24", "p3.16xlarge": "24.48", "p4de.24xlarge": "27.44705", "inf2.8xlarge": "1.96786",
    "inf2.24xlarge": "6.49063", "inf2.48xlarge": "12.98127", "p2.xlarge": "0.9", "p2.8xlarge": "7.2",
    "p2.16xlarge": "14.4",
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
        and (line["TermType"], line["operation"], line["CapacityStatus"]) == ("OnDemand", "RunInstances", "Used")
    )
    return {**found, **changes}


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


def spot_feed() -> dict[str, Any]:
    """Return a feed in which every listed machine has a spot price in us-east-1, under its old name: a third of
    the price on demand (made up).
    """
    sizes = [
        {
            "size": name,
            "valueColumns": [
                {"name": "linux", "prices": {"USD": f"{Decimal(usd) / 3:.4f}"}},
                {"name": "mswin", "prices": {"USD": "N/A*"}},
            ],
        }
        for name, usd in LISTED_USD.items()
    ]
    region = {
        **SPOT_FEED["config"]["regions"][0],
        "region": "us-east",
        "instanceTypes": [{"type": "gpuCurrentGen", "sizes": sizes}],
    }
    return {**SPOT_FEED, "config": {**SPOT_FEED["config"], "regions": [region]}}
