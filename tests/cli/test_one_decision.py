"""Estimate, breakeven and the report of a plan tell one decision, on the packaged prices."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import unescape
from pathlib import Path

import jsonschema
import pytest
from gpuplan.estimate_document import read_offers
from gpuplan.render.report.page import build_report_html
from vendors.quotas import ENVIRON, answer
from vendors.server import vendor

SCHEMAS = Path(__file__).parents[2] / "schemas"
Run = Callable[..., "object"]


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--hour-value", "20"),
        ("--wait-value", "5"),
        ("--provider", "aws", "--provider", "gcp"),
        ("--purchase", "on-demand", "--accelerator", "T4", "--accelerator", "L4"),
        ("--deadline", "1h", "--budget", "3"),
    ],
)
def test_one_decision(gpuplan: Run, saved: str, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """The same picks and sentence in each; breakeven lists the pick first, at its total."""
    plan = tmp_path / "plan.json"
    estimate = json.loads(gpuplan("estimate", saved, *flags, "--json", "-o", str(plan)).out)
    compared = json.loads(gpuplan("breakeven", saved, *flags, "--json").out)
    decision = estimate["decision"]

    assert compared["decision"] == decision
    assert compared["verdict"].startswith(decision["sentence"].partition(". ")[0])
    assert decision["sentence"] in unescape(build_report_html(json.loads(plan.read_text())))
    taken = decision["recommended"]
    way = next(way for way in compared["ways"] if way["instance_type"] == taken["instance_type"])
    assert way["total_usd"] == taken["total_usd"]
    assert way == compared["ways"][0] == compared["totals"][0]["ways"][0]


def test_a_machine_without_quota_is_not_picked(
    gpuplan: Run, saved: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The account of the server may start no G instance: estimate and breakeven pass them over and say so."""
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path))
    flags = ("--accelerator", "T4", "--provider", "aws", "--provider", "gcp", "--region", "us-east-1",
             "--region", "us-central1")  # fmt: skip
    with vendor(answer) as server:
        for name in ("AWS", "GCP"):
            monkeypatch.setenv(f"GPUPLAN_ENDPOINT_{name}_QUOTAS", server.url)
        estimate = json.loads(gpuplan("estimate", saved, *flags, "--quota", "--json").out)
        monkeypatch.setenv("GPUPLAN_QUOTA", "true")
        compared = json.loads(gpuplan("breakeven", saved, *flags, "--json").out)
        monkeypatch.delenv("GPUPLAN_QUOTA")
    decision = estimate["decision"]

    jsonschema.validate(estimate, json.loads((SCHEMAS / "gpuplan.estimate.json").read_text()))
    assert compared["decision"] == decision
    assert decision["recommended"]["provider"] == "gcp"
    refused = [one for one in estimate["offers"] if one["availability"] == "quota"]
    assert refused
    assert all(one["quota"]["state"] == "too_small" for one in refused)
    if float(refused[0]["total_usd"]) < float(decision["recommended"]["total_usd"]):
        assert "your quota is 0 vCPUs for G and VT instances" in decision["sentence"]
    assert read_offers(json.loads(gpuplan("estimate", saved, *flags, "--json").out))[0]["quota"] is None


def test_bad_values_of_hours(gpuplan: Run, saved: str) -> None:
    """Exit code 2 and one line."""
    for command in ("estimate", "breakeven"):
        done = gpuplan(command, saved, "--wait-value", "-1")
        assert done.code == 2
        assert "--wait-value must be at least zero" in done.err
