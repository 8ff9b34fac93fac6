"""The cap outside the machine at AWS: the schedule that is read back, and the role that it takes on."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from gpuplan.errors import CredentialsError, GpuplanError, NoAnswerError, UsageError
from gpuplan.launch.clouds.aws.attempt import read_options
from gpuplan.launch.clouds.aws.schedule import POLICY
from gpuplan.launch.clouds.aws.schedule import ROLE as MADE
from gpuplan.launch.core.launch_plan import LaunchPlan
from gpuplan.launch.planning import make_plan
from launch.aws.bench import ROLE, Cloud

NAME = "gpuplan.me.r1.1"
FOREIGN = "i-0123456789abcdef0"


def content(cloud: Cloud, instance: str, **other: Any) -> dict[str, Any]:
    """Return the schedule that a launch makes for an instance, with something else in it."""
    started = datetime.fromisoformat(cloud.server.alive()[0]["started"])
    target = {
        "Arn": "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances",
        "RoleArn": ROLE["scheduler_role"],
        "Input": f'{{"InstanceIds":["{instance}"]}}',
        "RetryPolicy": {"MaximumEventAgeInSeconds": 3600, "MaximumRetryAttempts": 185},
    }
    made = {
        "ScheduleExpression": f"at({started + timedelta(seconds=3600):%Y-%m-%dT%H:%M:%S})",
        "ScheduleExpressionTimezone": "UTC", "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE", "State": "ENABLED", "Target": target,
    }  # fmt: skip
    made["Target"] = {**target, **other.pop("Target", {})}
    return {**made, **other}


OTHERS = [
    {"Target": {"Input": f'{{"InstanceIds":["{FOREIGN}"]}}'}},
    {"Target": {"RoleArn": "arn:aws:iam::123456789012:role/other"}},
    {"Target": {"Arn": "arn:aws:scheduler:::aws-sdk:ec2:stopInstances"}},
    {"ScheduleExpression": "at(2030-01-01T00:00:00)"},
    {"ScheduleExpressionTimezone": "Pacific/Honolulu"},
    {"FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 1440}},
    {"ActionAfterCompletion": "NONE"},
    {"State": "DISABLED"},
]


def launched_with(cloud: Cloud, other: dict[str, Any], *, before: str) -> None:
    """Launch while a schedule of the same name with other content is put there before a call is sent."""
    send, planted = cloud.adapter.send, []

    def plant(call: Any, params: Any) -> Any:
        if call.operation == before and not planted:
            planted.append(call)
            (machine,) = cloud.server.alive()
            cloud.server.post(
                "schedule", region="us-east-1", name=NAME, content=content(cloud, machine["id"], **other)
            )
        return send(call, params)

    cloud.adapter.send = plant
    cloud.launcher.launch(cloud.plan())


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: str(next(iter(other))))
@pytest.mark.parametrize("before", ["create_schedule", "get_schedule"])
def test_a_schedule_that_does_something_else_is_no_cap(cloud: Cloud, other: dict[str, Any], before: str) -> None:
    """There already, or changed after it was made: the launch fails, and machine, group and schedule are gone."""
    with pytest.raises(GpuplanError, match="NotAsExpected"):
        launched_with(cloud, dict(other), before=before)

    assert cloud.left() == {}


def test_the_same_schedule_is_adopted(cloud: Cloud) -> None:
    """The reference for the test above: what this computer planted equals what the launch makes."""
    launched_with(cloud, {}, before="create_schedule")

    assert cloud.left() == {"machines": 1, "volumes": 1, "groups": 1, "schedules": 1}


def test_an_answer_lost_after_the_schedule_was_made(cloud: Cloud) -> None:
    """The same call again: one schedule, read back."""
    cloud.fault("CreateSchedule", "after", "reset")
    cloud.launcher.launch(cloud.plan())

    assert cloud.left()["schedules"] == 1


def test_without_a_role_one_is_made_and_kept_and_its_schedule_ends_the_machine(cloud: Cloud) -> None:
    """Once an account; a second launch finds it. Without the guest's timer: the schedule must do it."""
    cloud.launcher.launch(without_timer(cloud.plan(options={})))
    cloud.server.post("clock", add_s=3600 + 60)
    assert cloud.server.alive() == []
    cloud.launcher.refresh("r1")
    assert cloud.left() == {"roles": 1}
    assert cloud.server.post("meter")["roles"] == [MADE]

    cloud.folder = cloud.folder / "second"
    cloud.restart()
    cloud.world.clock.sleep(1)
    cloud.launcher.launch(cloud.plan(options={}, attempt=2))
    assert cloud.server.post("meter")["log"].count("CreateRole") == 1
    cloud.launcher.stop_run("r1")
    assert cloud.left() == {"roles": 1}


