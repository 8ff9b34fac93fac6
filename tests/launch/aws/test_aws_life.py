"""The life of a machine at AWS: real boto3 over HTTP against moto with what it lacks, judged by the meter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from gpuplan.errors import GpuplanError, NoAnswerError, UsageError
from gpuplan.launch.core.api_call import Call, CloudError, ErrorKind, look_up, resolve
from gpuplan.launch.core.upload import pack_script
from launch.aws.bench import REGIONS, ROLE, Cloud
from launch.consoles import CONSOLE, check_failure_is_read


@pytest.mark.parametrize("purchase", ["on_demand", "spot"])
def test_the_whole_life(cloud: Cloud, purchase: str) -> None:
    """Plan, apply, ps, stop: tags, both caps armed, and nothing left, group and schedule included."""
    up = cloud.launcher.launch(cloud.plan(purchase))
    (metered,) = cloud.server.alive()
    assert metered["id"] == up.machine_id
    assert metered["spot"] == (purchase == "spot")
    assert metered["shutdown"] == "terminate"
    assert len(cloud.server.post("meter")["schedules"]) == 1

    (shown,) = cloud.adapter.machines(REGIONS).machines
    assert (shown.run, shown.attempt, shown.owner, shown.purchase) == ("r1", 1, "me", purchase)
    assert shown.cap_at == shown.started_at + timedelta(seconds=3600)

    cloud.launcher.stop_run("r1")
    assert cloud.server.alive() == []
    assert cloud.server.post("meter")["schedules"] == []
    assert cloud.adapter.machines(REGIONS).machines == ()


@pytest.mark.parametrize("armed", [ROLE, {}])
def test_it_ends_by_itself_at_its_cap(cloud: Cloud, armed: dict[str, str]) -> None:
    """The laptop is gone: the schedule ends it, and without one the start-up script's timer."""
    cloud.launcher.launch(cloud.plan(options=armed))
    cloud.server.post("clock", add_s=3600 + 660)

    assert cloud.server.alive() == []
    (metered,) = cloud.server.meter()
    assert metered["ended"] is not None


def test_no_capacity_and_quota_go_on_as_they_should(cloud: Cloud) -> None:
    """No spot capacity in one region: the next; a quota in both: the answer is no, with the quota's name."""
    cloud.fault("RunInstances", "before", "InsufficientInstanceCapacity")
    up = cloud.launcher.launch(cloud.plan("spot", "on_demand"))
    assert up.attempt.candidate.region == "us-west-2"
    cloud.launcher.stop_run("r1")

    cloud.restart()
    cloud.world.begin("both")
    cloud.folder = cloud.folder / "second"
    cloud.restart()
    cloud.fault("RunInstances", "before", "VcpuLimitExceeded", times=2)
    with pytest.raises(NoAnswerError, match="VcpuLimitExceeded") as caught:
        cloud.launcher.launch(cloud.plan("on_demand", "on_demand"))
    assert "quota" in caught.value.hint


@pytest.mark.parametrize("what", ["reset", "garbage", "InternalError"])
def test_an_answer_lost_after_the_instance_was_made(cloud: Cloud, what: str) -> None:
    """The same token brings the same instance: one, not two."""
    cloud.fault("RunInstances", "after", what, times=2)
    before = cloud.server.post("meter")["log"].count("RunInstances")
    cloud.launcher.launch(cloud.plan())

    assert (
        cloud.server.post("meter")["log"].count("RunInstances") == before + 3
    )  # two answers lost, the third read
    assert len(cloud.server.meter()) == 1


def test_every_answer_lost_it_is_found_by_its_tags(cloud: Cloud) -> None:
    """And adopted, although it shows up late."""
    cloud.fault("RunInstances", "after", "reset", times=3)
    cloud.server.post("invisible", s=20)
    up = cloud.launcher.launch(cloud.plan())

    assert [one["id"] for one in cloud.server.meter()] == [up.machine_id]


def test_a_schedule_that_is_refused_ends_the_machine_at_once(cloud: Cloud) -> None:
    """A layer that the plan promised does not arm: what was started is stopped without a request."""
    cloud.fault("CreateSchedule", "before", "AccessDeniedException")
    with pytest.raises(GpuplanError, match="AccessDenied"):
        cloud.launcher.launch(cloud.plan())

    assert cloud.server.alive() == []


def test_killed_for_real_in_the_middle_of_create(cloud: Cloud) -> None:
    """SIGKILL between EC2's answer and the ledger's record; the same command again: one machine."""
    plan = cloud.plan()
    cloud.world.before_fork()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        send = cloud.adapter.send

        def die_after(call: Call, params: Any) -> Any:
            reply = send(call, params)
            if call.makes == "machine":
                os.kill(os.getpid(), signal.SIGKILL)
            return reply

        cloud.adapter.send = die_after
        try:
            cloud.launcher.launch(plan)
        finally:
            os._exit(0)  # whatever happens, the child runs no other test
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert len(cloud.server.alive()) == 1

    cloud.restart()
    assert cloud.launcher.ledger.peek("r1").state == "unknown"
    up = cloud.launcher.launch(plan)
    assert [one["id"] for one in cloud.server.meter()] == [up.machine_id]


