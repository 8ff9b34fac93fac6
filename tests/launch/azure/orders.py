"""What ends machines of the Fake Azure Resource Manager: rights, schedules of auto-shutdown, scheduled actions."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

from launch.azure.answers import AMISS, error, no_resource, public
from launch.azure.contract import ViolationError
from launch.cloud_server import Answer, CloudState

FOREVER = float("inf")


class Orders(CloudState):
    """Role assignments, schedules and scheduled actions for machines."""

    vms: dict[str, dict[str, Any]]
    roles: dict[str, dict[str, Any]]
    schedules: dict[str, dict[str, Any]]
    orders: dict[str, dict[str, Any]]

    def _put_role(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        vm = path.partition("/providers/microsoft.authorization/")[0]
        if vm not in self.vms:
            return no_resource(where)
        if path in self.roles:
            return error(409, "RoleAssignmentExists", "The role assignment already exists.")
        amiss = self.take_fault("roleAssignments.createOrUpdate", "unarmed")
        given = {**body["properties"], **({"principalId": str(uuid.uuid4())} if amiss == "principal" else {})}
        if amiss != "yes":
            self.roles[path] = {"properties": given, "id": path, "_vm": vm}
        return Answer(201, {"properties": body["properties"]})

    def _get_role(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        role = self.roles.get(path)
        return Answer(200, {"properties": role["properties"]}) if role else no_resource(where)

    def _put_schedule(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        wanted = body["properties"]
        vm = wanted["targetResourceId"].lower()
        if vm not in self.vms or not where["name"].endswith(self.vms[vm]["name"]):
            raise ViolationError("a schedule is named shutdown-computevm-MACHINE, for a machine that exists")
        amiss = self.take_fault("globalSchedules.createOrUpdate", "unarmed")
        made = {**wanted, **AMISS[amiss]} if amiss else wanted
        target = made["targetResourceId"].replace("/resourceGroups/", "/resourcegroups/")  # as Azure shows it
        self.schedules[path] = {**body, "properties": {**made, "targetResourceId": target}, **self._fires(made)}
        return Answer(201, public(self.schedules[path]))

    def _fires(self, made: dict[str, Any]) -> dict[str, Any]:
        """Return what a schedule ends, and when; one that is not in force ends nothing."""
        works = made["status"] == "Enabled" and made["taskType"] == "ComputeVmShutdownTask"
        at_s = self._next(made["dailyRecurrence"]["time"])
        return {"_vm": made["targetResourceId"].lower(), "_at_s": at_s if works else FOREVER}

    def _submit_order(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        """Take an order for a date."""
        (machine,) = body["resources"]["ids"]
        if machine.lower() not in self.vms:
            return error(404, "ResourceNotFound", machine)
        amiss = AMISS.get(self.take_fault("virtualMachinesSubmitDeallocate", "unarmed") or "", {})
        vm, deadline = amiss.get("targetResourceId", machine), body["schedule"]["deadline"]
        if "dailyRecurrence" in amiss:
            deadline = "2030-01-01T00:00:00Z"
        operation = {
            "operationId": str(uuid.uuid4()),
            "resourceId": vm,
            "opType": "Deallocate",
            "subscriptionId": where["subscription"],
            "deadline": deadline.replace("Z", ".0000000+00:00"),
            "deadlineType": body["schedule"]["deadlineType"],
            "timezone": "UTC",
            "state": "Cancelled" if "status" in amiss else "Scheduled",
        }
        at_s = (datetime.fromisoformat(deadline) - self.now()).total_seconds() + self.elapsed_s
        works = operation["state"] == "Scheduled"
        self.orders[operation["operationId"]] = {
            **operation,
            "_vm": vm.lower(),
            "_at_s": at_s if works else FOREVER,
        }
        results = [{"resourceId": vm, "operation": operation}]
        return Answer(
            200, {"description": "", "type": "virtualMachines", "location": where["location"], "results": results}
        )

    def _get_order(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        found = [public(self.orders[one]) for one in body["operationIds"]]
        return Answer(200, {"results": [{"resourceId": one["resourceId"], "operation": one} for one in found]})

    def _get_schedule(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        found = self.schedules.get(path)
        return Answer(200, public(found)) if found else no_resource(where)

    def _next(self, time_of_day: str) -> float:
        """Return when a time of day comes next, by this server's clock [s]."""
        now = self.now()
        then = now.replace(hour=int(time_of_day[:2]), minute=int(time_of_day[2:]), second=0, microsecond=0)
        wait = then - now if then > now else then - now + timedelta(days=1)
        return self.elapsed_s + wait.total_seconds()

    order_deeds = {  # noqa: RUF012
        "roleAssignments.createOrUpdate": _put_role, "roleAssignments.get": _get_role,
        "globalSchedules.createOrUpdate": _put_schedule, "globalSchedules.get": _get_schedule,
        "virtualMachinesSubmitDeallocate": _submit_order, "virtualMachinesGetOperationStatus": _get_order,
    }  # fmt: skip