def test_a_role_that_is_made_may_terminate_our_instances_and_no_other(cloud: Cloud) -> None:
    """A schedule of that role aimed at an instance without our tag ends nothing."""
    cloud.launcher.launch(cloud.plan(options={}))
    cloud.server.post("foreign", region="us-east-1", tags={"Name": "theirs"})
    theirs = next(one["id"] for one in cloud.server.meter() if one["foreign"])
    other = content(cloud, theirs, Target={"RoleArn": f"arn:aws:iam::123456789012:role/{MADE}"})
    cloud.server.post("schedule", region="us-east-1", name="aimed", content=other)
    cloud.server.post("clock", add_s=3600 + 60)

    ended = {one["id"]: one["ended"] is not None for one in cloud.server.meter()}
    assert ended.pop(theirs) is False
    assert list(ended.values()) == [True]


def test_a_new_role_that_the_scheduler_does_not_know_yet_is_waited_for(cloud: Cloud) -> None:
    """40 s of `ValidationException ... to assume the role`: longer than the tries of one call."""
    cloud.server.post("propagation", s=40)
    cloud.launcher.launch(cloud.plan(options={}))

    assert cloud.left()["schedules"] == 1
    assert cloud.server.post("meter")["log"].count("CreateSchedule") > cloud.world.backoff.tries


def test_a_role_that_never_can_be_assumed_ends_the_machine(cloud: Cloud) -> None:
    """Patience has an end."""
    cloud.server.post("propagation", s=10**6)
    with pytest.raises(GpuplanError, match="assume the role"):
        cloud.launcher.launch(cloud.plan(options={}))

    assert cloud.left() == {"roles": 1}


@pytest.mark.parametrize("operation", ["GetRole", "CreateRole", "PutRolePolicy", "ListRolePolicies"])
def test_iam_refuses_and_nothing_is_started(cloud: Cloud, operation: str) -> None:
    """The error names both ways on."""
    cloud.fault(operation, "before", "AccessDenied")
    with pytest.raises(CredentialsError, match="AccessDenied") as caught:
        cloud.launcher.launch(cloud.plan(options={}))

    assert "-O scheduler_role=ARN" in str(caught.value.hint)
    assert "GPUPLAN_GUEST_CAP_ONLY=true" in str(caught.value.hint)
    assert "RunInstances" not in cloud.server.post("meter")["log"]
    assert {"machines", "groups", "schedules"} & set(cloud.left()) == set()


SCHEDULER = {"Effect": "Allow", "Principal": {"Service": "scheduler.amazonaws.com"}, "Action": "sts:AssumeRole"}
OURS = {**SCHEDULER, "Condition": {"StringEquals": {"aws:SourceAccount": "123456789012"}}}
MAY = {
    "Effect": "Allow",
    "Action": "ec2:TerminateInstances",
    "Resource": "arn:aws:ec2:*:123456789012:instance/*",
    "Condition": {"Null": {"aws:ResourceTag/gpuplan-run": "false"}},
}


@pytest.mark.parametrize(
    ("trust", "policy", "policy_name", "fits"),
    [
        (OURS, MAY, POLICY, True),
        (OURS, None, POLICY, True),
        (SCHEDULER, MAY, POLICY, False),
        ({**OURS, "Principal": {"Service": "ec2.amazonaws.com"}}, MAY, POLICY, False),
        (OURS, {**MAY, "Action": "ec2:StopInstances"}, POLICY, False),
        (OURS, {**MAY, "Effect": "Deny"}, POLICY, False),
        (OURS, {**MAY, "Effect": "Deny"}, "another", False),
    ],
)
def test_a_role_of_the_name_must_be_the_role(
    cloud: Cloud, trust: Any, policy: Any, policy_name: str, fits: bool
) -> None:
    """Trust, policy and what else is attached are compared; a half-made role is completed."""
    cloud.server.post(
        "role",
        name=MADE,
        trust={"Statement": [trust]},
        policy_name=policy_name,
        policy=policy and {"Statement": [policy]},
    )
    if fits:
        cloud.launcher.launch(cloud.plan(options={}))
        assert cloud.left()["schedules"] == 1
        return
    with pytest.raises(GpuplanError, match="NotAsExpected"):
        cloud.launcher.launch(cloud.plan(options={}))
    assert "RunInstances" not in cloud.server.post("meter")["log"]


