"""The dry run at Google Cloud, as it is printed, reviewed line by line: what must be in it, and what not."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from gpuplan.errors import UsageError
from gpuplan.launch.clouds.google.adapter import GoogleAdapter
from gpuplan.launch.core.clock import Clock
from gpuplan.launch.core.launch_plan import LaunchPlan
from gpuplan.launch.core.request import LaunchRequest, RunSpec
from gpuplan.launch.planning import make_plan
from gpuplan.render.launch import plan_text
from launch.bench_on_sockets import candidate
from launch.google.contract import Contract, check_instance

SECRETS = re.compile(r"AKIA|aws_secret|PRIVATE KEY|password|token=|hf_|ghp_", re.IGNORECASE)
TAGS = {
    "gpuplan-run": "r1234abcd-1",
    "gpuplan-attempt": "1",
    "gpuplan-owner": "me",
    "gpuplan-cap-s": "3600",
    "gpuplan-microusd-per-hour": "1500000",
}
OFFERS = {"compute": "n1-standard-8+2xT4", "tpu": "tpu-v6e-8"}
PACKAGES = ("keras==3.15.1", "jax==0.10.2")


def build_launch_plan(
    kind: str, *, purchase: str = "spot", source: str = "git:https://example.org/me/project", **options: str
) -> LaunchPlan:
    """Return a plan of one kind of machine."""
    request = LaunchRequest(
        run="r1234abcd-1",
        owner="me",
        made_at=datetime(2026, 11, 21, 12, tzinfo=UTC),
        provider="gcp",
        candidates=(candidate(OFFERS[kind], "us-east1", purchase=purchase),),
        spec=RunSpec(script="train.py", arguments=("--epochs", "3"), source=source, packages=PACKAGES),
        options={"project": "p1", **options},
    )
    return make_plan(request, GoogleAdapter(state_dir=Path("/state"), clock=Clock()))


def body(plan: LaunchPlan) -> dict[str, Any]:
    """Return what the first attempt asks for."""
    (making,) = [call for call in plan.attempts[0].calls if call.makes == "machine"]
    return making.params["body" if plan.attempts[0].details["kind"] == "tpu" else "instanceResource"]


def script(plan: LaunchPlan) -> str:
    """Return the start-up script."""
    items = {item["key"]: item["value"] for item in body(plan)["metadata"]["items"]}
    return items["startup-script"]


@pytest.mark.parametrize("kind", ["compute", "tpu"])
def test_the_printed_plan_is_the_reviewed_one(golden: Callable[[str, str], None], kind: str) -> None:
    """`--dry-run` as text, to the letter."""
    golden(f"launch-gcp-{kind}.txt", plan_text(build_launch_plan(kind).to_json()))


def test_the_cap_and_the_tags_are_in_the_request_that_makes_the_machine() -> None:
    """Deleted by the cloud after an hour, disk and all; read back before the run counts as started."""
    plan = build_launch_plan("compute")
    asked = body(plan)
    assert asked["scheduling"] == {
        "provisioningModel": "SPOT",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "maxRunDuration": {"seconds": "3600"},
        "instanceTerminationAction": "DELETE",
    }
    assert asked["labels"] == asked["disks"][0]["initializeParams"]["labels"] == TAGS
    assert asked["disks"][0]["autoDelete"] is True
    (cap,) = [call for call in plan.attempts[0].calls if call.arms]
    assert cap.arms == plan.attempts[0].layers[0].name == "max-run-duration"
    assert cap.expects == {
        "id": {"$ref": "machine.id"},
        "scheduling.provisioningModel": "SPOT",
        "scheduling.maxRunDuration.seconds": "3600",
        "scheduling.instanceTerminationAction": "DELETE",
        "resourceStatus.scheduling.terminationTimestamp": {
            "$not_after": {
                "$time": {"from": "machine.started", "plus_s": 3900, "format": "%Y-%m-%dT%H:%M:%S+00:00"}
            }
        },
    }
    assert script(plan).splitlines()[1] == "shutdown -P +62"


def test_a_tpu_has_its_deadline_and_its_tags_in_the_request() -> None:
    """`runDuration` of v2alpha1; nothing is bought without it; waiting ends as well."""
    plan = build_launch_plan("tpu", purchase="on_demand")
    asked = body(plan)
    assert asked["runDuration"] == {"maxRunDuration": "3600s"}
    assert asked["queueingPolicy"] == {"validUntilDuration": "900s"}
    assert asked["provisioningModel"] == "FLEX_START"
    assert asked["tpu"]["nodeSpec"][0]["node"]["labels"] == TAGS
    assert {call.arms for call in plan.attempts[0].calls if call.arms} == {"run-duration"}


def test_no_identity_no_key_and_no_firewall_rule() -> None:
    """No rights unless an account was named; logins are IAM's to allow; the network is not changed."""
    asked = body(build_launch_plan("compute"))
    assert asked["serviceAccounts"] == []
    items = {item["key"]: item["value"] for item in asked["metadata"]["items"]}
    assert items["block-project-ssh-keys"] == items["enable-oslogin"] == "TRUE"
    assert "ssh-keys" not in items
    assert "tags" not in asked  # network tags are what firewall rules hang on
    named = body(build_launch_plan("compute", service_account="run@p1.iam.gserviceaccount.com", bucket="gs://b"))
    assert [scope.rpartition("/")[2] for scope in named["serviceAccounts"][0]["scopes"]] == [
        "devstorage.read_write",
        "compute",
    ]
    assert "accessConfigs" not in body(build_launch_plan("compute", external_ip="false"))["networkInterfaces"][0]


