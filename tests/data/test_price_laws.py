"""Bad prices planted in a copy of the catalog: each is found at its line, and nothing else is."""

from __future__ import annotations

import csv
import shutil
from dataclasses import dataclass
from datetime import date
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from data.laws import find_broken_laws
from gpuplan.offers.catalog_files import PRICE_COLUMNS, Finding
from gpuplan.offers.check import check_catalog

TODAY = date(2026, 11, 28)


@dataclass(frozen=True)
class Planted:
    """A row that is changed, or added when it is not there, and what must be said of it."""

    provider: str
    key: tuple[str, str, str]
    changed: dict[str, str]
    field: str
    message: str


def new(accelerator: str, usd: str, *, devices: str = "1") -> dict[str, str]:
    """Return the cells of a row that is added."""
    return {
        "accelerator": accelerator, "devices": devices, "usd_per_hour": usd, "as_of": "2026-10-04",
        "source": "gpu-price-feed", "estimated": "false", "complete": "true", "status": "active",
    }  # fmt: skip


SHARE, TENTH, DAY = "% of the on-demand price", "exactly a tenth", "has no day"
NAME, REGION, VENDOR, ORDER = ("is not a name of", "median of its regions", "vendors charge", "cheaper than half")
# The first eight stood in the catalog of 2026-11-24, or are like them.
PLANTED = [
    Planted("aws", ("p4de.24xlarge", "eu-central-1", "spot"), new("A100-80GB", "3.429122", devices="8"),
            "usd_per_hour", TENTH),
    Planted("aws", ("p4d.24xlarge", "ap-south-1", "spot"), new("A100-40GB", "2.63444", devices="8"),
            "usd_per_hour", TENTH),
    Planted("aws", ("g4dn.16xlarge", "sa-east-1", "spot"), new("T4", "0.7397"), "usd_per_hour", TENTH),
    Planted("aws", ("g6.4xlarge", "ap-south-1", "spot"), new("L4", "0.158889"), "usd_per_hour", TENTH),
    Planted("lambda", ("lambda:1xH100-SXM", "any", "on_demand"), new("H100-SXM", "2.49"), "instance_type", NAME),
    Planted("runpod", ("runpod:1xA40", "any", "on_demand"), new("A40", "0.79"), "instance_type", NAME),
    Planted("vast", ("vast:1xH200", "any", "on_demand"), new("H200", "2.4"), "instance_type", NAME),
    Planted("lambda", ("gpu_8x_v100", "any", "on_demand"), {"as_of": "2026"}, "as_of", DAY),
    Planted("gcp", ("tpu-v5litepod-8", "us-central1", "on_demand"), {"as_of": "2026-03"}, "as_of", DAY),
    Planted("azure", ("Standard_NC24ads_A100_v4", "eastus", "spot"), {"usd_per_hour": "0.0679"},
            "usd_per_hour", SHARE),
    Planted("aws", ("g5.xlarge", "us-east-1", "spot"), {"usd_per_hour": "0.0447"}, "usd_per_hour", SHARE),
    Planted("gcp", ("a2-highgpu-1g", "us-central1", "spot"), {"usd_per_hour": "0.2"}, "usd_per_hour", SHARE),
    Planted("azure", ("Standard_NC4as_T4_v3", "westeurope", "on_demand"), {"usd_per_hour": "5.26"},
            "usd_per_hour", REGION),
    Planted("aws", ("p5.48xlarge", "ap-northeast-2", "on_demand"), {"usd_per_hour": "7.59"},
            "usd_per_hour", REGION),
    Planted("aws", ("p5en.48xlarge", "eu-north-1", "spot"), {"usd_per_hour": "6.01"}, "usd_per_hour", REGION),
    Planted("runpod", ("NVIDIA L40S [community]", "any", "on_demand"), {"usd_per_hour": "0.0079"},
            "usd_per_hour", VENDOR),
    Planted("lambda", ("gpu_1x_a6000", "any", "on_demand"), {"usd_per_hour": "6900"}, "usd_per_hour",
            "out of bounds"),
    Planted("coreweave", ("rtxp6000-8x", "any", "on_demand"), {"usd_per_hour": "700"}, "usd_per_hour", VENDOR),
    Planted("vast", ("1x H100 SXM [lowest]", "any", "on_demand"), {"usd_per_hour": "0.19"}, "usd_per_hour", ORDER),
    Planted("coreweave", ("gd-8xh200ib-i128", "any", "spot"), {"usd_per_hour": "4.4"}, "usd_per_hour", ORDER),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packaged catalog with all twenty rows in it."""
    copy = tmp_path_factory.mktemp("planted") / "catalog"
    with as_file(files("gpuplan.catalog")) as packaged:
        shutil.copytree(packaged, copy, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    for planted in PLANTED:
        plant(copy, planted)
    return copy


def read(folder: Path, provider: str) -> list[dict[str, str]]:
    """Return the rows of a price file."""
    with (folder / "prices" / f"{provider}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def key_of(row: dict[str, str]) -> tuple[str, str, str]:
    """Return what names an offer within its provider."""
    return (row["instance_type"], row["region"], row["purchase"])


def plant(folder: Path, planted: Planted) -> None:
    """Change a row, or add it in its place."""
    rows = read(folder, planted.provider)
    found = next((row for row in rows if key_of(row) == planted.key), None)
    if found is None:
        named = dict(zip(("instance_type", "region", "purchase"), planted.key, strict=True))
        found = dict.fromkeys(PRICE_COLUMNS, "") | named
        rows = sorted([*rows, found], key=key_of)
    found.update(planted.changed)
    with (folder / "prices" / f"{planted.provider}.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, PRICE_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def find_all(folder: Path) -> list[Finding]:
    """Return the findings of `gpuplan catalog check` and of the laws of the packaged catalog."""
    return [*check_catalog(folder, today=TODAY).findings, *find_broken_laws(folder)]


def test_twenty_planted_rows_are_all_found_and_no_other(folder: Path) -> None:
    """One finding or more at the line of each of the twenty rows; none anywhere else."""
    findings = find_all(folder)
    lines = {
        (planted.provider, 2 + [key_of(row) for row in read(folder, planted.provider)].index(planted.key)): planted
        for planted in PLANTED
    }
    found = {(f.file.removeprefix("prices/").removesuffix(".csv"), f.line) for f in findings}

    assert len(lines) == 20
    assert found == set(lines), [str(f) for f in findings]
    for (provider, line), planted in lines.items():
        said = [f for f in findings if (f.file, f.line) == (f"prices/{provider}.csv", line)]
        assert any(f.field == planted.field and planted.message in f.message for f in said), (planted, said)


def test_a_source_that_is_no_address_is_found(folder: Path) -> None:
    """`repo@commit` is no address."""
    path = folder / "sources.toml"
    path.write_text(path.read_text() + '"made-up" = "owner/repo@1234567 prices.json"\n')

    (found,) = [f for f in find_all(folder) if f.file == "sources.toml"]

    assert (found.field, found.message) == ("made-up", "does not begin with an address")


def test_prices_checked_against_a_second_source_stand_in_the_catalog() -> None:
    """Each is packaged at that price; `equal` says whether the second is within 0.1 %, else why not."""
    with (Path(__file__).parents[2] / "docs" / "price-checks.csv").open(newline="") as stream:
        checks = list(csv.DictReader(stream))
    with as_file(files("gpuplan.catalog")) as packaged:
        rows = {(row["provider"], *key_of(row)): row for row in read_all(packaged)}

    assert len(checks) >= 40
    for check in checks:
        row = rows[check["provider"], *key_of(check)]
        first, second = float(row["usd_per_hour"]), float(check["second_usd_per_hour"])
        assert (row["usd_per_hour"], row["as_of"]) == (check["usd_per_hour"], check["as_of"])
        assert (abs(first / second - 1) < 0.001) == (check["equal"] == "yes") == (check["why_not"] == "")


def read_all(folder: Path) -> list[dict[str, str]]:
    """Return the rows of all price files, with their provider."""
    return [{"provider": p.stem, **row} for p in (folder / "prices").glob("*.csv") for row in read(folder, p.stem)]
