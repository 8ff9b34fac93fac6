"""Google's published form: pages of SKUs of the Cloud Billing Catalog, held against Google's discovery document.

The SKUs are in `documents`, with Google's names; their sources are in `documents/README.md`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema

from .server import Asked

__all__ = ["COMPUTE_SERVICE", "discovery_schema", "page_of", "read_skus", "sku"]

DOCUMENT = Path(__file__).parent / "documents" / "google-cloud-billing-skus.json"

COMPUTE_SERVICE = "6F81-5844-456A"


@cache
def discovery_schema(document: str, name: str) -> dict[str, Any]:
    """Return the JSON Schema of one of Google's types, made from a discovery document."""
    path = files("googleapiclient.discovery_cache.documents").joinpath(document)
    schemas = json.loads(path.read_text())["schemas"]
    needed, found = [name], {}
    while needed:  # a document describes hundreds of types: only those that are reached
        key = needed.pop()
        if key not in found:
            found[key] = _json_schema(schemas[key])
            needed += [ref.removeprefix("#/$defs/") for ref in re.findall(r"#/\$defs/\w+", json.dumps(found[key]))]
    return {"$ref": f"#/$defs/{name}", "$defs": found}


def _json_schema(entry: Any) -> Any:
    """Return an entry of a discovery document as JSON Schema: 64-bit numbers are text, nothing else is allowed."""
    if isinstance(entry, list):
        return [_json_schema(one) for one in entry]
    if not isinstance(entry, dict):
        return entry
    kept = {k: _json_schema(v) for k, v in entry.items() if k in ("type", "properties", "items", "enum")}
    if "properties" in entry:
        kept["properties"] = {name: _json_schema(one) for name, one in entry["properties"].items()}
        kept["additionalProperties"] = False
    if "$ref" in entry:
        return {"$ref": f"#/$defs/{entry['$ref']}"}
    return kept


def read_skus() -> dict[str, list[dict[str, Any]]]:
    """Return the SKUs of the document by service, after holding them against the discovery document."""
    found: dict[str, list[dict[str, Any]]] = json.loads(DOCUMENT.read_text())
    _hold([sku for skus in found.values() for sku in skus])
    return found


def _hold(skus: Sequence[dict[str, Any]]) -> None:
    """Hold SKUs against Google's discovery document."""
    schema = discovery_schema("cloudbilling.v1.json", "ListSkusResponse")
    jsonschema.Draft202012Validator(schema).validate({"skus": list(skus), "nextPageToken": "60"})


def page_of(skus_by_service: dict[str, Sequence[dict[str, Any]]], asked: Asked, *, size: int = 300) -> Any:
    """Return the page of SKUs that a request asks for; None for another path."""
    parts = asked.path.split("/")
    if parts[:3] != ["", "v1", "services"] or parts[-1] != "skus":
        return None
    skus = skus_by_service.get(parts[3], [])
    start = int(asked.query.get("pageToken") or 0)
    more = start + size < len(skus)
    return {"skus": list(skus[start : start + size]), "nextPageToken": str(start + size) if more else ""}


def sku(
    description: str,
    regions: Sequence[str],
    usd: float,
    *,
    spot: bool = False,
    unit: str = "h",
    currency: str = "USD",
    usage_type: str | None = None,
    group: str = "CPU",
) -> dict[str, Any]:
    """Return a SKU as the REST API gives it: whole dollars as text, the rest in nanodollars."""
    nanos = round(usd * 1e9)
    sku_id = f"{abs(hash((description, tuple(regions), spot))) % 16**12:012X}"
    return {
        "name": f"services/{COMPUTE_SERVICE}/skus/{sku_id}",
        "skuId": sku_id,
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Compute",
            "resourceGroup": group,
            "usageType": usage_type or ("Preemptible" if spot else "OnDemand"),
        },
        "serviceRegions": list(regions),
        "pricingInfo": [
            {
                "summary": "",
                "effectiveTime": "2026-11-19T07:00:00Z",
                "currencyConversionRate": 1.0,
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1.0,
                    "baseUnitConversionFactor": 3600.0,
                    "tieredRates": [
                        {
                            "startUsageAmount": 0.0,
                            "unitPrice": {
                                "currencyCode": currency,
                                "units": str(nanos // 10**9),
                                "nanos": nanos % 10**9,
                            },
                        }
                    ],
                },
            }
        ],
        "serviceProviderName": "Google",
    }
