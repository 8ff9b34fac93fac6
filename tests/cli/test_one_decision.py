"""Estimate, breakeven and the report of a plan tell one decision, on the packaged prices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from gpuplan.render.report.page import build_report_html

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
    """The same picks and sentence in each; breakeven lists the free offer that estimate picks."""
    plan = tmp_path / "plan.json"
    estimate = json.loads(gpuplan("estimate", saved, *flags, "--json", "-o", str(plan)).out)
    compared = json.loads(gpuplan("breakeven", saved, *flags, "--json").out)
    decision = estimate["decision"]

    assert compared["decision"] == decision
    assert compared["verdict"].startswith(decision["sentence"])
    assert decision["sentence"] in build_report_html(json.loads(plan.read_text()))
    free = decision["free"]
    listed = {(way["provider"], way["instance_type"]) for way in compared["ways"]}
    assert free is None or (free["provider"], free["instance_type"]) in listed


def test_bad_values_of_hours(gpuplan: Run, saved: str) -> None:
    """Exit code 2 and one line."""
    for command in ("estimate", "breakeven"):
        done = gpuplan(command, saved, "--wait-value", "-1")
        assert done.code == 2
        assert "--wait-value must be at least zero" in done.err
