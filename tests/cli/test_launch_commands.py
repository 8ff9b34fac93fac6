"""`launch`, `ps`, `stop`, `reap` as commands: what goes where, and what is refused before anything is asked."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpuplan.launch.blueprint import LaunchPlan

SCHEMAS = Path(__file__).parents[2] / "schemas"


@pytest.fixture
def plan(tmp_path: Path, saved: str, gpuplan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """An estimate of this machine and T4s at AWS, and a ledger of the test's own."""
    monkeypatch.setenv("GPUPLAN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUPLAN_OWNER", "me")
    path = tmp_path / "plan.json"
    arguments = (
        "--provider",
        "local",
        "--provider",
        "lambda",
        "--accelerator",
        "CPU",
        "--accelerator",
        "A10",
    )
    assert gpuplan("estimate", saved, *arguments, "-o", str(path)).code == 0
    return path


def valid(name: str, data: Any) -> None:
    """Fail unless data keep a schema."""
    jsonschema.validate(data, json.loads((SCHEMAS / f"{name}.json").read_text()))


def rank_of(plan: Path, provider: str) -> str:
    """Return the place of a provider's first offer."""
    offers = json.loads(plan.read_text())["offers"]
    return str(next(place for place, offer in enumerate(offers, start=1) if offer["provider"] == provider))


def launch(gpuplan: Callable[..., Any], plan: Path, *arguments: str) -> Any:
    """Dry-run a launch on this machine."""
    rank = rank_of(plan, "local")
    return gpuplan("launch", str(plan), "--rank", rank, "--script", "train.py", "--dry-run", *arguments)


def test_a_dry_run_prints_the_plan_and_leaves_no_trace(
    gpuplan: Callable[..., Any], plan: Path, tmp_path: Path
) -> None:
    """The JSON keeps its schema, and nothing is written to the ledger."""
    done = launch(gpuplan, plan, "--json")

    assert (done.code, done.err) == (0, "")
    valid("gpuplan.launch", json.loads(done.out))
    assert not (tmp_path / "state").exists()


def test_the_schema_is_the_models_own() -> None:
    """The file in `schemas/` is what the plan's type says, so that neither is forgotten."""
    schema = json.loads((SCHEMAS / "gpuplan.launch.json").read_text())
    made = LaunchPlan.model_json_schema(by_alias=True, mode="serialization")

    assert schema["properties"] == made["properties"]
    assert schema["$defs"] == made["$defs"]


def test_a_written_plan_is_applied_as_it_is_or_not_at_all(
    gpuplan: Callable[..., Any], plan: Path, tmp_path: Path
) -> None:
    """A dry run of the written plan prints the same; one letter edited, and it is refused."""
    written = tmp_path / "launch.json"
    first = launch(gpuplan, plan, "--json", "-o", str(written))
    assert json.loads(gpuplan("launch", str(written), "--dry-run", "--json").out) == json.loads(first.out)

    written.write_text(written.read_text().replace('"cap_s": ', '"cap_s": 9', 1))
    refused = gpuplan("launch", str(written), "--dry-run")
    assert (refused.code, "not what its own request gives" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--rank", "999"], 2, "offers"),
        (["--max-hours", "0.01"], 3, "the limits leave 36 s"),
        (["--max-hours", "0.04"], 3, "the limits end it after"),
        (["-O", "zone"], 2, "is no NAME=VALUE"),
        (["-O", "zone=a"], 2, "the local provider has no options"),
        (["--source", "git:https://example.org/x@main"], 2, "the local provider runs a folder"),
    ],
)
def test_what_cannot_be_launched_is_refused(
    gpuplan: Callable[..., Any], plan: Path, arguments: list[str], code: int, message: str
) -> None:
    """One line, and the exit code of its kind."""
    done = launch(gpuplan, plan, *arguments)

    assert (done.code, done.out) == (code, "")
    assert message in done.err


def test_an_offer_that_cannot_be_launched_names_one_that_can(gpuplan: Callable[..., Any], plan: Path) -> None:
    """Lambda has no adapter: the hint has a rank that works."""
    done = gpuplan("launch", str(plan), "--rank", rank_of(plan, "lambda"), "--dry-run")

    assert done.code == 3
    assert f"`--rank {rank_of(plan, 'local')}`" in done.err


def test_an_old_plan_and_a_moved_price_are_refused(gpuplan: Callable[..., Any], plan: Path) -> None:
    """An estimate counts for a week; a price is what it was."""
    data = json.loads(plan.read_text())
    offer = data["offers"][int(rank_of(plan, "local")) - 1]
    offer["usd_per_hour"] = "1.0"
    plan.write_text(json.dumps(data))
    moved = launch(gpuplan, plan)
    assert (moved.code, "moved from $1.0 to $0" in moved.err) == (3, True)

    week = 7 * 86400 + 60
    os.utime(plan, (time.time() - week, time.time() - week))
    old = launch(gpuplan, plan)
    assert (old.code, "168 h ago" in old.err) == (3, True)


def test_what_is_no_plan_is_told_so(gpuplan: Callable[..., Any], tmp_path: Path) -> None:
    """Absent, no JSON, another schema: a line each."""
    path = tmp_path / "plan.json"
    assert "cannot be read" in gpuplan("launch", str(path)).err
    path.write_text("{")
    assert "is no JSON" in gpuplan("launch", str(path)).err
    path.write_text('{"schema": "gpuplan.offers/1"}')
    assert gpuplan("launch", str(path)).code == 2


def test_ps_stop_and_reap_with_nothing_there(gpuplan: Callable[..., Any], plan: Path) -> None:
    """An empty ledger is an answer, not an error."""
    listed = json.loads(gpuplan("ps", "--json").out)
    valid("gpuplan.ps", listed)
    assert listed["machines"] == []
    assert gpuplan("ps").out.startswith("id\trun\tprovider")
    assert gpuplan("stop", "--all", "--provider", "local").code == 0
    assert gpuplan("reap", "--provider", "local").code == 0
    assert gpuplan("stop", "nothing", "--provider", "local").code == 2
    assert gpuplan("stop").code == 2
    assert plan.exists()
