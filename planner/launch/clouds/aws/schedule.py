"""Cap outside the machine: a one-time schedule of EventBridge Scheduler that terminates the instance.

Its time is relative to EC2's launch time. All fields that make it work are read back; a schedule of the same name
with other content is never accepted.
"""

from __future__ import annotations

from typing import Any

from ...core.api_call import Call
from ...core.launch_plan import CapLayer
from ...core.request import LaunchCandidate, LaunchRequest
from .owned_names import build_owned_name

__all__ = ["SCHEDULE_SLACK_S", "build_schedule_calls", "build_schedule_layer"]

SCHEDULE_SLACK_S = (
    60.0  # a schedule starts within the minute that it names: docs.aws.amazon.com/scheduler, "at"
)
TERMINATE = "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"
READ_BACK_S = 60.0
ASSUMABLE_S = 180.0  # a new role propagates within seconds, rarely a minute


def build_schedule_layer(cap_s: int, *, made_here: bool) -> CapLayer:
    """Return the layer that the calls arm.

    Args:
        cap_s: Cap of the machine [s].
        made_here: Whether the role is that of `role.build_role_calls`, which is read back too.
    """
    role = "" if made_here else "; the permissions of the given role are not checked"
    return CapLayer(
        name="schedule",
        where="cloud",
        fires_after_s=cap_s + SCHEDULE_SLACK_S,
        how="EventBridge Scheduler terminates it at a time relative to its launch time; target, instance, role "
        "and time are read back",
        unproven=f"not run against the real cloud yet{role}",
    )


def build_schedule_calls(
    request: LaunchRequest, candidate: LaunchCandidate, *, number: int, token: str, role: Any
) -> list[Call]:
    """Return the call that makes the schedule, and the one that reads it back.

    Args:
        number: Number of the attempt.
        token: Token of the attempt.
        role: ARN of the scheduler's role, or a reference to it.
    """
    name = build_owned_name(request, number)
    content = _content(candidate, name=name, role=role)
    params = {
        **content,
        "ClientToken": token,
        "Description": f"gpuplan run {request.run}, attempt {number}, of {request.owner}",
    }
    read = Call(
        step="schedule-armed",
        service="scheduler",
        operation="get_schedule",
        region=candidate.region,
        params={"Name": name},
        expects=_flat({**content, "GroupName": "default"}),
        patience_s=READ_BACK_S,
        arms="schedule",
    )
    undo = Call(
        step="schedule",
        service="scheduler",
        operation="delete_schedule",
        region=candidate.region,
        params={"Name": name},
    )
    find = read.model_copy(update={"step": "schedule", "arms": None, "patience_s": 0.0})
    made = Call(
        step="schedule",
        service="scheduler",
        operation="create_schedule",
        region=candidate.region,
        params=params,
        makes="resource",
        find=find,
        undo=(undo,),
        patience_s=ASSUMABLE_S,
    )
    return [made, read]


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
    """Return nested content as dotted paths, references as values.

    Example:
        >>> _flat({"Target": {"Arn": "a", "Input": {"$json": {}}}})
        {'Target.Arn': 'a', 'Target.Input': {'$json': {}}}
    """
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict) and not any(inner.startswith("$") for inner in value):
            flat |= _flat(value, f"{above}{key}.")
        else:
            flat[f"{above}{key}"] = value
    return flat
