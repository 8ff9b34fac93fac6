"""The scheduled job's own steps, run as they stand, against servers on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.check import check_catalog
from vendors import azure
from vendors.server import Asked, vendor

RECIPE = Path(__file__).parents[3] / "examples" / "refresh-prices.yml"
SOURCES = (
    "SKYPILOT_AWS",
    "SKYPILOT_GCP",
    "SKYPILOT_LAMBDA",
    "SKYPILOT_NEBIUS",
    "AZURE_RETAIL",
    "RUNPOD_API",
    "VAST_API",
)


def answer(asked: Asked, *, cent: int, missing: str = "") -> dict[str, Any] | None:
    """Answer as Azure in eastus, some cents dearer and without a size; all else is down."""
    if "armRegionName eq 'eastus'" not in asked.query.get("$filter", ""):
        return None
    items = [
        {**item, "retailPrice": round(item["retailPrice"] + cent / 100, 6)}
        for item in azure.read_items()
        if item["armSkuName"] != missing and item["retailPrice"]
    ]
    return azure.answer(asked, items, size=100)


# What the document lists of eastus: on demand and on spot.
LISTED = {(name, "on_demand"): Decimal(usd) for name, (usd, _) in azure.LISTED_USD.items()} | {
    (name, "spot"): Decimal(usd) for name, (_, usd) in azure.LISTED_USD.items() if usd
}


def test_the_recipe_refreshes_checks_and_writes_the_difference(tmp_path: Path) -> None:
    """Twice, a cent apart, most vendors down: the job is no failure, and the second difference has every price."""
    recipe = yaml.safe_load(RECIPE.read_text())
    steps = {step["name"]: step["run"] for step in recipe["jobs"]["refresh"]["steps"] if "run" in step}
    bodies = []
    for cent in (0, 1):
        with vendor(lambda asked, cent=cent: answer(asked, cent=cent)) as server:
            environ = {
                **os.environ,
                "GPUPLAN_DATA_DIR": "prices-data",
                "RUNNER_TEMP": str(tmp_path / str(cent)),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "AWS_EC2_METADATA_DISABLED": "true",
                **{f"GPUPLAN_ENDPOINT_{name}": server.url for name in SOURCES},
            }
            (tmp_path / str(cent)).mkdir()
            for name in ("refresh", "check", "difference"):
                run = steps[name].replace("catalog refresh", "catalog refresh --provider azure")
                bash = ["bash", "-eo", "pipefail", "-c", run]
                done = subprocess.run(bash, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
                assert done.returncode == 0, (name, done.stderr)
        bodies.append((tmp_path / str(cent) / "diff.md").read_text())

    assert bodies[0].startswith(f"**Prices**: 0 changed, {len(LISTED)} added, 0 removed.")
    assert bodies[1].startswith(f"**Prices**: {len(LISTED)} changed, 0 added, 0 removed.")


def test_the_release_packages_what_was_refreshed_and_keeps_the_laws(tmp_path: Path) -> None:
    """Azure a cent dearer, one machine not listed: both are in the folder that is built, and no law is broken."""
    root = RECIPE.parents[1]
    workflow = yaml.safe_load((root / ".github" / "workflows" / "release.yml").read_text())
    names = [step.get("name", "") for step in workflow["jobs"]["build"]["steps"]]
    step = next(s for s in workflow["jobs"]["build"]["steps"] if s.get("name", "").startswith("prices of today"))
    shutil.copytree(root / "catalog", tmp_path / "catalog", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(root / ".ci", tmp_path / ".ci")
    missing = "Standard_NC8as_T4_v3"
    run = "\n".join(line for line in step["run"].splitlines() if "pip install" not in line).replace(
        "catalog refresh", "catalog refresh --provider azure"
    )
    with vendor(lambda asked: answer(asked, cent=1, missing=missing)) as server:
        environ = {
            **os.environ,
            "GPUPLAN_DATA_DIR": str(tmp_path / "data"),
            "GPUPLAN_TODAY": "",  # prices read now are checked by the real date
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GPUPLAN_ENDPOINT_AZURE_RETAIL": server.url,
        }
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", run],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert names.index(step["name"]) < names.index("build")
    assert "changed" in (tmp_path / "summary.md").read_text()
    built = {
        (o.instance_type, o.purchase): o.usd_per_hour
        for o in load_catalog(tmp_path / "catalog").offers
        if (o.provider, o.region) == ("azure", "eastus")
    }
    assert (missing, "on_demand") not in built
    for (name, purchase), usd in LISTED.items():
        if name != missing:  # neither on demand nor on spot
            assert built[name, purchase] == usd + Decimal("0.01")
    assert check_catalog(tmp_path / "catalog", today=max(date.today(), date(2026, 11, 25))).findings == ()