@pytest.mark.parametrize("kind", ["compute", "tpu"])
def test_no_secret_is_in_a_plan(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the environment, nothing that looks like a key; an address with a token in it is refused."""
    monkeypatch.setenv("HF_TOKEN", "do-not-show-this")
    text = json.dumps(build_launch_plan(kind).to_json())
    assert "do-not-show-this" not in text
    assert not SECRETS.search(re.sub(r"[A-Za-z0-9+/=]{70,}", "", text))
    with pytest.raises(UsageError, match="a user name, a token"):
        build_launch_plan(kind, source="git:https://me:secret@example.org/me/project")


@pytest.mark.parametrize(
    "options", [{}, {"service_account": "a@p1.iam.gserviceaccount.com", "bucket": "gs://b/c"}]
)
def test_the_start_up_script_is_shell(options: dict[str, str]) -> None:
    """As bash reads it; the trap that ends the machine stands before anything that can fail."""
    text = script(build_launch_plan("compute", **options))
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    lines = text.splitlines()
    assert lines.index("trap end EXIT") < next(number for number, line in enumerate(lines) if "git clone" in line)
    assert 'notices": "gcp' in text


def test_the_worst_case_by_hand() -> None:
    """(3600 + 300 to start + 300 to end) s at $1.5 + 100 GB x $0.0003 + $0.01 an hour."""
    assert float(build_launch_plan("compute").worst_case_usd) == pytest.approx(
        4200 / 3600 * (1.5 + 0.03 + 0.01), abs=1e-9
    )


def test_every_zone_is_an_attempt_with_a_token_of_its_own() -> None:
    """us-east1 has b, c and d."""
    plan = build_launch_plan("compute")
    assert [one.zone for one in plan.attempts] == ["us-east1-b", "us-east1-c", "us-east1-d"]
    assert len({one.calls[0].token for one in plan.attempts}) == 3


def test_google_reads_the_bodies_as_it_says() -> None:
    """Against the discovery documents, without a server; a misspelt field does not pass."""
    compute = Contract("compute.v1")
    asked = body(build_launch_plan("compute"))
    assert not list(compute.validator("Instance").iter_errors(asked))
    check_instance(asked)
    assert list(compute.validator("Instance").iter_errors({**asked, "machinType": "x"}))
    tpu = Contract("tpu.v2alpha1")
    wanted = body(build_launch_plan("tpu"))
    assert not list(tpu.validator("QueuedResource").iter_errors(wanted))
    assert list(tpu.validator("QueuedResource").iter_errors({**wanted, "maxRunDuration": "3600s"}))


@pytest.mark.parametrize("unlike", [{}, {"accelerator": "TPU-v9"}])
def test_a_slice_of_several_hosts_is_not_started_here(unlike: dict[str, str]) -> None:
    """It is handed over; so is one of a TPU that the catalog does not have, of whose hosts nothing is known."""
    request = build_launch_plan("tpu").request
    chosen = candidate("tpu-v5litepod-64", "us-east1").model_copy(update=unlike)
    big = request.model_copy(update={"candidates": (chosen,)})
    with pytest.raises(UsageError, match="several hosts"):
        make_plan(big, GoogleAdapter(state_dir=Path("/state"), clock=Clock()))
