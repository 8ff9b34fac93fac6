"""Plans of sharded models: from a real estimate of two machines to valid documents, and what to shard."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from gpuplan.offers.catalog import load_catalog
from gpuplan.render.launch import format_export
from launch.export.crds import problems
from launch.export.plans import OFFERS, TWO, export_plan, export_planned, write_sharded_plan

FSDP = "weights, gradients and optimizer state in parts; the script must shard them itself"


@pytest.mark.parametrize(("engine", "kind"), [("kubernetes", "JobSet"), ("ray", "RayJob"), ("skypilot", "")])
def test_an_estimate_of_two_machines_is_exported_with_its_sharding(engine: str, kind: str, tmp_path: Path) -> None:
    """`estimate --hosts 2 --shard fsdp`, 2 x 8 A100: document, price of both, and what the script has to do."""
    plan = write_sharded_plan(tmp_path / "plan.json")
    planned = json.loads(plan.read_text())["offers"]
    found = export_plan(plan, engine)
    document, offer = found["document"], found["offer"]

    assert (found["hosts"], offer["devices"], offer["shard"]) == (2, 16, "fsdp")
    assert offer["usd_per_hour"] == planned[offer["rank"] - 1]["usd_per_hour"]
    assert float(found["worst_case_usd"]) == pytest.approx(float(offer["usd_per_hour"]) * offer["cap_s"] / 3600)
    assert document.get("kind", "") == kind
    assert not kind or problems(document) == []
    assert found["sharding"].startswith(f"fsdp over 16 devices in 2 machines: {FSDP}")
    written = format_export(found)
    assert f"# {found['sharding']}\n" in written
    assert yaml.safe_load(written) == document


def test_the_price_of_two_machines_is_twice_that_of_one(tmp_path: Path) -> None:
    """p4d.24xlarge on demand; the cap is on both, so that the limit halves the time, not the machines."""
    plan = write_sharded_plan(tmp_path / "plan.json")
    data = json.loads(plan.read_text())
    rank = next(place for place, found in enumerate(data["offers"], 1) if found["region"] == "us-east-1")
    usd_per_hour = Decimal(data["offers"][rank - 1]["usd_per_hour"])
    machine = ("p4d.24xlarge", "us-east-1", "on_demand")
    (one,) = (one for one in load_catalog().offers if (one.instance_type, one.region, one.purchase) == machine)
    found = export_plan(plan, "kubernetes", rank=rank, max_usd=200.0)

    assert usd_per_hour == 2 * one.usd_per_hour
    assert found["worst_case_usd"] <= 200
    assert found["offer"]["cap_s"] == int(200 / usd_per_hour * 3600)


@pytest.mark.parametrize("engine", ["skypilot", "dstack", "kubernetes", "ray"])
def test_every_engine_says_what_one_machine_has_to_shard(engine: str, tmp_path: Path) -> None:
    """In the comment above the document; nothing for copies."""
    sharded = {**OFFERS["aws-spot"], "shard": "tensor:4"}
    found = export_planned(tmp_path, sharded, engine)
    copies = export_planned(tmp_path, {**sharded, "shard": "none"}, engine)

    line = "tensor:4 over 4 devices: products of layers in parts; the script must divide them itself"
    assert found["sharding"].startswith(line)
    assert line in format_export(found)
    assert copies["sharding"] == ""
    assert "over 4 devices" not in format_export(copies)
    assert found["document"] == copies["document"]


def test_a_layout_of_the_script_needs_nothing_further(tmp_path: Path) -> None:
    found = export_planned(tmp_path, {**TWO, "shard": "script"}, "kubernetes")

    held = "in parts what the script's own layout divides"
    assert found["sharding"] == f"script over 16 devices in 2 machines: {held}"
