"""Caps of a machine: its permission to delete itself, and an order at Azure, both read back.

Azure has two kinds of order, which deallocate the machine but keep disk and address: auto-shutdown at a time of
day, for caps within a day, and a scheduled action at a date for all others. All fields that make an order work are
read back: machine, time, time zone, action and state.
"""

from __future__ import annotations

import uuid
from typing import Any

from ...core.api_call import Call
from ...core.launch_plan import CapLayer
from ...core.shell import READ_TOKEN, quote
from ..base import Draft
from .network import AzureOptions, build_resource_path

# https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
_TOKEN = (
    "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01"
    "&resource=https%3A%2F%2Fmanagement.azure.com%2F"
)
VERSION = "2026-04-01"
DATE = "%Y-%m-%dT%H:%M:%SZ"
AGAIN_S = 15


def build_end_commands(resource: str, *, after_s: int) -> dict[str, str]:
    """Return the commands that end a machine: after some time [s], whatever became of the script, and now."""
    url = f"https://management.azure.com{resource}"
    ask = 'curl -s -f -m 30 -H "Authorization: Bearer $t"'
    loop = (
        f"while :; do t=$(curl -s -m 30 -H Metadata:true '{_TOKEN}' | {READ_TOKEN}); "
        f"{ask} -X DELETE '{url}?api-version={VERSION}' || "
        f"{ask} -X POST -d '' '{url}/deallocate?api-version={VERSION}'; sleep {AGAIN_S}; done"
    )
    timer = f"setsid bash -c {quote(f'sleep {after_s}; {loop}')} > /dev/null 2>&1 &"
    return {"timer": timer, "end": f"bash -c {quote(loop)}"}


BOOT_ALLOWANCE_S = 900.0  # from the start of billing until the start-up script sets its timer, and to the end
READ_BACK_S = 120.0
MINUTE_S = 60
DEALLOCATION_S = 600.0  # maximum time from an order at Azure to the end of billing
SHORTEST_S, LONGEST_S = 30 * 60, 23 * 3600  # auto-shutdown: a time of day at least 30 minutes ahead
UNPROVEN = "tested against Azure's client models only, not against the real cloud"
# https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/compute#virtual-machine-contributor
CONTRIBUTOR = "9980e02c-c2be-4d73-94e8-173b1dc7cf3c"


def has_auto_shutdown(cap_s: int) -> bool:
    """Whether Azure's daily auto-shutdown can implement a cap: 30 minutes to 23 hours."""
    return SHORTEST_S <= cap_s <= LONGEST_S


def build_layers(cap_s: int) -> tuple[CapLayer, ...]:
    name, what = (
        ("auto-shutdown", "auto-shutdown at a time of day")
        if has_auto_shutdown(cap_s)
        else ("scheduled-action", "a scheduled action at a date")
    )
    timer = CapLayer(
        name="timer",
        where="machine",
        fires_after_s=cap_s + BOOT_ALLOWANCE_S,
        how="set by the start-up script, not verified from outside: the machine deletes itself; only its "
        f"permission to do so is read back ({UNPROVEN})",
    )
    order = CapLayer(
        name=name,
        where="cloud",
        fires_after_s=cap_s + 2.0 * MINUTE_S + DEALLOCATION_S,
        how=f"Azure's {what} deallocates it and keeps disk and address; machine, time and action are read back "
        f"({UNPROVEN})",
    )
    return (timer, order)


