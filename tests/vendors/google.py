"""Google's published form: pages of SKUs of the Cloud Billing Catalog, held against Google's discovery document.

The SKUs that a parser is tested with are in `documents`, with Google's names; their sources are in
`documents/README.md`. For tests of what follows the parsing, `skus_of` makes SKUs from which given offers are put
together: the solution of the linear equations that the prices of a family are (its types differ in cores, memory
and GPUs).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
from gpuplan.offers.rows import CPU, Offer

from .server import Asked

__all__ = ["TPU_SERVICE", "discovery_schema", "page_of", "read_skus", "sku", "skus_of"]

DOCUMENT = Path(__file__).parent / "documents" / "google-cloud-billing-skus.json"

COMPUTE_SERVICE, TPU_SERVICE = "6F81-5844-456A", "E000-3F24-B8AA"
GIB_PER_CORE_USD = 0.004237 / 0.031611  # of N1 and A2: what a GiB costs, in cores
SSD_USD_PER_GIB_MONTH = 0.08
HOST_WORDS = {
    "n1": "N1 Predefined Instance",
    "a2": "A2 Instance",
    "a3-high": "A3 Instance",
    "a3-mega": "A3Plus Instance",
    "a3-ultra": "A3Ultra Instance",
    "t2d": "T2D AMD Instance",
}
GPU_WORDS = {
    "T4": "Nvidia Tesla T4", "P4": "Nvidia Tesla P4", "P100-PCIe": "Nvidia Tesla P100",
    "V100-16GB": "Nvidia Tesla V100", "A100-40GB": "Nvidia Tesla A100", "A100-80GB": "Nvidia Tesla A100 80GB",
    "L4": "Nvidia L4", "H100-SXM": "Nvidia H100 80GB", "H200": "H200 141GB", "RTXPRO6000": "RTX 6000 96GB",
}  # fmt: skip
TPU_WORDS = {"v5litepod": "TpuV5e", "v5p": "TpuV5p", "v6e": "TpuV6e"}


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
            needed += [
                ref.removeprefix("#/$defs/") for ref in re.findall(r"#/\$defs/\w+", json.dumps(found[key]))
            ]
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


def skus_of(offers: Sequence[Offer]) -> dict[str, list[dict[str, Any]]]:
    """Return SKUs from which these offers are put together, by service."""
    by_place: dict[tuple[str, str], list[Offer]] = {}
    for offer in offers:
        by_place.setdefault((offer.region, offer.purchase), []).append(offer)
    compute: list[dict[str, Any]] = []
    tpu: list[dict[str, Any]] = []
    for (region, purchase), here in by_place.items():
        spot = purchase == "spot"
        compute += _machine_skus([one for one in here if not _is_slice(one)], region, spot=spot)
        compute += _slices(here, region, spot=spot)
        compute.append(_disk(region, spot=spot))
        compute += _distractors(region)
        for one in _tpu_skus(here, region, spot=spot):
            (tpu if "Tpu-" in one["description"] else compute).append(one)
    _hold([*compute, *tpu])
    return {COMPUTE_SERVICE: compute, TPU_SERVICE: tpu}


def _disk(region: str, *, spot: bool) -> dict[str, Any]:
    words = "SSD backed Local Storage" + (" attached to Spot Preemptible VMs" if spot else "")
    return sku(f"{words} in {region}", [region], SSD_USD_PER_GIB_MONTH, spot=spot, unit="GiBy.mo")


def _distractors(region: str) -> Iterator[dict[str, Any]]:
    """Yield SKUs that are something else."""
    for words in ("A2 Custom Instance Core", "N1 Sole Tenancy Instance Core", "G2 DWS Defined Duration Core"):
        yield sku(f"{words} running in {region}", [region], 0.001)
    yield sku(f"Commitment v1: A2 Instance Core running in {region}", [region], 0.002, usage_type="Commit1Yr")
    yield sku(f"Network Egress from {region}", [region], 0.12, unit="GiBy")


def _series(instance_type: str) -> str:
    kind = "-".join(instance_type.split("-")[:2])
    known = {"a3-highgpu": "a3-high", "a3-megagpu": "a3-mega", "a3-ultragpu": "a3-ultra"}
    return known.get(kind, kind.partition("-")[0])


def _machine_skus(offers: Sequence[Offer], region: str, *, spot: bool) -> Iterator[dict[str, Any]]:
    """Yield core, memory and GPU SKUs: the solution of a family's equations in this region."""
    families: dict[str, list[Offer]] = {}
    attached: dict[str, float] = {}
    for offer in offers:
        if offer.instance_type.startswith("attach:"):
            attached[offer.accelerator] = float(offer.usd_per_hour or 0)
        elif not offer.instance_type.startswith("tpu-") and "+" not in offer.instance_type:
            families.setdefault(_series(offer.instance_type), []).append(offer)
    if "n1" not in families:
        families |= _n1_hosts(offers, attached)
    for series, members in families.items():
        core, gpus = _solved(series, members)
        words = ("Spot Preemptible " if spot else "") + HOST_WORDS.get(series, f"{series.upper()} Instance")
        yield sku(f"{words} Core running in {region}", [region], core, spot=spot)
        yield sku(
            f"{words} Ram running in {region}", [region], core * GIB_PER_CORE_USD, spot=spot, unit="GiBy.h"
        )
        for gpu, usd in gpus.items():
            mega = " Mega" if series == "a3-mega" else ""
            yield _gpu(f"{GPU_WORDS[gpu]}{mega}", region, usd, spot=spot)
    for gpu, usd in attached.items():
        yield _gpu(GPU_WORDS[gpu], region, usd, spot=spot)