def test_consent_to_the_guests_timer_alone_needs_no_role_and_no_schedule(cloud: Cloud) -> None:
    """The plan has one layer, and says that it is not verified."""
    plan = cloud.plan(options={}, guest_cap_only=True)
    assert [layer.where for layer in plan.attempts[0].layers] == ["machine"]
    assert "not verified from outside" in plan.attempts[0].layers[0].how
    cloud.launcher.launch(plan)

    log = cloud.server.post("meter")["log"]
    assert {"GetRole", "CreateRole", "CreateSchedule"} & set(log) == set()
    assert cloud.left() == {"machines": 1, "volumes": 1, "groups": 1}


def without_timer(plan: LaunchPlan) -> LaunchPlan:
    """Return a plan whose start-up script sets no timer, as when a machine hangs before it runs."""
    attempt = plan.attempts[0]
    calls = tuple(
        call.model_copy(update={"params": {**call.params, "UserData": "#!/bin/bash\nsleep 99999\n"}})
        if call.makes == "machine"
        else call
        for call in attempt.calls
    )
    return plan.model_copy(update={"attempts": (attempt.model_copy(update={"calls": calls}),)})


@pytest.mark.parametrize(
    ("trust", "policy", "says"),
    [
        (SCHEDULER, MAY, None),
        (OURS, {**MAY, "Action": ["ec2:*"]}, None),
        ({**SCHEDULER, "Principal": {"Service": ["ec2.amazonaws.com", "scheduler.amazonaws.com"]}}, MAY, None),
        ({**SCHEDULER, "Principal": {"Service": "ec2.amazonaws.com"}}, MAY, "does not let scheduler"),
        (SCHEDULER, {**MAY, "Action": "ec2:StopInstances"}, "implicitDeny"),
        (SCHEDULER, {**MAY, "Condition": {"Null": {"aws:ResourceTag/theirs": "false"}}}, "implicitDeny"),
        (SCHEDULER, None, "implicitDeny"),
    ],
)
def test_a_given_role_is_looked_at_before_its_cap_is_claimed(
    cloud: Cloud, trust: Any, policy: Any, says: str | None
) -> None:
    """Its trust is read, its rights are simulated on a machine with our tags; the plan claims what is proven."""
    cloud.server.post("role", name="mine", trust={"Statement": [trust]}, policy_name="may",
                      policy=policy and {"Statement": [policy]})  # fmt: skip
    plan = cloud.plan(options={"scheduler_role": "arn:aws:iam::123456789012:role/mine"})
    assert "a dry run sends no request" in plan.attempts[0].layers[1].unproven
    if says:
        with pytest.raises(NoAnswerError, match=says) as caught:
            cloud.adapter.find_cap_problem(plan.request)
        assert "leave `-O scheduler_role` out" in str(caught.value.hint)
        return
    looked = plan.request.model_copy(update={"cap_problem": cloud.adapter.find_cap_problem(plan.request)})
    assert [layer.unproven for layer in make_plan(looked, cloud.adapter).attempts[0].layers] == ["", ""]


@pytest.mark.parametrize(
    ("operation", "what"), [("GetRole", "AccessDenied"), ("SimulatePrincipalPolicy", "AccessDenied")]
)
def test_a_role_that_may_not_be_looked_at_is_named_as_unproven(cloud: Cloud, operation: str, what: str) -> None:
    """With the cloud's reason; the launch itself goes on, and arms the schedule with it."""
    cloud.fault(operation, "before", what)
    request = cloud.plan().request
    problem = cloud.adapter.find_cap_problem(request)
    looked = request.model_copy(update={"cap_problem": problem})
    layer = make_plan(looked, cloud.adapter).attempts[0].layers[1]
    assert "could not be looked at: AccessDenied" in layer.unproven
    cloud.launcher.launch(make_plan(looked, cloud.adapter))
    assert cloud.left()["schedules"] == 1


def test_conditions_of_a_trust_policy_are_not_guessed(cloud: Cloud) -> None:
    """A condition on the schedule's group may or may not hold."""
    trust = {**SCHEDULER, "Condition": {"ArnLike": {"aws:SourceArn": "arn:aws:scheduler:*:*:schedule/ours/*"}}}
    cloud.server.post("role", name="mine", trust={"Statement": [trust]}, policy_name="may",
                      policy={"Statement": [MAY]})  # fmt: skip
    request = cloud.plan(options={"scheduler_role": "arn:aws:iam::123456789012:role/mine"}).request
    assert "undecided" in cloud.adapter.find_cap_problem(request)


def test_a_role_is_named_by_its_arn() -> None:
    """`x` is no role."""
    with pytest.raises(UsageError, match="scheduler_role=x` is not the ARN"):
        read_options({"scheduler_role": "x"})