class CapCalls:
    """Calls that arm the cap of a machine; the step `created` keeps its time of creation."""

    def __init__(self, draft: Draft[AzureOptions]) -> None:
        self.draft, self.candidate, self.chosen = draft, draft.candidate, draft.chosen
        self.name = f"{draft.name}-{draft.token[:8]}"  # of the machine and its group
        self.path = build_resource_path(self.chosen, self.name, "Microsoft.Compute/virtualMachines", self.name)
        self.place = {"subscription": self.chosen.subscription, "group": self.name}
        self.cap_s = draft.candidate.cap_s  # from its creation

    def registered(self) -> Call:
        """Check, before anything is made, that the subscription may use the order's service."""
        service = "DevTestLab" if has_auto_shutdown(self.cap_s) else "ComputeSchedule"
        params = {"subscription": self.chosen.subscription, "namespace": f"Microsoft.{service}"}
        expects = {"registrationState": "Registered"}
        return self.draft.call("registered", "resources", "providers.get", params, expects=expects)

    def right(self) -> list[Call]:
        """Assign the machine a role whose scope is only itself, so that it can end itself."""
        names = {"vm": self.name, "name": str(uuid.uuid5(uuid.UUID(self.draft.token), "end"))}
        definitions = (
            f"/subscriptions/{self.chosen.subscription}/providers/Microsoft.Authorization/roleDefinitions"
        )
        role, principal = f"{definitions}/{CONTRIBUTOR}", {"$ref": "created.principal"}
        wanted = {"roleDefinitionId": role, "principalId": principal, "principalType": "ServicePrincipal"}
        given = {"properties.roleDefinitionId": role.lower(), "properties.principalId": principal}
        more = {"expects": given, "patience_s": READ_BACK_S}
        read = self._call("role-read", "authorization", "roleAssignments.get", names, **more)
        find = read.model_copy(update={"step": "role"})
        body = {**names, "body": {"properties": wanted}}
        return [self._call("role", "authorization", "roleAssignments.create", body, find=find), read]

    def order(self) -> list[Call]:
        """Order the deallocation at Azure, by its clock."""
        return self._auto_shutdown() if has_auto_shutdown(self.cap_s) else self._scheduled_action()

    def _auto_shutdown(self) -> list[Call]:
        """Return the calls of an auto-shutdown in the minute after the cap."""
        names = {"name": f"shutdown-computevm-{self.name}"}
        time = self._at("%H%M")
        wanted = {
            "status": "Enabled", "taskType": "ComputeVmShutdownTask", "dailyRecurrence": {"time": time},
            "timeZoneId": "UTC", "notificationSettings": {"status": "Disabled"}, "targetResourceId": self.path,
        }  # fmt: skip
        body = {"location": self.draft.candidate.region, "tags": self.draft.tags, "properties": wanted}
        made = {
            "properties.targetResourceId": self.path.lower(),
            "properties.dailyRecurrence.time": time,
            "properties.timeZoneId": "UTC",
            "properties.status": "Enabled",
            "properties.taskType": "ComputeVmShutdownTask",
        }
        service, step = "devtestlabs", "auto-shutdown"
        armed = {"arms": step, "patience_s": READ_BACK_S, "expects": made}
        return [
            self._call(step, service, "globalSchedules.createOrUpdate", {**names, "body": body}),
            self._call(f"{step}-armed", service, "globalSchedules.get", names, **armed),
        ]

    def _scheduled_action(self) -> list[Call]:
        """Return the calls of a scheduled action at a date; repeating it changes nothing."""
        where = {"subscription": self.chosen.subscription, "location": self.candidate.region}
        date = self._at(DATE)
        correlation = str(uuid.uuid5(uuid.UUID(self.draft.token), "order"))
        body = {
            "schedule": {"deadline": date, "deadlineType": "InitiateAt", "timezone": "UTC"},
            "executionParameters": {"retryPolicy": {"retryCount": 7, "retryWindowInMinutes": 120}},
            "resources": {"ids": [self.path]},
            "correlationid": correlation,
        }
        asked = {"operationIds": [{"$ref": "scheduled-action.operation"}], "correlationid": correlation}
        found = "results.0.operation"
        made = {
            f"{found}.resourceId": self.path.lower(),
            f"{found}.deadline": date,
            f"{found}.opType": "Deallocate",
            f"{found}.deadlineType": "InitiateAt",
            f"{found}.state": "Scheduled",
        }
        service, step, path = "computeschedule", "scheduled-action", f"{found}.operationId"
        kept = {"keeps": {"operation": path}, "expects": {path: None}}
        armed = {"arms": step, "patience_s": READ_BACK_S, "expects": made}
        call = self.draft.call
        return [
            call(step, service, "virtualMachinesSubmitDeallocate", {**where, "body": body}, **kept),
            call(f"{step}-armed", service, "virtualMachinesGetOperationStatus", {**where, "body": asked}, **armed),
        ]

    def _at(self, form: str) -> dict[str, Any]:
        """Return the minute after the cap, relative to Azure's time of creation."""
        return {"$time": {"from": "created.started", "plus_s": self.cap_s + MINUTE_S, "format": form}}

    def _call(self, step: str, service: str, operation: str, params: dict[str, Any], **more: Any) -> Call:
        """Return a call in the machine's group."""
        return self.draft.call(step, service, operation, {**self.place, **params}, **more)
