"""RunPod and Vast as they document their answers, with their own names; nothing is taken from the catalog.

RunPod: https://graphql-spec.runpod.io, `GpuType` and `LowestPrice`; names
from https://docs.runpod.io/references/gpu-types. Vast: https://docs.vast.ai/api-reference/search/search-offers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .server import Asked

__all__ = ["RUNPOD_SECURE", "RUNPOD_TYPES", "VAST_OFFERS", "search", "types_of_gpu"]

# id, display name, GB, price and spot price in the Community Cloud, stock, accelerator in the catalog
RUNPOD_TYPES: Sequence[tuple[str, str, int, float | None, float | None, str | None, str | None]] = (
    ("AMD Instinct MI300X OAM", "MI300X", 192, 2.39, None, "Low", "MI300X"),
    ("NVIDIA A100 80GB PCIe", "A100 PCIe", 80, 1.19, 1.19, "Low", "A100-80GB-PCIe"),
    ("NVIDIA A100-SXM4-80GB", "A100 SXM", 80, 1.39, 0.95, "High", "A100-80GB"),
    ("NVIDIA A40", "A40", 48, None, None, "Medium", "A40"),
    ("NVIDIA B200", "B200", 180, 5.98, None, None, "B200"),  # out of stock
    ("NVIDIA B300 SXM6 AC", "B300", 288, 6.94, None, "Low", "B300"),
    ("NVIDIA GeForce RTX 4090", "RTX 4090", 24, 0.34, 0.2, "High", "RTX4090"),
    ("NVIDIA H100 80GB HBM3", "H100 SXM", 80, 2.69, 1.75, "High", "H100-SXM"),
    ("NVIDIA H100 NVL", "H100 NVL", 94, 2.59, None, "Low", "H100-NVL"),
    ("NVIDIA H200 NVL", "NVIDIA H200 NVL", 143, 3.79, None, "Low", "H200-NVL"),
    ("NVIDIA RTX 2000 Ada Generation", "RTX 2000 Ada", 16, 0.24, 0.12, "Low", None),
    ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", 48, 0.74, 0.4, "Low", "RTX6000Ada"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000", 96, 1.69, None, "Low", "RTXPRO6000"),
    ("Tesla V100-SXM2-16GB", "V100 SXM2", 16, 0.23, 0.1, "Low", "V100-16GB"),
    ("Tesla V100-SXM2-32GB", "V100 SXM2 32GB", 32, 0.29, None, "Low", "V100-32GB"),
)

# Prices in the Secure Cloud, on demand and spot.
RUNPOD_SECURE: Mapping[str, tuple[float, float | None]] = {
    "NVIDIA A40": (0.44, 0.24),
    "NVIDIA A100-SXM4-80GB": (1.79, None),
    "NVIDIA B200": (6.79, None),
    "NVIDIA H100 80GB HBM3": (3.99, 1.95),
}

# name, MiB of memory, GPUs, price without storage, bid, name in the catalog, accelerator in the catalog
VAST_OFFERS: Sequence[tuple[str, int, int, float, float, str, str | None]] = (
    ("A100 PCIE", 40960, 1, 0.4044, 0.2, "1x A100 PCIE 40GB", "A100-40GB-PCIe"),
    ("A100 SXM4", 40960, 1, 0.403, 0.21, "1x A100 SXM4 40GB", "A100-40GB"),
    ("A100 SXM4", 81920, 1, 0.71, 0.33, "1x A100 SXM4 80GB", "A100-80GB"),
    ("A100 SXM4", 81920, 8, 6.4, 2.9, "8x A100 SXM4 80GB", "A100-80GB"),
    ("H100 SXM", 81559, 1, 2.1356, 1.1, "1x H100 SXM", "H100-SXM"),
    ("H200", 143771, 1, 5.0044, 2.2, "1x H200", "H200"),
    ("RTX 4090", 24564, 1, 0.3481, 0.2, "1x RTX 4090", "RTX4090"),
    ("RTX 4090", 24564, 4, 1.5, 0.8, "4x RTX 4090", "RTX4090"),
    ("RTX 6000Ada", 49140, 1, 0.6022, 0.3, "1x RTX 6000Ada", "RTX6000Ada"),
    ("Tesla P100", 16384, 1, 0.0956, 0.05, "1x Tesla P100", "P100-PCIe"),
    ("Tesla T4", 15360, 1, 0.1489, 0.08, "1x Tesla T4", "T4"),
    ("Tesla V100", 16384, 1, 0.0822, 0.05, "1x Tesla V100 16GB", "V100-16GB"),
    ("Tesla V100", 32768, 1, 0.0985, 0.06, "1x Tesla V100 32GB", "V100-32GB"),
    ("RTX 5060", 8192, 1, 0.05, 0.03, "1x RTX 5060", None),
)


def types_of_gpu(asked: Asked) -> dict[str, Any] | None:
    """Return RunPod's answer, with the fields that are asked for."""
    if asked.path != "/graphql" or "gpuTypes" not in asked.json["query"]:
        return None
    return {
        "data": {
            "gpuTypes": [
                {
                    "id": name, "displayName": display, "memoryInGb": gb,
                    "secureCloud": name in RUNPOD_SECURE, "communityCloud": usd is not None,
                    "communityPrice": usd, "communitySpotPrice": bid,
                    "securePrice": RUNPOD_SECURE.get(name, (0.0, None))[0],
                    "secureSpotPrice": RUNPOD_SECURE.get(name, (0.0, None))[1],
                    "lowestPrice": {"stockStatus": stock},
                }
                for name, display, gb, usd, bid, stock, _ in RUNPOD_TYPES
            ]
        }
    }  # fmt: skip


def search(times: int = 3) -> Callable[[Asked], dict[str, Any] | None]:
    """Return Vast's search: it keeps filters, order and limit of the query. Each machine is there in some prices.

    Args:
        times: Offers of each kind; the first is the cheapest.
    """
    offers = [
        {
            "id": 100 * number + more, "gpu_name": name, "gpu_ram": mib, "num_gpus": gpus,
            "dph_base": round(usd * (1 + more / 10), 4), "dph_total": round(usd * (1 + more / 10) + 0.01, 4),
            "min_bid": bid, "rentable": True, "verification": "verified",
        }
        for number, (name, mib, gpus, usd, bid, _, _) in enumerate(VAST_OFFERS, 1)
        for more in range(times)
    ]  # fmt: skip

    def answer(asked: Asked) -> dict[str, Any] | None:
        if asked.path != "/api/v0/bundles/":
            return None
        query = json.loads(asked.query["q"])
        found = [o for o in offers if o["dph_total"] >= query.get("dph_total", {}).get("gte", 0)]
        found = [o for o in found if o["num_gpus"] in query.get("num_gpus", {}).get("in", [o["num_gpus"]])]
        for field, direction in reversed(query.get("order", [["id", "asc"]])):
            found.sort(key=lambda offer: offer[field], reverse=direction == "desc")
        return {"offers": found[: min(int(query.get("limit", 64)), 1000)]}

    return answer
