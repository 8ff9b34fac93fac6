"""The scheduled job's own steps, run as they stand, against servers on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from offers.refresh.test_aws_and_azure import packaged
from vendors import azure
from vendors.server import Asked, vendor

RECIPE = Path(__file__).parents[3] / "examples" / "refresh-prices.yml"
SOURCES = ("AWS_BULK", "AWS_SPOT_FEED", "AZURE_RETAIL", "GCP_BILLING", "SKYPILOT_GCP", "VAST_API")


def answer(asked: Asked, *, cent: int) -> dict[str, Any] | None:
    """Answer as Azure for one region; every other vendor is down."""
    items = [
        azure.item_of(o, retailPrice=float(o.usd_per_hour or 0) + cent / 100)
        for o in packaged("azure", region="eastus", purchase="on_demand")
    ]
    return azure.pages({"eastus": items}, asked, size=100)


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
                run = steps[name].replace(
                    "catalog refresh", "catalog refresh --provider azure --region eastus"
                )
                bash = ["bash", "-eo", "pipefail", "-c", run]
                done = subprocess.run(
                    bash, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, (name, done.stderr)
        bodies.append((tmp_path / str(cent) / "diff.md").read_text())

    assert bodies[0].startswith("**Prices**: 0 changed, 49 added, 0 removed.")
    assert bodies[1].startswith("**Prices**: 49 changed, 0 added, 0 removed.")
