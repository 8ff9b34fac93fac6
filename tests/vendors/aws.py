"""Amazon's published offer file of a region, in `documents`; its source is in `documents/README.md`."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

__all__ = ["LISTED_USD", "plain_line", "read_offer_lines"]

OFFER_FILE = Path(__file__).parent / "documents" / "aws-AmazonEC2-us-east-1.csv"
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
def _read_document() -> list[dict[str, str]]:
    """Return the lines of the offer file."""
    return list(csv.DictReader(OFFER_FILE.read_text().splitlines()[PREAMBLE_LINES:]))


def read_offer_lines() -> list[dict[str, str]]:
    """Return all lines of the offer file, by column."""
    return [dict(line) for line in _read_document()]


def plain_line(instance_type: str, **changes: str) -> dict[str, str]:
    """Return the document's on-demand line of a Linux machine on shared hardware, with changes by column."""
    (found,) = (
        line
        for line in _read_document()
        if line["usageType"] == f"BoxUsage:{instance_type}"
        and (line["TermType"], line["operation"], line["CapacityStatus"]) == ("OnDemand", "RunInstances", "Used")
    )
    return {**found, **changes}
