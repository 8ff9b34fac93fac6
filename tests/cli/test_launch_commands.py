"""`launch`, `ps`, `stop`, `reap` as commands: what goes where, and what is refused before anything is asked."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import gpuplan as gpuplan_package
import jsonschema
import pytest
from gpuplan.launch.core.clock import Clock
from gpuplan.launch.core.launch_plan import LaunchPlan
from gpuplan.launch.core.ledger import Ledger
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.refreshed_prices import PriceStore, RefreshedOffer
from gpuplan.render.output import emit_json, emit_text, emit_tsv
from gpuplan.render.progress import say
from launch.export.plans import OFFERS, write_plan

SCHEMAS = Path(__file__).parents[2] / "schemas"


@pytest.fixture
def plan(tmp_path: Path, saved: str, gpuplan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """An estimate of this machine and T4s at AWS, and a ledger of the test's own."""
    monkeypatch.setenv("GPUPLAN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUPLAN_OWNER", "me")
    path = tmp_path / "plan.json"
    arguments = ("--provider", "local", "--provider", "lambda", "--accelerator", "CPU", "--accelerator", "A10")
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


@pytest.mark.parametrize("as_json", [False, True])
def test_a_dry_run_says_what_the_script_has_to_shard(
    as_json: bool, gpuplan: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among the notes of the plan, which is printed before the question; once for all fallbacks."""
    monkeypatch.setenv("GPUPLAN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUPLAN_OWNER", "me")
    sharded = {**OFFERS["aws-spot"], **SERVED, "shard": "fsdp"}
    path = write_plan(tmp_path, sharded, {**sharded, "region": "us-west-2"})
    done = gpuplan("launch", str(path), *CLOUD, *(["--json"] if as_json else []))

    line = "fsdp over 4 devices: weights, gradients and optimizer state in parts; the script must shard them"
    assert done.code == 0, done.err
    assert done.out.count(line) == 1
    if as_json:
        told = json.loads(done.out)
        assert [one["shard"] for one in told["request"]["candidates"]] == ["fsdp", "fsdp"]
        assert told["notes"][0].startswith(line)


def test_a_dry_run_says_how_the_script_has_to_fit(
    gpuplan: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan of `estimate --fit` in four passes with recomputed layers; one in the whole batch says nothing."""
    monkeypatch.setenv("GPUPLAN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUPLAN_OWNER", "me")
    whole = {**OFFERS["aws-spot"], **SERVED, "batch_size_per_device": 64, "micro_batch_size": 64}
    fitted = {**whole, "micro_batch_size": 16, "gradient_accumulation_steps": 4, "recomputed": True}
    line = "batches of 16 a device, with `gradient_accumulation_steps=4` of the optimizer, and layers made under"

    for row, times in ((fitted, 1), (whole, 0)):
        done = gpuplan("launch", str(write_plan(tmp_path, row)), *CLOUD)
        assert done.code == 0, done.err
        assert done.out.count(line) == times


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
    assert (refused.code, "does not match its request" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--rank", "999"], 2, "offers"),
        (["--max-hours", "0.01"], 3, "the limits leave 36 s"),
        (["--max-hours", "0.04"], 3, "the limits end it after"),
        (["-O", "zone"], 2, "is not NAME=VALUE"),
        (["-O", "zone=a"], 2, "the local provider has no options"),
        (["--source", "git:https://example.org/x@main"], 2, "the local provider runs a folder"),
        (["--source", "image:mine"], 2, "the local provider runs a folder"),
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


def test_a_spot_machine_is_launched_as_the_plan_bills_it(
    gpuplan: Callable[..., Any], plan: Path, saved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Life, notice and the time between checkpoints come from the plan, unless the user says how often."""
    t4 = ("--provider", "aws", "--accelerator", "T4", "--region", "us-east-1", "--purchase", "spot")
    assert gpuplan("estimate", saved, *t4, "-o", str(plan)).code == 0
    spot = json.loads(plan.read_text())["offers"][0]["spot"]
    code = ("--script", "train.py", "--source", "git:https://example.org/me/project@v1")
    dry_run = ("launch", str(plan), "--rank", "1", *code, "--dry-run")

    request = json.loads(gpuplan(*dry_run, "--json").out)["request"]
    first, every_s = request["candidates"][0]["spot"], request["spec"]["checkpoint_every_s"]
    assert every_s == first["checkpoint_every_s"] == spot["checkpoint_interval_s"] != 60.0
    assert (first["notice_s"], first["count"]) == (spot["notice_s"], spot["preemptions"])
    assert first["life_s"] == pytest.approx(3600 * spot["hours_to_preemption"])

    text = gpuplan(*dry_run).out
    assert "notice 120 s" in text
    assert " as planned\n" in text
    monkeypatch.setenv("GPUPLAN_CHECKPOINT_EVERY", "90s")
    assert '"checkpoint_every_s": 90.0' in gpuplan(*dry_run).out


def test_an_old_plan_is_refused(gpuplan: Callable[..., Any], plan: Path) -> None:
    """An estimate counts for a week."""
    week = 7 * 86400 + 60
    os.utime(plan, (time.time() - week, time.time() - week))
    old = launch(gpuplan, plan)
    assert (old.code, "168 h ago" in old.err) == (3, True)


GIT = ("--script", "train.py", "--source", "git:https://example.org/me/project@v1")
CLOUD = (*GIT, "--dry-run")
SERVED = {"instance_type": "g5.12xlarge", "accelerator": "A10G", "purchase": "on_demand"}


@pytest.fixture(autouse=True)
def guest_cap_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own timer is enough."""
    monkeypatch.setenv("GPUPLAN_GUEST_CAP_ONLY", "true")


@pytest.fixture
def cloud_plan(plan: Path, saved: str, gpuplan: Callable[..., Any]) -> Path:
    """An estimate of T4s at AWS, whose price was read long ago."""
    arguments = ("--provider", "aws", "--region", "us-east-1", "--accelerator", "T4", "--purchase", "on-demand")
    assert gpuplan("estimate", saved, *arguments, "-o", str(plan)).code == 0
    data = json.loads(plan.read_text())
    for offer in data["offers"]:
        offer["price_as_of"] = "2026-01-21"
    plan.write_text(json.dumps(data))
    return plan


AWS_NOWHERE = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}


def test_a_cloud_is_not_paid_by_a_price_older_than_90_days(
    gpuplan: Callable[..., Any], cloud_plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current price cannot be read; a dry run reads none and states when it will be read."""
    for name, value in AWS_NOWHERE.items():
        monkeypatch.setenv(name, value)
    written = tmp_path / "launch.json"
    shown = gpuplan("launch", str(cloud_plan), *CLOUD, "-o", str(written))
    assert shown.code == 0, shown.err
    assert "as estimated (of 2026-01-21); read again when it is launched" in shown.out

    refused = gpuplan("launch", str(cloud_plan), *CLOUD[:-1], "--yes")
    assert (refused.code, refused.out) == (3, "")
    assert "days old; launching requires one read in the last 90 days" in refused.err
    assert "set `GPUPLAN_ACCEPT_OLD_PRICES=true`" in refused.err
    again = gpuplan("launch", str(written), "--yes")
    assert (again.code, "launching requires one read in the last 90 days" in again.err) == (3, True)


def test_a_launch_knows_refreshed_prices(
    gpuplan: Callable[..., Any], cloud_plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is compared with the refreshed price; a plan made from it needs no flag."""
    monkeypatch.setenv("GPUPLAN_DATA_DIR", str(tmp_path / "data"))
    first = json.loads(cloud_plan.read_text())["offers"][0]
    packaged = next(
        one
        for one in load_catalog().offers
        if (one.provider, one.instance_type, one.region, one.purchase)
        == ("aws", first["instance_type"], first["region"], "on_demand")
    )
    now = datetime.now(tz=UTC)
    refreshed = {
        "usd_per_hour": Decimal("0.9"),
        "price_as_of": now.date().isoformat(),
        "url": "http://x",
        "sku": "y",
        "fetched_at": now,
    }
    PriceStore(tmp_path / "data").write("aws", [RefreshedOffer.read({**vars(packaged), **refreshed})])

    for name, value in AWS_NOWHERE.items():
        monkeypatch.setenv(name, value)
    start = ("launch", str(cloud_plan), *CLOUD[:-1], "--rank", "1")
    monkeypatch.setenv("GPUPLAN_ACCEPT_OLD_PRICES", "true")
    moved = gpuplan(*start, "--yes")
    assert (moved.code, f"changed from ${first['usd_per_hour']} to $0.9" in moved.err) == (3, True)

    data = json.loads(cloud_plan.read_text())
    data["offers"] = [{**first, "usd_per_hour": "0.9", "price_as_of": refreshed["price_as_of"]}]
    cloud_plan.write_text(json.dumps(data))
    done = gpuplan(*start)
    assert (done.code, "confirmation is not possible without a terminal" in done.err) == (
        2,
        True,
    )  # all that is missing is `--yes`


def test_a_container_runs_at_aws_without_an_installation(gpuplan: Callable[..., Any], cloud_plan: Path) -> None:
    """The start-up script pulls it and runs the supervisor in it; nothing is cloned, nothing is installed."""
    arguments = [*CLOUD[:2], "--source", "image:mine", "--dry-run", "--json"]
    done = gpuplan("launch", str(cloud_plan), *arguments)

    assert done.code == 0, done.err
    assert "docker run --rm --init --network host --gpus all" in done.out
    assert "--entrypoint python mine -m gpuplan_agent.supervise" in done.out
    assert "pip install" not in done.out


def test_a_dry_run_names_the_secrets_that_stay_here(
    gpuplan: Callable[..., Any], cloud_plan: Path, tmp_path: Path
) -> None:
    """In a line of its own; standard output is the plan."""
    code = tmp_path / "code"
    code.mkdir()
    for name in ("train.py", ".env"):
        (code / name).write_text("x")
    arguments = ("--script", "train.py", "--source", str(code), "-O", "bucket=b", "-O", "profile=p", "--dry-run")
    done = gpuplan("launch", str(cloud_plan), *arguments)

    assert done.code == 0, done.err
    assert "not uploaded, since they may hold secrets: '.env'; to send one" in done.err
    assert "may hold secrets" not in done.out


def test_what_is_no_plan_is_told_so(gpuplan: Callable[..., Any], tmp_path: Path) -> None:
    """Absent, no JSON, another schema: a line each."""
    path = tmp_path / "plan.json"
    assert "no such file" in gpuplan("launch", str(path)).err
    path.write_text("{")
    assert "is not JSON" in gpuplan("launch", str(path)).err
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


def test_a_damaged_record_is_named_in_a_line(
    gpuplan: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ps`, `stop --all` and `reap` do the rest, and end with exit code 1 and no traceback."""
    monkeypatch.setenv("GPUPLAN_STATE_DIR", str(tmp_path / "state"))
    run = tmp_path / "state" / "runs" / "r1"
    run.mkdir(parents=True)
    (run / "plan-1.json").write_text("{")
    (run / "journal.jsonl").write_bytes(b'{"event": "intent", "attempt": 1}\n\xff\n')
    local = ("--provider", "local")
    for command in (
        ("ps",),
        ("stop", "--all", "--yes", *local),
        ("stop", "r1", "--yes", *local),
        ("reap", *local),
    ):
        done = gpuplan(*command)
        assert done.code == 1
        assert done.err.startswith(
            "error: the record of run `r1` is damaged: journal.jsonl cannot be read in its "
        )
        assert "line 2; plan-1.json cannot be read: " in done.err
        assert f"then move {run} away" in done.err
    listed = json.loads(gpuplan("ps", "--json").out)
    valid("gpuplan.ps", listed)
    assert [one["run"] for one in listed["damaged"]] == ["r1"]


def test_ps_names_the_clouds_that_it_cannot_ask(
    gpuplan: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without credentials, in a line each; they are no error."""
    monkeypatch.setenv("GPUPLAN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr("gpuplan.launch.clouds.aws.adapter.AwsAdapter.missing", lambda _: "no AWS credentials")
    shown = gpuplan("ps", "--cloud", "--json")
    listed = json.loads(shown.out)
    valid("gpuplan.ps", listed)

    assert (shown.code, listed["not_asked"]["aws"], "aws" in listed["asked"]) == (0, "no AWS credentials", False)
    assert "not asked: aws: no AWS credentials\n" in gpuplan("ps", "--cloud").err
    assert gpuplan("ps").err.count("not asked") == 0


def test_a_cloud_that_does_not_answer_hides_no_machine_of_another(
    gpuplan: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are printed, providers without an answer are named, and the exit code is nonzero."""
    monkeypatch.setenv("GPUPLAN_STATE_DIR", str(tmp_path / "state"))
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }.items():
        monkeypatch.setenv(name, value)
    asked = ("--provider", "aws", "--provider", "local")
    done = gpuplan("ps", "--cloud", *asked, "--json")

    listed = json.loads(done.out)
    valid("gpuplan.ps", listed)
    assert listed["asked"] == ["aws", "local"]
    assert [(one["provider"], one["place"]) for one in listed["silent"]] == [
        ("aws", "any region but us-east-1"),
        ("aws", "us-east-1"),
    ]
    assert done.code == 1
    assert (
        "error: aws was asked for its machines in any region but us-east-1 and answered EndpointConnectionError"
        in done.err
    )
    assert "hint: wait a minute, then repeat the command" in done.err
    assert gpuplan("reap", *asked).code == 1
    assert gpuplan("stop", "--all", "--yes", *asked).code == 1


def test_limits_typed_wrong_are_told_in_a_line(gpuplan: Callable[..., Any], plan: Path) -> None:
    """`nan`, `inf`, nothing and less."""
    for flag in ("--max-usd", "--max-hours"):
        for value in ("nan", "inf", "0", "-1"):
            done = launch(gpuplan, plan, f"{flag}={value}")
            assert (done.code, done.out) == (2, "")
            assert done.err.startswith(f"error: `{flag} {value}` is not a valid limit\n\nhint: ")


def test_the_installations_id_is_shown(gpuplan: Callable[..., Any], plan: Path) -> None:
    """The same in `doctor`, in the plan, and beside it the name."""
    request = json.loads(launch(gpuplan, plan, "--json").out)["request"]
    report = json.loads(gpuplan("doctor", "--quick", "--json").out)

    assert request["owner"] == report["owner"]
    assert (request["owner"][:4], request["owner_name"]) == ("own-", "me")


def write_decision(folder: Path, *keys: str, recommended: int = 0) -> Path:
    """Write a plan whose decision recommends one of some offers, and whose cheaper one is the last."""
    path = write_plan(folder, *(OFFERS[key] for key in keys))
    plan = json.loads(path.read_text())
    last = {"offer": len(keys) - 1}
    plan["recommendation"] = {"cheapest": last}
    plan["decision"] = {"recommended": {"offer": recommended}, "free": None, "cheaper": last}
    path.write_text(json.dumps(plan))
    return path


def test_launch_follows_the_decision(gpuplan: Callable[..., Any], tmp_path: Path) -> None:
    """The decision's offer is started, though another is the cheapest."""
    path = write_decision(tmp_path, "aws", "gcp-spot")
    done = gpuplan("launch", str(path), *GIT, "--dry-run", "--json")

    assert done.code == 0, done.err
    assert json.loads(done.out)["request"]["provider"] == "aws"


@pytest.mark.parametrize("key", ["colab", "kaggle"])
def test_a_recommended_notebook_is_told_with_the_way_there(
    gpuplan: Callable[..., Any], tmp_path: Path, key: str
) -> None:
    """Exit code 3: the notebook's command, and the best that can be launched, which is not a day on a CPU."""
    notebook = {**OFFERS["colab"], "provider": key, "usd_per_hour": "0", "memory_fits": True}
    slow = {**OFFERS["gcp-cpu"], "run_time_s": {"mid": 75600.0}, "cost_usd": {"mid": "0.90"}}
    quick = {**OFFERS["aws"], "run_time_s": {"mid": 600.0}, "cost_usd": {"mid": "1.00"}}
    path = write_plan(tmp_path, notebook, slow, quick, {**OFFERS["colab"], "memory_fits": True})
    plan = json.loads(path.read_text())
    path.write_text(json.dumps({**plan, "decision": {"recommended": {"offer": 0}}}))
    done = gpuplan("launch", str(path), *GIT, "--dry-run")

    assert (done.code, done.out) == (3, "")
    rank = 1 if key == "colab" else 4
    assert f"export {path} --to colab --rank {rank} -o notebook.ipynb" in done.err.replace("\n", " ")
    assert "`--rank 3`" in done.err


def test_an_export_takes_the_next_pick_that_its_engine_can_rent(
    gpuplan: Callable[..., Any], tmp_path: Path
) -> None:
    """Naming an engine that rents is a choice to rent."""
    path = write_decision(tmp_path, "colab", "aws")
    done = gpuplan("export", str(path), "--to", "skypilot", *GIT)

    assert done.code == 0, done.err
    assert "g4dn.xlarge" in done.out


def test_a_recommended_machine_that_no_image_serves_is_refused(
    tmp_path: Path, saved: str, gpuplan: Callable[..., Any]
) -> None:
    """Parts of an A10 at Azure need a driver that no image has; the reason is said before anything is asked."""
    plan = str(tmp_path / "plan.json")
    machine = ("--provider", "azure", "--accelerator", "A10", "--steps", "1000")
    assert gpuplan("estimate", saved, *machine, "-o", plan).code == 0
    refused = gpuplan("launch", plan, "--dry-run")
    assert refused.code == 3
    assert "needs the driver GRID, and Ubuntu 24.04 at azure has NVIDIA's open one" in refused.err


def recorded(folder: Path, run: str, **outcome: Any) -> None:
    """Write the record of a run whose machine is gone."""
    log = Ledger(folder, owner="own-0123456789abcdef", clock=Clock()).open_run(run)
    log.record("noted", attempt=1, outcome={"attempt": 1, **outcome})


def test_a_machine_that_failed_before_training_is_told_of_before_the_next(
    gpuplan: Callable[..., Any], plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--yes` nobody would read it: nothing is started, and the line says what to type."""
    run = json.loads(launch(gpuplan, plan, "--json").out)["request"]["run"]
    log = "installing\nJAX sees no GPU \x1b[2J\n"
    recorded(tmp_path / "state", run, status="failed_before_training", stage="proof", log=log)
    start = ("launch", str(plan), "--rank", rank_of(plan, "local"), "--script", "train.py")

    refused = gpuplan(*start, "--yes")
    told = "the last machine of this run ended before training: proof: JAX sees no GPU [2J"
    assert (refused.code, f"error: {told}\n" in refused.err) == (3, True)
    assert "hint: correct the cause, then launch without `--yes`, or as a new run: `--name again`" in refused.err
    asked = gpuplan(*start)
    assert (asked.code, f"{told}\n" in asked.err, "without a terminal" in asked.err) == (2, True, True)

    again = json.loads(launch(gpuplan, plan, "--json", "--name", "again").out)["request"]
    assert again["run"] != run
    recorded(tmp_path / "state", run, status="preempted")
    monkeypatch.chdir(tmp_path)
    assert "ended before training" not in gpuplan(*start).err


HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31mred\u202egnp.exe\x7f\r"


def test_no_control_character_of_a_file_reaches_the_terminal(
    gpuplan: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an estimate and of a launch plan; in the screen, in errors and in JSON, on either output."""
    monkeypatch.setenv("GPUPLAN_STATE_DIR", str(tmp_path / "state"))
    path = write_plan(tmp_path, {**OFFERS["aws"], "price_as_of": "2026-11-01"})
    written = tmp_path / "launch.json"
    assert gpuplan("launch", str(path), *CLOUD, "-o", str(written)).code == 0
    text, shown = written.read_text(), 0
    places = [
        "price_as_of",
        "instance_type",
        "region",
        "script",
        "source",
        "owner",
        "run",
        "stop",
        "notes",
        "exposure",
    ]
    for place in places:
        data = json.loads(text)
        for inner in (data, data["request"], data["request"]["spec"], data["request"]["candidates"][0]):
            if place in inner:
                value = inner[place]
                inner[place] = [HOSTILE] if isinstance(value, list) else HOSTILE if value != {} else {HOSTILE: "x"}
        written.write_text(json.dumps(data))
        for more in ((), ("--json",)):
            done = gpuplan("launch", str(written), "--dry-run", *more)
            assert not CONTROLS.search(done.out + done.err), place
            shown += "error: " in done.err
    assert shown == 2 * len(places)

    for row in ({"instance_type": HOSTILE}, {"provider": HOSTILE}, {"price_as_of": HOSTILE}):
        done = gpuplan("launch", str(write_plan(tmp_path, {**OFFERS["aws"], **row})), *CLOUD)
        assert (done.code in {2, 3}, bool(CONTROLS.search(done.out + done.err))) == (True, False), row


CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def test_a_cloud_s_words_are_escaped_in_tables_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a row contains."""
    for emit in (
        lambda: emit_json("gpuplan.x/1", {"rows": [{"id": HOSTILE}], "one": HOSTILE}),
        lambda: emit_tsv(["id"], [{"id": HOSTILE}]),
        lambda: emit_text(HOSTILE),
        lambda: say(HOSTILE),
    ):
        emit()
        captured = capsys.readouterr()
        assert "\\u202e" in captured.out + captured.err
        assert not CONTROLS.search(captured.out + captured.err)


def test_every_message_goes_through_the_doors_that_escape() -> None:
    """No module of the command line, or of its output, prints by itself."""
    folder = Path(gpuplan_package.__file__).parent
    files = [*(folder / "cli").glob("*.py"), *(folder / "render").glob("*.py")]
    doors = {"output.py", "progress.py", "messages.py"}
    direct = re.compile(r"\bprint\(|std(out|err)\.write\(|typer\.echo\((?!f\"gpuplan \{__version__)")

    assert len(files) > 20
    assert [path.name for path in files if path.name not in doors and direct.search(path.read_text())] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("-o", "/dev/full"), ("--json",), ()])
def test_a_full_disk_is_one_line(plan: Path, arguments: tuple[str, ...]) -> None:
    """For a file that is asked for, and for standard output: exit code 1, no traceback."""
    command = ["launch", str(plan), "--rank", rank_of(plan, "local"), "--script", "train.py", "--dry-run"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gpuplan", *command, *arguments],
            stdout=None if arguments[:1] == ("-o",) else full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert "cannot be written: No space left on device\n\nhint: free some space" in done.stderr
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr


def test_a_full_disk_anywhere_else_is_one_line(
    gpuplan: Callable[..., Any], plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the file with the installation's id."""

    def write(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/owner")

    monkeypatch.setattr("gpuplan.launch.build_plan.load_or_create_owner", write)
    done = launch(gpuplan, plan)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: /data/owner cannot be written: No space left on device\n\nhint: ")