def test_a_reclaimed_spot_machine_is_followed_by_a_new_attempt(cloud: Cloud) -> None:
    """It is gone: its attempt is closed, and the next one has another token."""
    cloud.launcher.launch(cloud.plan("spot"))
    cloud.server.post("reclaim")
    cloud.world.clock.sleep(120)
    assert cloud.launcher.refresh("r1")
    history = cloud.launcher.ledger.peek("r1")
    assert (history.state, history.next_attempt) == ("ended", 2)
    assert cloud.server.post("meter")["schedules"] == []


@pytest.mark.parametrize(
    "tags", [{"gpuplan-cap-s": "31536000"}, {"gpuplan-owner": "you", "gpuplan-run": "r9"}, {}]
)
def test_reap_ends_an_instance_on_record_whatever_its_tags_say(cloud: Cloud, tags: dict[str, str]) -> None:
    """A cap of a year, another owner and run, no tags at all, and the plan's file is lost as well."""
    machine = cloud.launcher.launch(cloud.plan()).machine_id
    ec2 = cloud.adapter._client("ec2", "us-east-1")
    if tags:
        ec2.create_tags(Resources=[machine], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
    else:
        ec2.delete_tags(Resources=[machine])
    (cloud.folder / "runs" / "r1" / "plan-1.json").unlink()
    cloud.server.post("clock", add_s=3605)
    cloud.restart()
    with pytest.raises(GpuplanError, match=r"the record of run `r1` is damaged: plan-1.json cannot be read"):
        cloud.launcher.reap(["aws"], regions=REGIONS)

    assert cloud.left() == {}


def test_reap_leaves_other_owners_alone(cloud: Cloud) -> None:
    """Our tags, their owner, past its cap: it is shown, and left."""
    tags = {"gpuplan-run": "r9", "gpuplan-attempt": "1", "gpuplan-owner": "you", "gpuplan-cap-s": "1"}
    cloud.server.post("foreign", region="us-east-1", tags=tags)
    cloud.server.post("clock", add_s=100)

    assert cloud.launcher.reap(["aws"], regions=REGIONS) == []
    assert [machine.owner for machine in cloud.adapter.machines(REGIONS).machines] == ["you"]


def test_zones_are_tried_in_turn_each_with_a_token_of_its_own(cloud: Cloud) -> None:
    """Idempotency is by zone: the same token in another zone would start another machine."""
    plan = cloud.plan(zones="ab")
    tokens = {call.token for attempt in plan.attempts for call in attempt.calls if call.makes == "machine"}

    assert [attempt.zone for attempt in plan.attempts] == ["us-east-1a", "us-east-1b"]
    assert len(tokens) == 2
    cloud.fault("RunInstances", "before", "InsufficientInstanceCapacity")
    assert cloud.launcher.launch(plan).attempt.zone == "us-east-1b"


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("InsufficientInstanceCapacity", ErrorKind.CAPACITY),
        ("SpotMaxPriceTooLow", ErrorKind.CAPACITY),
        ("MaxSpotInstanceCountExceeded", ErrorKind.QUOTA),
        ("AuthFailure", ErrorKind.CREDENTIALS),
        ("ExpiredToken", ErrorKind.CREDENTIALS),
        ("RequestLimitExceeded", ErrorKind.THROTTLED),
        ("InternalError", ErrorKind.UNKNOWN),
        ("reset", ErrorKind.UNKNOWN),
        ("garbage", ErrorKind.UNKNOWN),
        ("IdempotentParameterMismatch", ErrorKind.INVALID),
        ("IdempotentInstanceTerminated", ErrorKind.SPENT_TOKEN),
    ],
)
def test_what_the_real_client_raises_is_sorted(cloud: Cloud, what: str, kind: ErrorKind) -> None:
    """Through boto3, off the wire: one try, and the kind that decides what comes next."""
    cloud.fault("DescribeInstances", "before", what)
    regions = ["us-east-1", "us-west-2"]
    listing = cloud.adapter.machines(regions)

    assert [fault.kind for fault in listing.failed.values()] == [kind]  # of the region whose request came first
    assert sorted([*listing.failed, *listing.answered]) == regions
    assert cloud.server.post("meter")["log"].count("DescribeInstances") == 2  # one a region


def test_the_server_holds_requests_against_botocores_model(cloud: Cloud) -> None:
    """boto3 and moto let a wrong enum pass; the layer does not."""
    call = next(call for call in cloud.plan().attempts[0].calls if call.makes == "machine")
    params = {
        **call.params,
        "ImageId": "ami-12c6146b",
        "SecurityGroupIds": [],
        "BlockDeviceMappings": [],
        "InstanceInitiatedShutdownBehavior": "terminat",
    }
    with pytest.raises(CloudError, match="terminat"):
        cloud.adapter.send(call, params)


