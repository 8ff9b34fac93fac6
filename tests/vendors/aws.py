"""Amazon's formats: the bulk offer file, the feed of spot prices and the Spot Advisor.

Columns of the offer file: https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-service-price-list-file-for-services.html
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

from gpuplan.offers.rows import CPU, Offer

__all__ = ["COLUMNS", "offer_file", "offer_line", "spot_feed"]

PREAMBLE = (
    ("FormatVersion", "v1.0"),
    ("Disclaimer", "This pricing list is for informational purposes only."),
    ("Publication Date", "2026-11-19T19:31:47Z"),
    ("Version", "20261119193147"),
    ("OfferCode", "AmazonEC2"),
)
COLUMNS = (
    "SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate", "StartingRange",
    "EndingRange", "Unit", "PricePerUnit", "Currency", "RelatedTo", "LeaseContractLength", "PurchaseOption",
    "OfferingClass", "Product Family", "serviceCode", "Location", "Location Type", "Instance Type",
    "Current Generation", "Instance Family", "vCPU", "Physical Processor", "Clock Speed", "Memory", "Storage",
    "Network Performance", "Processor Architecture", "Storage Media", "Volume Type", "Max Volume Size",
    "Tenancy", "EBS Optimized", "Operating System", "License Model", "Group", "Group Description",
    "Transfer Type", "GPU", "GPU Memory", "operation", "CapacityStatus", "Pre Installed S/W", "Region Code",
    "serviceName", "MarketOption",
)  # fmt: skip


def offer_line(offer: Offer, **changes: str) -> dict[str, str]:
    """Return an offer as a line of an offer file, by column."""
    sku = f"{abs(hash((offer.instance_type, offer.region))) % 36**8:08X}".rjust(16, "S")
    is_gpu = offer.accelerator != CPU
    return {
        **dict.fromkeys(COLUMNS, ""),
        "SKU": sku,
        "OfferTermCode": "JRTCKXETXF",
        "RateCode": f"{sku}.JRTCKXETXF.6YS6EN2CT7",
        "TermType": "OnDemand",
        "Unit": "Hrs",
        "PricePerUnit": f"{offer.usd_per_hour:.10f}",
        "Currency": "USD",
        "PriceDescription": f"${offer.usd_per_hour} per On Demand Linux {offer.instance_type} Instance Hour",
        "EffectiveDate": "2026-11-01",
        "StartingRange": "0",
        "EndingRange": "Inf",
        "Product Family": "Compute Instance",
        "serviceCode": "AmazonEC2",
        "Location Type": "AWS Region",
        "Instance Type": offer.instance_type,
        "Current Generation": "Yes",
        "Instance Family": "GPU instance" if is_gpu else "Compute optimized",
        "vCPU": f"{offer.vcpus or 0:g}",
        "Memory": f"{offer.memory_gib or 0:,g} GiB",
        "Tenancy": "Shared",
        "Operating System": "Linux",
        "License Model": "No License required",
        "GPU": f"{offer.devices:g}" if is_gpu else "",
        "operation": "RunInstances",
        "CapacityStatus": "Used",
        "Pre Installed S/W": "NA",
        "Region Code": offer.region,
        "MarketOption": "OnDemand",
        "serviceName": "Amazon Elastic Compute Cloud",
        **changes,
    }


def distractors(offer: Offer) -> list[dict[str, str]]:
    """Return the lines of the same machine that are something else: Windows, reserved, dedicated, ..."""
    price = {"PricePerUnit": "0.0100000000"}
    return [
        offer_line(offer, **{"Operating System": "Windows"}, **price),
        offer_line(offer, TermType="Reserved", LeaseContractLength="1yr", **price),
        offer_line(offer, Tenancy="Dedicated", **price),
        offer_line(offer, CapacityStatus="UnusedCapacityReservation", **price),
        offer_line(offer, **{"Pre Installed S/W": "SQL Web"}, **price),
        offer_line(offer, MarketOption="CapacityBlock", **price),
    ]


def offer_file(lines: Iterable[dict[str, str]]) -> bytes:
    """Return an offer file: preamble, header, lines; every cell in quotes, as Amazon writes it."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows(PREAMBLE)
    writer.writerow(COLUMNS)
    writer.writerows([line[column] for column in COLUMNS] for line in lines)
    return buffer.getvalue().encode()


def spot_feed(offers: Iterable[Offer]) -> dict[str, Any]:
    """Return the feed behind the page of spot prices; `us-east-1` under its old name, one price not known."""
    regions: dict[str, list[dict[str, Any]]] = {}
    for offer in offers:
        price = f"{offer.usd_per_hour:.4f}"
        columns = [
            {"name": "linux", "prices": {"USD": price}},
            {"name": "mswin", "prices": {"USD": "N/A*"}},
        ]
        regions.setdefault(offer.region, []).append({"size": offer.instance_type, "valueColumns": columns})
    old_names = {"us-east-1": "us-east", "eu-west-1": "eu-ireland"}
    unknown = {"size": "p9.48xlarge", "valueColumns": [{"name": "linux", "prices": {"USD": "N/A*"}}]}
    return {
        "vers": 0.01,
        "config": {
            "rate": "perhr",
            "valueColumns": ["linux", "mswin"],
            "currencies": ["USD"],
            "regions": [
                {
                    "region": old_names.get(region, region),
                    "instanceTypes": [{"type": "gpuCurrentGen", "sizes": [*sizes, unknown]}],
                }
                for region, sizes in regions.items()
            ],
        },
    }
