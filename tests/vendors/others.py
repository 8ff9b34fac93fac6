"""SkyPilot's published catalog of Google Cloud: a file in `documents`; its source is in `documents/README.md`."""

from __future__ import annotations

from pathlib import Path

__all__ = ["SKYPILOT_CATALOG"]

SKYPILOT_CATALOG = Path(__file__).parent / "documents" / "skypilot-gcp-vms.csv"
