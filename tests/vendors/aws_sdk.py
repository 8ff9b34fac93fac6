"""Amazon's signed APIs: price lists, spot price history and quotas, held against botocore's own service models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

import botocore.session
from gpuplan.offers.rows import CPU, Offer

from .server import Asked

__all__ = ["answer", "price_list", "spot_history"]

PAGE = 25


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


def price_list(offer: Offer) -> str:
    """Return an offer as one entry of `PriceList`: a text of JSON."""
    code = f"{offer.instance_type.upper().replace('.', '')}.JRTCKXETXF.6YS6EN2CT7"
    attributes = {
        "instanceType": offer.instance_type, "regionCode": offer.region, "vcpu": f"{offer.vcpus or 0:g}",
        "memory": f"{offer.memory_gib or 0:,g} GiB", "operatingSystem": "Linux", "tenancy": "Shared",
    }  # fmt: skip
    if offer.accelerator != CPU:
        attributes["gpu"] = f"{offer.devices:g}"
    dimension = {
        "unit": "Hrs", "endRange": "Inf", "rateCode": code, "beginRange": "0", "appliesTo": [],
        "description": f"${offer.usd_per_hour} per Linux hour",
        "pricePerUnit": {"USD": f"{offer.usd_per_hour:.10f}"},
    }  # fmt: skip
    term = {"priceDimensions": {code: dimension}, "sku": code[:12], "effectiveDate": "2026-11-01T00:00:00Z"}
    return json.dumps(
        {
            "product": {"productFamily": "Compute Instance", "attributes": attributes, "sku": code[:12]},
            "serviceCode": "AmazonEC2",
            "terms": {"OnDemand": {"term": term}},
            "version": "20261119193147",
        }
    )


def answer(
    asked: Asked,
    *,
    on_demand: Sequence[Offer] = (),
    spot: Sequence[Offer] = (),
    quotas: dict[str, float] | None = None,
) -> dict[str, Any] | bytes | None:
    """Return what a signed request gets, page by page."""
    target = asked.headers.get("x-amz-target", "")
    if target.endswith(".GetProducts"):
        wanted = {f["Field"]: f["Value"] for f in asked.json["Filters"]}
        here = [price_list(offer) for offer in on_demand if offer.region == wanted["regionCode"]]
        start = int(asked.json.get("NextToken", 0))
        page: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": here[start : start + PAGE]}
        if start + PAGE < len(here):
            page["NextToken"] = str(start + PAGE)
        return held("pricing", "GetProducts", page)
    if target.endswith(".GetServiceQuota"):
        code = asked.json["QuotaCode"]
        quota = {
            "ServiceCode": "ec2",
            "QuotaCode": code,
            "Value": (quotas or {}).get(code, 0.0),
            "Unit": "None",
        }
        return held("service-quotas", "GetServiceQuota", {"Quota": quota})
    if b"Action=DescribeSpotPriceHistory" in asked.body:
        return spot_history(spot)
    return None


def spot_history(offers: Sequence[Offer]) -> bytes:
    """Return prices in force: each type in two zones, the second dearer."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    items = "".join(
        f"<item><instanceType>{escape(offer.instance_type)}</instanceType>"
        "<productDescription>Linux/UNIX</productDescription>"
        f"<spotPrice>{float(offer.usd_per_hour or 0) * times:.6f}</spotPrice><timestamp>{now}</timestamp>"
        f"<availabilityZone>{offer.region}{zone}</availabilityZone></item>"
        for offer in offers
        for zone, times in (("a", 1.25), ("b", 1.0))
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?><DescribeSpotPriceHistoryResponse '
        'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>'
        f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken></nextToken>"
        "</DescribeSpotPriceHistoryResponse>"
    ).encode()