def test_the_start_up_script_is_a_script(cloud: Cloud, tmp_path: Path) -> None:
    """Within 16 KB, accepted by bash, the timer first; run with a fake `shutdown`, a failure powers off."""
    call = next(call for call in cloud.plan().attempts[0].calls if call.makes == "machine")
    script = call.params["UserData"]
    assert script.splitlines()[1].startswith("shutdown -h +60 ")
    assert len(pack_script(script)) < 14_000
    (tmp_path / "script.sh").write_text(script.replace("/opt/gpuplan", str(tmp_path / "opt")))
    assert subprocess.run(["bash", "-n", str(tmp_path / "script.sh")], check=False).returncode == 0

    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in {"shutdown": f'echo "$@" >> {tmp_path}/calls', "git": "exit 1", "sleep": "true"}.items():
        (commands / name).write_text(f"#!/bin/bash\n{text}\n")
        (commands / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}
    subprocess.run(["bash", str(tmp_path / "script.sh")], env=environment, check=False, capture_output=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0].startswith("-h +60")
    assert calls[-1] == "-h now"
    assert (tmp_path / "opt" / "gpuplan_agent" / "supervise.py").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zone": "a"}, "has no such option"),
        ({"bucket": "b"}, "needs `--option profile` too"),
        ({"disk_gb": "many"}, "not a number of gigabytes"),
    ],
)
def test_options_that_do_not_fit(cloud: Cloud, options: dict[str, str], message: str) -> None:
    """Told before anything is asked."""
    with pytest.raises(UsageError, match=message):
        cloud.plan(options=options)


def test_planning_needs_no_sdk_and_no_credentials(tmp_path: Path) -> None:
    """The pure half, in a process of its own: boto3 is not loaded, and the same request gives the same plan."""
    probe = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from datetime import datetime, UTC\n"
        "from gpuplan.launch.clouds.aws.adapter import AwsAdapter\n"
        "from gpuplan.launch.planning import make_plan\n"
        "from gpuplan.launch.core.request import LaunchRequest, RunSpec, LaunchCandidate\n"
        "one = LaunchCandidate(rank=1, instance_type='g4dn.xlarge', accelerator='T4', devices=1,"
        " region='us-east-1', purchase='spot', usd_per_hour='0.2', price_as_of=None, run_s=None, step_s=None,"
        " cap_s=3600)\n"
        "ask = LaunchRequest(run='r1', owner='me', made_at=datetime(2026, 11, 21, tzinfo=UTC), provider='aws',"
        " candidates=(one,), spec=RunSpec(script='t.py', source='git:https://example.org/x'))\n"
        "adapter = AwsAdapter(state_dir=Path('.'), clock=None)\n"
        "assert make_plan(ask, adapter) == make_plan(ask, adapter)\n"
        "print([name for name in ('boto3', 'botocore') if name in sys.modules])\n"
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-c", probe, str(tmp_path)], env=clean, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("operation", ["CreateSecurityGroup", "RunInstances"])
def test_a_region_without_a_default_network_names_the_option(cloud: Cloud, operation: str) -> None:
    """EC2 answers `VPCIdNotSpecified`; the way out is an option, and nothing is left."""
    cloud.fault(operation, "before", "VPCIdNotSpecified")
    with pytest.raises(GpuplanError, match="VPCIdNotSpecified") as caught:
        cloud.launcher.launch(cloud.plan())
    assert "`-O subnet=ID -O vpc=ID`" in str(caught.value.hint)
    assert cloud.left() == {}


def test_the_disk_is_the_images_root_device(cloud: Cloud) -> None:
    """Amazon Linux calls it /dev/xvda, Ubuntu /dev/sda1: another name would add a second disk."""
    calls = {call.step: call for call in cloud.plan().attempts[0].calls}
    image = {"image": {"id": "ami-12c6146b"}}
    reply = cloud.adapter.send(calls["root"], resolve(calls["root"].params, image))
    device = look_up(reply, calls["root"].keeps["device"])
    assert device.startswith("/dev/")
    asked = calls["machine"].params["BlockDeviceMappings"]
    assert resolve(asked, {"root": {"device": device}})[0]["DeviceName"] == device


@pytest.mark.parametrize("old", [False, True])
def test_a_failure_before_training_is_read_from_the_console(cloud: Cloud, old: bool) -> None:
    """There is no bucket; an instance of an old kind has no latest output, but the one that EC2 has kept."""
    cloud.launcher.launch(cloud.plan())
    assert cloud.launcher.watch("r1") is None
    cloud.server.post("console", text=CONSOLE, old=old)

    check_failure_is_read(cloud.launcher, "aws")
