"""How fast prices move: the rows `[[price_move]]` of catalog/costs.toml, from dated versions of price lists.

    python benchmarks/price_moves.py --karpenter-aws DIR --karpenter-azure DIR --karpenter-gcp DIR [--old REVISION]

The three folders are clones of aws/karpenter-provider-aws, Azure/karpenter-provider-azure and
cloudpilot-ai/karpenter-provider-gcp, which keep the vendors' price lists under version control. The GPU clouds are
compared, each tier by itself, with the rows of an old revision of this repository and with prices of other days
(marketplace_prices.csv), notebooks with their own dated rates.

Every two dates of one machine that lie 14 days or more apart give |ln(later / earlier)| / sqrt(years between); the
rate is their 80 % quantile, or that of the pairs within half a year where it is larger, so that
exp(± rate x sqrt(age in years)) is an interval of 80 %.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from itertools import combinations
from pathlib import Path

from gpuplan.offers.clouds import find_tier

ROOT = Path(__file__).parents[1]
MIN_DAYS, NEAR_DAYS, QUANTILE, DAYS_PER_YEAR = 14, 183, 0.8, 365.25
OLD_REVISION = "7a5953a"  # the last one with the marketplaces' prices of 2025-09-17
TIERS_OF_2025 = {"runpod": "community", "vast": "lowest"}  # they were listed without one
GPU_CLOUDS = ("lambda", "runpod", "vast", "verda", "scaleway", "digitalocean", "vultr", "nebius")
AWS_TYPES = r"g4dn|g5|g6|g6e|gr6|p2|p3|p3dn|p4d|p4de|p5|p5e|p5en|trn1|trn1n|inf2"
Key = tuple[str, ...]
Dated = tuple[date, float]
Found = Iterator[tuple[Key, Dated]]


def run_git(repository: Path, *arguments: str) -> str:
    """Return what a git command prints."""
    return subprocess.run(
        ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=True
    ).stdout


def read_versions(repository: Path, path: str, parse: Callable[[str, date], Found]) -> dict[Key, list[Dated]]:
    """Return the dated prices of every version of a file, by machine."""
    series: dict[Key, list[Dated]] = defaultdict(list)
    for line in run_git(repository, "log", "--format=%H %cs", "--", path).splitlines():
        commit, day = line.split()
        for key, dated in parse(run_git(repository, "show", f"{commit}:{path}"), date.fromisoformat(day)):
            series[key].append(dated)
    return series


def parse_go_prices(text: str, committed: date, types: str) -> Found:
    """Yield the prices of a generated Go file: regions as keys of maps, `"type": price` in them."""
    stated = re.search(r"generated at (\d{4}-\d{2}-\d{2})", text)
    day = date.fromisoformat(stated.group(1)) if stated else committed
    region = ""
    for line in text.splitlines():
        region = next(iter(re.findall(r'Prices\["(\w+)"\] = ', line)), region)
        for name, usd in re.findall(rf'"((?:{types})[\w.]*)": *([\d.]+)', line):
            if float(usd) > 0:
                yield (region, name), (day, float(usd))


def parse_gcp(text: str, committed: date, purchase: str) -> Found:
    """Yield the prices of GPU machines of one purchase option."""
    for region, lists in json.loads(text).get("prices", {}).items():
        for name, usd in (lists.get(purchase) or {}).items():
            if usd and re.match(r"(a2|a3|g2|g4)-", name):
                yield (region, name), (committed, float(usd))


def read_marketplace(provider: str, revision: str) -> dict[Key, list[Dated]]:
    """Return the cheapest price per GPU of each accelerator and tier: in an old revision, in between, and now."""
    name = f"catalog/prices/{provider}.csv"
    texts = [(ROOT / name).read_text()]
    if run_git(ROOT, "ls-tree", revision, name):
        texts.append(run_git(ROOT, "show", f"{revision}:{name}"))
    series: dict[Key, list[Dated]] = defaultdict(list)
    for text in texts:
        lowest: dict[Key, Dated] = {}
        for row in csv.DictReader(io.StringIO(text)):
            if len(row["as_of"]) == 10 and row["purchase"] == "on_demand":
                usd = float(row["usd_per_hour"]) / float(row["devices"])
                key = (row["accelerator"], find_tier(row["instance_type"]) or TIERS_OF_2025.get(provider, ""))
                if key not in lowest or usd < lowest[key][1]:
                    lowest[key] = (date.fromisoformat(row["as_of"]), usd)
        for key, dated in lowest.items():
            series[key].append(dated)
    for row in csv.DictReader((ROOT / "benchmarks/marketplace_prices.csv").open(encoding="utf-8")):
        if row["provider"] == provider:
            dated = (date.fromisoformat(row["as_of"]), float(row["usd_per_gpu_hour"]))
            series[row["accelerator"], row["tier"]].append(dated)
    return series


def read_colab() -> dict[Key, list[Dated]]:
    """Return Colab's dated rates in compute units an hour."""
    series: dict[Key, list[Dated]] = defaultdict(list)
    for row in tomllib.loads((ROOT / "catalog/notebooks.toml").read_text())["rate"]:
        year, month, day = (*map(int, str(row["as_of"]).split("-")), 1, 1)[:3]
        series[row["runtime"],].append((date(year, month, day), float(row["units_per_hour"])))
    return series


