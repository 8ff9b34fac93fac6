"""Answers of the Fake Azure Resource Manager: resources as they are shown, and errors."""

from __future__ import annotations

import json
import re
from typing import Any

from launch.azure.contract import ViolationError
from launch.cloud_server import Answer, Drop

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
QUOTA = (
    "Operation could not be completed as it results in exceeding approved standardNCASv3_T4Family Cores quota. "
    "Location: eastus, Current Limit: 0"
)
FAULTS = {
    "http500": (500, "InternalServerError", "An internal error occurred"),
    "http503": (503, "ServiceUnavailable", "The service is unavailable"),
    "throttle": (429, "TooManyRequests", "The request is being throttled"),
    "unauthorized": (401, "ExpiredAuthenticationToken", "The access token expiry UTC time is earlier than now"),
    "forbidden": (403, "AuthorizationFailed", "The client does not have authorization to perform the action"),
    "capacity": (409, "SkuNotAvailable", "The requested size is currently not available in location eastus"),
    "quota": (409, "OperationNotAllowed", QUOTA),
    "invalid": (400, "InvalidParameter", "Required parameter osProfile.adminUsername is missing"),
    "principal": (400, "PrincipalNotFound", "Principal does not exist in the directory"),
    "busy": (409, "AnotherOperationInProgress", "Another operation on this resource is in progress"),
}
OTHER = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/theirs/providers/Microsoft.Compute/virtualMachines/v0"
AMISS: dict[str, dict[str, Any]] = {  # orders at Azure that are not what was asked for
    "disabled": {"status": "Disabled"},
    "machine": {"targetResourceId": OTHER},
    "time": {"dailyRecurrence": {"time": "0000"}},
    "zone": {"timeZoneId": "Hawaiian Standard Time"},
    "task": {"taskType": "LabVmsStartupTask"},
}
REASONS = {"AllocationFailed": "We do not have sufficient capacity", "OperationNotAllowed": QUOTA}


def is_below(path: str, where: dict[str, str]) -> bool:
    return path.startswith(f"/subscriptions/{where['subscription']}/")


def shown(vm: dict[str, Any], *, statuses: bool) -> dict[str, Any]:
    """Return a machine as Azure shows it."""
    state = vm["_state"]
    failed = state in REASONS
    busy = state in {"Creating", "Deleting"}
    provisioning = "Failed" if failed else state if busy else "Succeeded"
    properties = {**vm["properties"], "provisioningState": provisioning}
    if statuses:
        code = f"failed/{state}" if failed else state.lower() if busy else "succeeded"
        found = [{"code": f"ProvisioningState/{code}", "message": REASONS.get(state, ""), "level": "Info"}]
        if not failed and state != "Creating":
            found.append({"code": f"PowerState/{'running' if state == 'Deleting' else state}", "level": "Info"})
        properties["instanceView"] = {"statuses": found}
    return {**public(vm), "properties": properties}


def timer_s(script: str) -> float:
    """Return what the first line of a start-up script waits for before it ends the machine."""
    first = script.splitlines()[1]
    found = re.match(r"setsid bash -c 'sleep (\d+); while", first)
    if not found:
        raise ViolationError(f"the first line sets no timer: {first[:80]}")
    return float(found.group(1))


def referred(body: Any) -> list[str]:
    """Return the ids that something refers to."""
    return re.findall(r'"id": "(/subscriptions/[^"]+)"', json.dumps(body))


def no_group(where: dict[str, str]) -> Answer:
    return error(404, "ResourceGroupNotFound", f"Resource group '{where['group']}' could not be found.")


def no_resource(where: dict[str, str]) -> Answer:
    return error(404, "ResourceNotFound", f"The resource {where.get('name')} was not found.")


def error(status: int, code: str, message: str) -> Answer:
    return Answer(status, {"error": {"code": code, "message": message}})


def fault(how: str) -> Answer:
    if how == "reset":
        raise Drop
    return Answer(200, '{"id": "/subscr') if how == "garbage" else error(*FAULTS[how])


def public(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith("_")}
