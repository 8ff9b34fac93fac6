"""Amazon's signed APIs: price lists, spot price history and quotas, held against botocore's own service models.

Price lists are products of the region's offer file, with the attribute names of the Price List Query API; the spot
price history is the document in `documents`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

import botocore.session

from .server import Asked

__all__ = ["KEYS", "answer", "price_lists", "spot_history"]

KEYS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret"}
SPOT_HISTORY = Path(__file__).parent / "documents" / "aws-describe-spot-price-history-us-west-2.json"
PAGE = 3  # products or spot prices per page; Amazon's pages have up to 100 and 1,000
# Attribute names of https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html
# by column of the offer file.
ATTRIBUTES = {
    "CapacityStatus": "capacitystatus", "GPU": "gpu", "GPU Memory": "gpuMemory",
    "Instance Family": "instanceFamily", "Instance Type": "instanceType", "License Model": "licenseModel",
    "Location": "location", "Location Type": "locationType", "MarketOption": "marketoption",
    "Memory": "memory", "Operating System": "operatingSystem", "Physical Processor": "physicalProcessor",
    "Pre Installed S/W": "preInstalledSw", "Region Code": "regionCode", "Storage": "storage",
    "Tenancy": "tenancy", "operation": "operation", "serviceCode": "servicecode",
    "serviceName": "servicename", "usageType": "usagetype", "vCPU": "vcpu",
}  # fmt: skip


@cache
def _shape(service: str, operation: str) -> Any:
    """Return the output that botocore's model of a service gives an operation."""
    return botocore.session.Session().get_service_model(service).operation_model(operation).output_shape


def held(service: str, operation: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return a document after holding it against the service model: no key that it does not have."""
    _hold(_shape(service, operation), document)
    return document


def _hold(shape: Any, value: Any) -> None:
    if shape.type_name == "structure":
        assert set(value) <= set(shape.members), set(value) - set(shape.members)
        for key, member in value.items():
            _hold(shape.members[key], member)
    elif shape.type_name == "list":
        for member in value:
            _hold(shape.member, member)
    else:
        kinds: dict[str, Any] = {"string": str, "double": (int, float), "boolean": bool, "integer": int}
        assert isinstance(value, kinds.get(shape.type_name, object)), (shape.name, value)


def price_lists(lines: Sequence[dict[str, str]], wanted: dict[str, str]) -> list[str]:
    """Return the entries of `PriceList` whose attributes are the wanted ones: texts of JSON, one per product.

    Args:
        lines: Lines of an offer file.
        wanted: Values of attributes, as `TERM_MATCH` filters give them.
    """
    products: dict[str, list[dict[str, str]]] = {}
    for line in lines:
        products.setdefault(line["SKU"], []).append(line)
    found = []
    for sku, terms in products.items():
        attributes = {name: terms[0][column] for column, name in ATTRIBUTES.items() if terms[0][column]}
        if all(attributes.get(name) == value for name, value in wanted.items()):
            found.append(json.dumps(_product(sku, attributes, terms)))
    return found


def _product(sku: str, attributes: dict[str, str], lines: Sequence[dict[str, str]]) -> dict[str, Any]:
    """Return a product with its terms: on demand and, for some, reserved."""
    terms: dict[str, dict[str, Any]] = {}
    for line in lines:
        code = f"{sku}.{line['OfferTermCode']}"
        keys = ("LeaseContractLength", "OfferingClass", "PurchaseOption")
        term = terms.setdefault(line["TermType"], {}).setdefault(
            code,
            {
                "sku": sku,
                "offerTermCode": line["OfferTermCode"],
                "effectiveDate": f"{line['EffectiveDate']}T00:00:00Z",
                "termAttributes": {key: line[key] for key in keys if line[key]},
                "priceDimensions": {},
            },
        )
        ranges = {"beginRange": line["StartingRange"], "endRange": line["EndingRange"]}
        term["priceDimensions"][line["RateCode"]] = {
            "unit": line["Unit"],
            **{key: value for key, value in ranges.items() if value},
            "description": line["PriceDescription"],
            "appliesTo": [],
            "rateCode": line["RateCode"],
            "pricePerUnit": {line["Currency"]: line["PricePerUnit"]},
        }
    return {
        "product": {"productFamily": lines[0]["Product Family"], "attributes": attributes, "sku": sku},
        "serviceCode": "AmazonEC2",
        "terms": terms,
        "version": "20260728175247",
        "publicationDate": "2026-07-28T17:52:47Z",
    }


def answer(
    asked: Asked, *, lines: Sequence[dict[str, str]] = (), quotas: dict[str, float] | None = None
) -> dict[str, Any] | bytes | None:
    """Return the reply to a signed request, page by page; the first page of price lists is empty."""
    target = asked.headers.get("x-amz-target", "")
    if target.endswith(".GetProducts"):
        wanted = {f["Field"]: f["Value"] for f in asked.json["Filters"]}
        here = price_lists(lines, wanted)
        token = asked.json.get("NextToken")
        start = 0 if token is None else int(token)
        page: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": here[start : start + PAGE]}
        if token is None:
            page |= {"PriceList": [], "NextToken": "0"}
        elif start + PAGE < len(here):
            page["NextToken"] = str(start + PAGE)
        return held("pricing", "GetProducts", page)
    if target.endswith(".GetServiceQuota"):
        code = asked.json["QuotaCode"]
        quota = {"ServiceCode": "ec2", "QuotaCode": code, "Value": (quotas or {}).get(code, 0.0), "Unit": "None"}
        return held("service-quotas", "GetServiceQuota", {"Quota": quota})
    if b"Action=DescribeSpotPriceHistory" in asked.body:
        return spot_history(asked)
    return None


def spot_history(asked: Asked) -> bytes:
    """Return a page of the spot price history: the entries that a request's filters leave, as XML."""
    form = parse_qs(asked.body.decode())
    wanted = {values[0] for name, values in form.items() if name.startswith("Filter.1.Value.")}
    document = json.loads(SPOT_HISTORY.read_text())
    for entry in document["SpotPriceHistory"]:
        entry["Timestamp"] = datetime.fromisoformat(entry["Timestamp"])
    held("ec2", "DescribeSpotPriceHistory", document)
    found = [entry for entry in document["SpotPriceHistory"] if entry["InstanceType"] in wanted]
    start = int(form.get("NextToken", ["0"])[0])
    token = str(start + PAGE) if start + PAGE < len(found) else ""
    items = "".join(_spot_item(entry) for entry in found[start : start + PAGE])
    return (
        '<?xml version="1.0" encoding="UTF-8"?><DescribeSpotPriceHistoryResponse '
        'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>'
        f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{token}</nextToken>"
        "</DescribeSpotPriceHistoryResponse>"
    ).encode()


def _spot_item(entry: dict[str, Any]) -> str:
    """Return a spot price as an element."""
    elements = {
        "instanceType": entry["InstanceType"],
        "productDescription": entry["ProductDescription"],
        "spotPrice": entry["SpotPrice"],
        "timestamp": entry["Timestamp"].strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "availabilityZone": entry["AvailabilityZone"],
    }
    return f"<item>{''.join(f'<{name}>{escape(text)}</{name}>' for name, text in elements.items())}</item>"