def format_rate(name: str, series: Mapping[Key, list[Dated]]) -> str:
    """Return a line on a price list: its rate, and what it was computed from.

    The rate is the larger of those of all pairs and of pairs within half a year: asks of a moment differ from day
    to day by more than a random walk over years tells.
    """
    changes, days = [], set[date]()
    for prices in series.values():
        for (first, old), (last, new) in combinations(sorted(prices), 2):
            if (gap := (last - first).days) >= MIN_DAYS:
                changes.append((abs(math.log(new / old)) / math.sqrt(gap / DAYS_PER_YEAR), gap))
                days |= {first, last}
    if not changes:
        return f"{name}: no two dates"
    near = [change for change, gap in changes if gap <= NEAR_DAYS]
    rate = max(compute_quantile([change for change, _ in changes]), compute_quantile(near) if near else 0.0)
    moved = sum(change > 1e-9 for change, _ in changes) / len(changes)
    return (
        f"{name}: {rate:.2f} per sqrt(year) from {len(changes)} pairs ({len(near)} near) of {len(series)} "
        f"machines, {min(days)} to {max(days)}; {moved:.0%} of pairs moved"
    )


def compute_quantile(values: list[float]) -> float:
    """Return the 80 % quantile, interpolated."""
    ordered = sorted(values)
    place = QUANTILE * (len(ordered) - 1)
    low = ordered[int(place)]
    return low + (ordered[min(int(place) + 1, len(ordered) - 1)] - low) * (place - int(place))


def main() -> None:
    """Print a line for each price list."""
    parser = argparse.ArgumentParser(description="How fast prices move.")
    for name in ("aws", "azure", "gcp"):
        parser.add_argument(f"--karpenter-{name}", type=Path)
    parser.add_argument("--old", default=OLD_REVISION)
    args = parser.parse_args()
    if args.karpenter_aws:
        path = "pkg/providers/pricing/zz_generated.pricing_aws.go"
        found = read_versions(args.karpenter_aws, path, lambda t, d: parse_go_prices(t, d, rf"(?:{AWS_TYPES})\."))
        print(format_rate("aws on demand", found))
    if args.karpenter_azure:
        path = "pkg/providers/pricing/zz_generated.pricing.go"
        found = read_versions(args.karpenter_azure, path, lambda t, d: parse_go_prices(t, d, "Standard_N[CDV]"))
        print(format_rate("azure on demand", found))
    if args.karpenter_gcp:
        path = "pkg/providers/pricing/initial-prices.json"
        for purchase in ("on_demand", "spot"):
            found = read_versions(args.karpenter_gcp, path, lambda t, d, p=purchase: parse_gcp(t, d, p))
            print(format_rate(f"gcp {purchase.replace('_', ' ')}", found))
    for provider in GPU_CLOUDS:
        print(format_rate(f"{provider} on demand", read_marketplace(provider, args.old)))
    print(format_rate("colab", read_colab()))


if __name__ == "__main__":
    main()
