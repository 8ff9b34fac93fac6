"""IAM role of EventBridge Scheduler: created once per account, kept, free of charge.

It may only terminate instances with our tag. An existing role is read back and compared: trust policy, its one
permission policy, and that no other policy is attached, which could deny the permission.
"""

from __future__ import annotations

from typing import Any

from ...core.api_call import Call
from ...core.request import TAG_RUN

__all__ = ["POLICY", "ROLE", "build_account_call", "build_role_calls"]

ROLE = "gpuplan-scheduler"
POLICY = "terminate-gpuplan-instances"
KNOWN_S = 60.0  # a new role is visible in IAM within seconds
ACCOUNT = {"$ref": "account.id"}
WAY_OUT = (
    f"ask an administrator to create the role `{ROLE}`, give another with `-O scheduler_role=ARN`, or accept that "
    "nothing outside the machine ends it with `--guest-cap-only`"
)


def build_account_call(region: str) -> Call:
    """Return the call that reads the account's number."""
    return Call(
        step="account",
        service="sts",
        operation="get_caller_identity",
        region=region,
        params={},
        keeps={"id": "Account"},
    )


def build_role_calls(region: str) -> list[Call]:
    """Return the calls that create or check the role; they need `account.id` and keep `role.arn`."""
    named = {"RoleName": ROLE}
    found = _call(
        "role",
        "get_role",
        region,
        named,
        keeps={"arn": "Role.Arn"},
        expects={"Role.AssumeRolePolicyDocument": _build_trust_policy()},
    )
    made = {
        **named,
        "AssumeRolePolicyDocument": {"$json": _build_trust_policy()},
        "Description": f"Lets EventBridge Scheduler terminate instances with the tag {TAG_RUN}",
    }
    policy = {**named, "PolicyName": POLICY}
    allowed = _call(
        "role-policy",
        "get_role_policy",
        region,
        policy,
        expects={"PolicyDocument": _build_policy()},
    )
    return [
        _call("role", "create_role", region, made, keeps={"arn": "Role.Arn"}, find=found, find_first=True),
        _call(
            "role-policy",
            "put_role_policy",
            region,
            {**policy, "PolicyDocument": {"$json": _build_policy()}},
            find=allowed,
            find_first=True,
            patience_s=KNOWN_S,
        ),
        _call(
            "role-policies",
            "list_role_policies",
            region,
            named,
            expects={"PolicyNames": [POLICY]},
            patience_s=KNOWN_S,
        ),
        _call(
            "role-attached",
            "list_attached_role_policies",
            region,
            named,
            expects={"AttachedPolicies": []},
        ),
    ]


def _call(step: str, operation: str, region: str, params: dict[str, Any], **more: Any) -> Call:
    """Return a call of IAM."""
    return Call(
        step=step, service="iam", operation=operation, region=region, params=params, way_out=WAY_OUT, **more
    )


def _build_trust_policy() -> dict[str, Any]:
    """Return the trust policy: the scheduler, for schedules of this account.

    docs.aws.amazon.com/scheduler/latest/UserGuide/cross-service-confused-deputy-prevention.html
    """
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "scheduler.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": ACCOUNT}},
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


def _build_policy() -> dict[str, Any]:
    """Return the permission policy."""
    statement = {
        "Effect": "Allow",
        "Action": "ec2:TerminateInstances",
        "Resource": {"$join": ["arn:aws:ec2:*:", ACCOUNT, ":instance/*"]},
        "Condition": {"Null": {f"aws:ResourceTag/{TAG_RUN}": "false"}},
    }
    return {"Version": "2012-10-17", "Statement": [statement]}
