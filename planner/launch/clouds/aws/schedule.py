"""Cap outside the machine: a one-time schedule of EventBridge Scheduler that terminates it, and its IAM role.

The schedule's time is relative to EC2's launch time. All fields that make it work are read back; a schedule of the
same name with other content is never accepted.

The role is created once per account, kept, free of charge. It may only terminate instances with our tag. An
existing role is read back and compared: trust policy, its one permission policy, and that no other policy is
attached, which could deny the permission.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, NoReturn

from ....errors import NoAnswerError
from ...core.api_call import Call, build_call
from ...core.launch_plan import CapLayer
from ...core.request import TAG_RUN, LaunchCandidate, LaunchRequest
from ..base import Draft

PREFIX = "gpuplan."
_UNFIT = re.compile(r"[^0-9A-Za-z_-]")  # names of schedules: `[0-9a-zA-Z-_.]+`, 64 at most

SCHEDULE_SLACK_S = 60.0  # a schedule starts within the minute that it names: docs.aws.amazon.com/scheduler, "at"
TERMINATE = "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"
READ_BACK_S = 60.0
NOT_LOOKED_AT = "the given role has not been looked at: a dry run sends no request"
ASSUMABLE_S = 180.0  # a new role propagates within seconds, rarely a minute


def build_owned_name(request: LaunchRequest, number: int) -> str:
    """Return the name of a security group and schedule, whose list has no tags: prefix, owner, run and attempt."""
    return f"{PREFIX}{_UNFIT.sub('-', request.owner)}.{request.run}.{number}"


def parse_owned_name(name: str) -> dict[str, Any] | None:
    """Return owner, run and attempt of such a name, or None.

    Example:
        >>> parse_owned_name("gpuplan.own-1a2b.r64879f7d-1.2")
        {'owner': 'own-1a2b', 'run': 'r64879f7d-1', 'attempt': 2}
    """
    match = re.fullmatch(r"gpuplan\.([^.]+)\.([^.]+)\.(\d+)", name)
    return {"owner": match[1], "run": match[2], "attempt": int(match[3])} if match else None


def build_schedule_layer(request: LaunchRequest, cap_s: int, *, is_given: bool) -> CapLayer:
    """Return the layer that the calls arm; the role of `build_role_calls`, not a given one, is read back."""
    problem = NOT_LOOKED_AT if request.cap_problem is None else request.cap_problem
    return CapLayer(
        name="schedule",
        where="cloud",
        fires_after_s=cap_s + SCHEDULE_SLACK_S,
        how="EventBridge Scheduler terminates it at a time relative to its launch time; target, instance, role "
        "and time are read back (not run against the real cloud yet)",
        unproven=problem if is_given else "",
    )


def build_schedule_calls(draft: Draft[Any], *, role: Any) -> list[Call]:
    """Return the call that makes the schedule, and the one that reads it back."""
    name = build_owned_name(draft.request, draft.number)
    content = _content(draft.candidate, name=name, role=role)
    params = {
        **content,
        "ClientToken": draft.token,
        "Description": f"gpuplan run {draft.request.run}, attempt {draft.number}, of {draft.request.owner}",
    }
    call, expects = partial(draft.call, service="scheduler"), _flat({**content, "GroupName": "default"})
    look = partial(call, operation="get_schedule", params={"Name": name}, expects=expects)
    read = look("schedule-armed", patience_s=READ_BACK_S, arms="schedule")
    undo = call("schedule", operation="delete_schedule", params={"Name": name})
    more: dict[str, Any] = {"makes": "resource", "find": look("schedule"), "undo": (undo,)}
    create = call("schedule", operation="create_schedule", params=params, patience_s=ASSUMABLE_S, **more)
    return [create, read]


def _content(candidate: LaunchCandidate, *, name: str, role: Any) -> dict[str, Any]:
    """Return the fields by which the schedule ends this instance at this time."""
    at = {"from": "machine.started", "plus_s": candidate.cap_s, "format": "at(%Y-%m-%dT%H:%M:%S)"}
    return {
        "Name": name,
        "ScheduleExpression": {"$time": at},
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "State": "ENABLED",
        "Target": {
            "Arn": TERMINATE,
            "RoleArn": role,
            "Input": {"$json": {"InstanceIds": [{"$ref": "machine.id"}]}},
            "RetryPolicy": {"MaximumEventAgeInSeconds": 3600, "MaximumRetryAttempts": 185},
        },
    }


def _flat(content: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested content as dotted paths, references as values."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict) and not any(inner.startswith("$") for inner in value):
            flat |= _flat(value, f"{above}{key}.")
        else:
            flat[f"{above}{key}"] = value
    return flat


ROLE = "gpuplan-scheduler"
POLICY = "terminate-gpuplan-instances"
KNOWN_S = 60.0  # a new role is visible in IAM within seconds
WAY_OUT = (
    f"ask an administrator to create the role `{ROLE}`, give another with `-O scheduler_role=ARN`, or accept that "
    "nothing outside the machine ends it with `GPUPLAN_GUEST_CAP_ONLY=true`"
)


def build_role_calls(region: str) -> list[Call]:
    """Return the calls that create or check the role; they need `account.id` and keep `role.arn`.

    Its trust policy lets the scheduler in for schedules of this account only:
    docs.aws.amazon.com/scheduler/latest/UserGuide/cross-service-confused-deputy-prevention.html
    """
    policies = json.loads(files(__package__).joinpath("policies.json").read_text(encoding="utf-8"))
    trust, permission = policies["trust"], policies["permission"]
    named = {"RoleName": ROLE}
    policy = {**named, "PolicyName": POLICY}
    made = {
        **named,
        "AssumeRolePolicyDocument": {"$json": trust},
        "Description": f"Lets EventBridge Scheduler terminate instances with the tag {TAG_RUN}",
    }
    allowing = {**policy, "PolicyDocument": {"$json": permission}}
    trusted = {"Role.AssumeRolePolicyDocument": trust}
    arn = {"arn": "Role.Arn"}

    def call(step: str, operation: str, params: dict[str, Any], **more: Any) -> Call:
        return build_call(step, "iam", operation, params, region=region, way_out=WAY_OUT, **more)

    found = call("role", "get_role", named, keeps=arn, expects=trusted)
    allowed = call("role-policy", "get_role_policy", policy, expects={"PolicyDocument": permission})
    return [
        call("role", "create_role", made, keeps=arn, find=found, find_first=True),
        call("role-policy", "put_role_policy", allowing, find=allowed, find_first=True, patience_s=KNOWN_S),
        call("role-policies", "list_role_policies", named, expects={"PolicyNames": [POLICY]}, patience_s=KNOWN_S),
        call("role-attached", "list_attached_role_policies", named, expects={"AttachedPolicies": []}),
    ]


def find_role_problem(client: Any, role: str, *, regions: Sequence[str], tags: Mapping[str, str]) -> str:
    """Return what cannot be proven of a role; empty if it can end such machines, NoAnswerError if it cannot."""
    account = role.split(":")[4]
    found = client.get_role(RoleName=role.rpartition("/")[2])["Role"]
    statements = _as_list(found["AssumeRolePolicyDocument"].get("Statement"))
    admitting = [one for one in statements if _is_about_scheduler(one)]
    if found["Arn"] != role or not admitting:
        _refuse(role, "its trust policy does not let scheduler.amazonaws.com assume it")
    known: tuple[Any, ...] = ({}, {"StringEquals": {"aws:SourceAccount": account}})
    if any(one.get("Condition", {}) not in known or one["Effect"] != "Allow" for one in admitting):
        return "whether the trust policy of the given role lets the scheduler in is undecided: it has conditions"
    decided = client.simulate_principal_policy(
        PolicySourceArn=role,
        ActionNames=["ec2:TerminateInstances"],
        ResourceArns=[f"arn:aws:ec2:{region}:{account}:instance/*" for region in regions],
        ContextEntries=[
            {"ContextKeyName": f"aws:ResourceTag/{key}", "ContextKeyValues": [value], "ContextKeyType": "string"}
            for key, value in tags.items()
        ],
    )
    decisions = {one["EvalDecision"] for one in decided["EvaluationResults"]}
    if decisions != {"allowed"}:
        _refuse(role, f"its policies do not allow ec2:TerminateInstances ({', '.join(sorted(decisions))})")
    return ""


def _refuse(role: str, why: str) -> NoReturn:
    hint = "leave `-O scheduler_role` out: gpuplan makes one; or give that role these rights"
    raise NoAnswerError(f"{role} cannot end a machine: {why}", hint=hint)


def _is_about_scheduler(statement: Mapping[str, Any]) -> bool:
    """Whether a statement of a trust policy is about the scheduler assuming the role."""
    principal = statement.get("Principal", {})
    services = _as_list(principal.get("Service") if isinstance(principal, dict) else principal)
    actions = _as_list(statement.get("Action"))
    return bool({"scheduler.amazonaws.com", "*"} & {*services}) and bool(
        {"sts:AssumeRole", "sts:*", "*"} & {*actions}
    )


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
