"""SkyPilot's published catalogs; the source of Google Cloud's is in `documents/README.md`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["SKYPILOT_CATALOG", "write_catalog"]

SKYPILOT_CATALOG = Path(__file__).parent / "documents" / "skypilot-gcp-vms.csv"
COLUMNS = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone"
)


def write_catalog(rows: Iterable[tuple[str, str, float, float]]) -> bytes:
    """Return a file in SkyPilot's form for AWS: types with an accelerator, region, price and spot price."""
    lines = (f"{name},X,1,4,16,,{usd:.6g},{spot:.6g},{region},{region}-az1" for name, region, usd, spot in rows)
    return "\n".join([COLUMNS, *lines, ""]).encode()