def _n1_hosts(offers: Sequence[Offer], attached: dict[str, float]) -> dict[str, list[Offer]]:
    """Return the host of a machine with an add-on GPU, where no host is packaged by itself."""
    for offer in offers:
        if "+" in offer.instance_type:
            usd = float(offer.usd_per_hour or 0) - offer.devices * attached[offer.accelerator]
            return {"n1": [replace(offer, accelerator=CPU, usd_per_hour=usd)]}
    return {}


def _gpu(words: str, region: str, usd: float, *, spot: bool) -> dict[str, Any]:
    """Return the SKU of a GPU; that of a G4 has no word "GPU" in its name."""
    attached = " attached to Spot Preemptible VMs" if spot else ""
    gpu = "" if words.startswith("RTX") else " GPU"
    return sku(f"{words}{gpu}{attached} running in {region}", [region], usd, spot=spot)


def _slices(offers: Sequence[Offer], region: str, *, spot: bool) -> Iterator[dict[str, Any]]:
    """Yield SKUs of a GPU, or of an eighth of one, with its share of the machine."""
    eighths = [offer for offer in offers if _is_slice(offer) and offer.devices < 1]
    for offer in sorted(eighths, key=lambda offer: -offer.devices)[:1]:  # the largest is rounded the least
        attached = " attached to Spot Preemptible VMs" if spot else ""
        usd = float(offer.usd_per_hour or 0) / offer.devices / 8
        yield sku(f"1/8 vGPU no lssd{attached} running in {region}", [region], usd, spot=spot)
    for offer in offers:
        if _is_slice(offer) and offer.devices >= 1:
            words = ("Spot Preemptible " if spot else "") + f"A4 Nvidia {offer.accelerator} (1 gpu slice)"
            usd = float(offer.usd_per_hour or 0) / offer.devices
            yield sku(f"{words} running in {region}", [region], usd, spot=spot, usage_type="OnDemand")


def _is_slice(offer: Offer) -> bool:
    """Whether Google prices a machine by GPUs alone."""
    return offer.instance_type.startswith("a4") or (offer.accelerator == "RTXPRO6000" and offer.devices < 1)


def _solved(series: str, members: Sequence[Offer]) -> tuple[float, dict[str, float]]:
    """Return the price of a core and of each GPU: least squares over the family, disks taken off before."""
    gpus = sorted({offer.accelerator for offer in members} - {CPU})
    ssd_gib = {"a3-high": 750, "a3-mega": 750, "a3-ultra": 1500}.get(series, 0)
    rows, usd = [], []
    for offer in members:
        gib = 375 if offer.instance_type.startswith("a2-ultragpu") else ssd_gib
        host = (offer.vcpus or 0) + GIB_PER_CORE_USD * (offer.memory_gib or 0)
        rows.append([host, *(offer.devices * (offer.accelerator == gpu) for gpu in gpus)])
        usd.append(float(offer.usd_per_hour or 0) - gib * offer.devices * SSD_USD_PER_GIB_MONTH / 730)
    matrix = np.array(rows)
    if (
        np.linalg.matrix_rank(matrix) < matrix.shape[1]
    ):  # all sizes alike: any split of host and GPU is a solution
        core, largest = 0.01, usd.index(max(usd))
        return core, {gpus[0]: (usd[largest] - core * rows[largest][0]) / rows[largest][1]}
    core, *prices = np.linalg.lstsq(matrix, np.array(usd), rcond=None)[0]
    return float(core), dict(zip(gpus, map(float, prices), strict=True))


def _tpu_skus(offers: Sequence[Offer], region: str, *, spot: bool) -> Iterator[dict[str, Any]]:
    """Yield TPU SKUs: by eight cores (v2 to v4), or by the chip. Spot ones say OnDemand, as Google's do."""
    seen = set()
    for offer in sorted(offers, key=lambda offer: -offer.devices):  # the largest is rounded the least
        if not offer.instance_type.startswith("tpu-"):
            continue
        _, version, size = offer.instance_type.split("-")
        usd = float(offer.usd_per_hour or 0)
        words = f"{TPU_WORDS.get(version, f'Tpu-{version}')}"
        if version in ("v2", "v3", "v4"):
            words += " Pod" if int(size) > 8 or version == "v4" else ""
            price = usd * 8 / int(size)
        else:
            price = usd / offer.devices
        if words not in seen:
            seen.add(words)
            spot_words = " Preemptible" if spot else ""
            yield sku(
                f"{words}{spot_words} running in {region}", [region], price, spot=spot, usage_type="OnDemand"
            )
