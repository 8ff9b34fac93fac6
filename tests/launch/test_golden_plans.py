"""The dry run of each provider, as it is printed, reviewed line by line: what must be in it, and what not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from gpuplan.launch.clouds.aws.adapter import AwsAdapter
from gpuplan.launch.clouds.local import LocalAdapter
from gpuplan.launch.core.clock import Clock
from gpuplan.launch.core.launch_plan import LaunchPlan
from gpuplan.launch.core.request import LaunchRequest, RunSpec, Seconds
from gpuplan.launch.planning import make_plan
from gpuplan.render.launch import plan_text
from launch.fake_cloud import candidate
from launch.worlds import aws_candidate

MADE_AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
STATE = Path("/state")
HOUR = Seconds(low=1200.0, mid=1500.0, high=1800.0)
STEP = Seconds(low=0.08, mid=0.1, high=0.12)
SECRETS = re.compile(r"AKIA|aws_secret|PRIVATE KEY|password|token=|hf_|ghp_", re.IGNORECASE)


def build_launch_plan(provider: str, **options: str) -> LaunchPlan:
    """Return a provider's plan of the same run."""
    if provider == "local":
        adapter: Any = LocalAdapter(state_dir=STATE, clock=Clock())
        offers = [candidate("local", "this-machine", "0")]
        source = "folder:/home/me/project"
    else:
        adapter = AwsAdapter(state_dir=STATE, clock=Clock())
        offers = [aws_candidate("us-east-1", "spot"), aws_candidate("us-west-2", "on_demand")]
        source = "git:https://example.org/me/project@v1"
    request = LaunchRequest(
        run="r1234abcd-1",
        owner="me",
        made_at=MADE_AT,
        provider=provider,
        candidates=tuple(one.model_copy(update={"run_s": HOUR, "step_s": STEP}) for one in offers),
        spec=RunSpec(
            script="train.py",
            arguments=("--epochs", "3"),
            source=source,
            packages=("keras==3.15.1", "jax==0.10.2"),
        ),
        options=options,
    )
    return make_plan(request, adapter)


AWS_OPTIONS = {
    "scheduler_role": "arn:aws:iam::123456789012:role/gpuplan-end",
    "profile": "gpuplan-machine",
    "bucket": "my-runs",
}


@pytest.fixture(scope="module")
def aws_plan() -> LaunchPlan:
    return build_launch_plan("aws", **AWS_OPTIONS)


@pytest.mark.parametrize("provider", ["local", "aws"])
def test_the_printed_plan_is_the_reviewed_one(
    golden: Callable[[str, str], None], provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--dry-run` as text, to the letter; a change shows up in the diff of a golden file."""
    monkeypatch.setattr("sys.executable", "/usr/bin/python3")
    plan = build_launch_plan(provider, **(AWS_OPTIONS if provider == "aws" else {}))

    golden(f"launch-{provider}.txt", plan_text(plan.to_json()))


def params(plan: LaunchPlan, step: str, attempt: int = 0) -> dict[str, Any]:
    """Return what a step sends."""
    return next(call.params for call in plan.attempts[attempt].calls if call.step == step)


def test_aws_tags_are_in_the_create_call(aws_plan: LaunchPlan) -> None:
    """Instance, volume, spot request and security group: whose, which run, until when."""
    for step, kinds in {
        "machine": {"instance", "volume", "spot-instances-request"},
        "group": {"security-group"},
    }.items():
        given = params(aws_plan, step)["TagSpecifications"]
        assert {one["ResourceType"] for one in given} == kinds
        for one in given:
            assert {tag["Key"]: tag["Value"] for tag in one["Tags"]} == {
                "gpuplan-run": "r1234abcd-1",
                "gpuplan-attempt": "1",
                "gpuplan-owner": "me",
                "gpuplan-cap-s": "3600",
                "gpuplan-microusd-per-hour": "526000",
                "Name": "gpuplan-r1234abcd-1-1",
            }


def test_aws_has_both_caps_and_reads_them_back(aws_plan: LaunchPlan) -> None:
    """Powering off terminates; the script powers off by its first command; a schedule terminates from outside."""
    machine, schedule = params(aws_plan, "machine"), params(aws_plan, "schedule")
    assert machine["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert machine["UserData"].splitlines()[1].split(" # ")[0] == "shutdown -h +60"
    assert schedule["Target"]["Arn"] == "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert schedule["ActionAfterCompletion"] == "DELETE"
    armed = {call.arms: call.expects for call in aws_plan.attempts[0].calls if call.arms}
    assert set(armed) == {layer.name for layer in aws_plan.attempts[0].layers} == {"timer", "schedule"}
    assert all(armed.values())


def test_aws_opens_no_port_and_takes_no_identity_that_was_not_given(aws_plan: LaunchPlan) -> None:
    """No ingress rule; IMDSv2 only; the profile that was named or none; an encrypted disk that goes with it."""
    operations = {call.operation for attempt in aws_plan.attempts for call in attempt.calls}
    assert "authorize_security_group_ingress" not in operations
    machine = params(aws_plan, "machine")
    assert machine["MetadataOptions"]["HttpTokens"] == "required"
    assert machine["IamInstanceProfile"] == {"Name": "gpuplan-machine"}
    assert machine["BlockDeviceMappings"][0]["Ebs"]["DeleteOnTermination"] is True
    assert machine["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True
    assert "IamInstanceProfile" not in params(build_launch_plan("aws"), "machine")
    assert "KeyName" not in machine


def test_aws_spot_is_asked_for_once_and_at_a_price(aws_plan: LaunchPlan) -> None:
    """A persistent request would start machine after machine; the price is what the worst case counts with."""
    spot = params(aws_plan, "machine")["InstanceMarketOptions"]["SpotOptions"]
    assert spot == {
        "SpotInstanceType": "one-time",
        "InstanceInterruptionBehavior": "terminate",
        "MaxPrice": "0.6575",
    }
    assert "InstanceMarketOptions" not in params(aws_plan, "machine", attempt=1)


def test_aws_worst_case_by_hand(aws_plan: LaunchPlan) -> None:
    """(3600 + 600) s at $0.6575 + 100 GB x $0.16 / 730 h + $0.005 an hour."""
    assert float(aws_plan.worst_case_usd) == pytest.approx(4200 / 3600 * (0.6575 + 0.0219 + 0.005), abs=1e-9)


@pytest.mark.parametrize("provider", ["local", "aws"])
def test_no_secret_is_in_a_plan(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the environment, and nothing that looks like a key."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do-not-show-this")
    monkeypatch.setenv("HF_TOKEN", "do-not-show-this")
    text = json.dumps(build_launch_plan(provider).to_json())

    assert "do-not-show-this" not in text
    assert not SECRETS.search(re.sub(r"[A-Za-z0-9+/=]{200,}", "", text))
