"""Fake Azure Resource Manager on loopback, over TLS: groups, networks, machines, roles, schedules, and tokens.

Requests and answers are held to the official clients' models (`contract.py`). What it decides by itself (how
long things take, what an error looks like, what goes with what) is this project's reading of the documentation;
nobody has compared it with the real cloud.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import sys
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from launch.azure.contract import ViolationError, check_body, check_request, match, methods
from launch.cloud_server import Answer, Billed, CloudState, Drop, serve

MAKING_S, ENDING_S, BOOT_S = 40.0, 30.0, 90.0
TOKEN = "t0ken-of-the-tests"
FOREVER = float("inf")


class AzureCloud(CloudState):
    """Subscriptions with groups of resources."""

    def __init__(self) -> None:
        self.methods = methods()
        self.begin()

    def begin(self) -> None:
        """Forget everything: a new cloud."""
        super().__init__()
        self.groups: dict[str, dict[str, Any]] = {}
        self.network: dict[str, dict[str, Any]] = {}
        self.vms: dict[str, dict[str, Any]] = {}
        self.roles: dict[str, dict[str, Any]] = {}
        self.schedules: dict[str, dict[str, Any]] = {}
        self.billed: dict[str, Billed] = {}

    def answer(self, verb: str, url: str, headers: Any, body: Any) -> Answer:
        """Answer a request: token, contract, faults, deed, contract again."""
        path = url.partition("?")[0]
        if "/oauth2/" in path or path.endswith("openid-configuration"):
            return self._login(path, headers)
        found = match(self.methods, verb, path)
        if found is None:
            self.violations.append(f"{verb} {path}: no such method")
            return _error(404, "InvalidResourceType", path)
        method, where = found
        self.log.append(method.name)
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return _error(401, "AuthenticationFailed", "Authentication failed.")
        try:
            query = check_request(method, url, body)
            before = self.take_fault(method.name, "before")
            if before:
                return _fault(before)
            reply = self._deeds[method.name](self, path.lower(), where | query, headers, body)
            if reply.status < 300 and reply.body:
                shown = reply.body["value"] if method.name.endswith("listAll") else [reply.body]
                for one in shown:
                    check_body(_answered(method), one, where=f"answer of {method.name}", answers=True)
        except ViolationError as error:
            self.violations.append(str(error))
            return _error(400, "InvalidRequestContent", str(error))
        after = self.take_fault(method.name, "after")
        return _fault(after) if after else reply

    def _login(self, path: str, headers: Any) -> Answer:
        """Give the tests' client its token."""
        if path.endswith("/token"):
            return Answer(200, {"token_type": "Bearer", "expires_in": 86_400, "access_token": TOKEN})
        base = f"https://{headers['Host']}/{path.split('/')[1]}"
        return Answer(
            200,
            {
                "issuer": f"{base}/v2.0",
                "token_endpoint": f"{base}/oauth2/v2.0/token",
                "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
            },
        )

    # What time does

    def tick(self) -> None:
        """Let machines come up and go, and their timers and schedules fire."""
        for path, vm in list(self.vms.items()):
            state = vm["_state"]
            if state == "Creating" and self.elapsed_s >= vm["_since"] + MAKING_S:
                vm["_state"] = "running"
            if state == "Deleting" and self.elapsed_s >= vm["_gone"]:
                self._gone(path, vm["_gone"])
            elif state in {"Creating", "running"}:
                self._own_end(path, vm)
        for path, group in list(self.groups.items()):
            if group["_gone"] <= self.elapsed_s and not self._inside(self.vms, path):
                self._forget(path)

    def _own_end(self, path: str, vm: dict[str, Any]) -> None:
        """Let the machine's timer fire if the machine has the right, or Azure's schedule if there is one."""
        has_right = any(
            role["_vm"] == path and role["properties"]["principalId"] == vm["identity"]["principalId"]
            for role in self.roles.values()
        )
        timer_s = vm["_since"] + BOOT_S + vm["_timer_s"] if has_right else FOREVER
        schedule_s = min(
            (one["_at_s"] for one in self.schedules.values() if one["_vm"] == path), default=FOREVER
        )
        if self.elapsed_s >= min(timer_s, schedule_s):
            if timer_s <= schedule_s:
                self._gone(path, timer_s)
            else:
                vm["_state"] = "deallocated"
                self.billed[path].ended_s = schedule_s

    def _gone(self, path: str, at_s: float) -> None:
        """A machine goes, and its network interface and address with it: their `deleteOption` says so."""
        vm = self.vms.pop(path)
        if self.billed[path].ended_s is None:
            self.billed[path].ended_s = at_s
        for card in vm["properties"]["networkProfile"]["networkInterfaces"]:
            if card["properties"]["deleteOption"] != "Delete":
                self.violations.append(f"{path} leaves its network interface")
            gone = self.network.pop(card["id"].lower(), {})
            for one in gone.get("properties", {}).get("ipConfigurations", []):
                address = one["properties"]["publicIPAddress"]
                if address["properties"]["deleteOption"] == "Delete":
                    self.network.pop(address["id"].lower(), None)
        self.roles = {key: role for key, role in self.roles.items() if role["_vm"] != path}

    def _inside(self, these: dict[str, Any], group: str) -> list[str]:
        return [path for path in these if path.startswith(f"{group}/")]

    def _forget(self, path: str) -> None:
        """A group has gone with all that was in it."""
        del self.groups[path]
        for these in (self.network, self.schedules):
            for one in self._inside(these, path):
                del these[one]

    def control(self, order: dict[str, Any]) -> dict[str, Any]:
        if order.get("begin"):
            self.begin()
        for path, vm in list(self.vms.items()):
            ours = vm["tags"]["gpuplan-owner"] == "me"
            if (order.get("reclaim_all") and ours) or order.get("reclaim") == vm["tags"]["gpuplan-run"]:
                self._gone(path, self.elapsed_s)
            if order.get("power_off") == vm["tags"]["gpuplan-run"]:
                vm["_state"] = "stopped"
        if order.get("lose_roles"):
            self.roles.clear()
        if "foreign" in order:
            self._foreign(order["foreign"])
        state = super().control(order)
        left = [self.groups, self.network, self.vms, self.roles, self.schedules]
        return {**state, "left": [path for these in left for path in these]}

    def _foreign(self, tags: dict[str, str]) -> None:
        """Somebody else starts a machine that has no cap."""
        number = len(self.vms)
        group = f"/subscriptions/{_SUBSCRIPTION}/resourcegroups/theirs"
        path = f"{group}/providers/microsoft.compute/virtualmachines/v{number}"
        self.vms[path] = {
            "id": path, "name": f"v{number}", "location": "eastus", "tags": tags, "identity": {},
            "properties": {
                "timeCreated": self.now().isoformat(), "hardwareProfile": {"vmSize": "Standard_NC4as_T4_v3"},
                "networkProfile": {"networkInterfaces": []},
            },
            "_state": "running", "_since": self.elapsed_s, "_timer_s": FOREVER,
        }  # fmt: skip
        self.billed[path] = Billed(f"v{number}", f"v{number}", tags, self.elapsed_s)
        self.meter.append(self.billed[path])

    # Groups and networks

    def _group(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        known = self.groups.get(path)
        if known and known["_gone"] < FOREVER:
            return _error(409, "ResourceGroupBeingDeleted", "The resource group is in deprovisioning state")
        self.groups[path] = {**body, "id": path, "name": where["group"], "_gone": FOREVER}
        return self._get_group(path, where, headers, None)

    def _get_group(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        group = self.groups.get(path)
        if group is None:
            return _no_group(where)
        state = "Deleting" if group["_gone"] < FOREVER else "Succeeded"
        return Answer(200, {**_public(group), "properties": {"provisioningState": state}})

    def _delete_group(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        if path not in self.groups:
            return _no_group(where)
        self.groups[path]["_gone"] = min(self.groups[path]["_gone"], self.elapsed_s + ENDING_S)
        for one in self._inside(self.vms, path):
            self._begin_end(self.vms[one])
        return Answer(202, "")

    def _put_network(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        missing = self._missing(where, _referred(body))
        if missing:
            return missing
        self.network[path] = {**body, "id": path, "name": where["name"]}
        self.network[path]["properties"]["provisioningState"] = "Succeeded"
        return Answer(201, self.network[path])

    def _get_network(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        found = self.network.get(path)
        return Answer(200, found) if found else _no_resource(where)

    def _missing(self, where: dict[str, str], referred: list[str]) -> Answer | None:
        """Return the error of a group or a resource that is not there."""
        group = f"/subscriptions/{where['subscription']}/resourcegroups/{where['group']}".lower()
        if group not in self.groups:
            return _no_group(where)
        if self.groups[group]["_gone"] < FOREVER:
            return _error(409, "ResourceGroupBeingDeleted", "The resource group is in deprovisioning state")
        for one in referred:
            if one.lower().partition("/subnets/")[0] not in self.network:
                return _error(400, "InvalidResourceReference", f"Resource {one} was not found")
        return None

    # Machines

    def _put_vm(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        if headers.get("If-None-Match") != "*":
            raise ViolationError("a machine is to be made only where there is none")
        if path in self.vms:
            return _error(412, "ConditionNotMet", "The resource exists already")
        cards = [one["id"] for one in body["properties"]["networkProfile"]["networkInterfaces"]]
        missing = self._missing(where, cards)
        if missing:
            return missing
        refused = self.take_fault("virtualMachines.createOrUpdate", "refuse")
        if refused:
            return _fault(refused)
        login = dict(body["properties"]["osProfile"])
        script = base64.b64decode(login.pop("customData")).decode()
        self.vms[path] = {
            **body, "id": path, "name": where["name"],
            "identity": {"type": "SystemAssigned", "principalId": str(uuid.uuid5(uuid.NAMESPACE_URL, path))},
            "properties": {**body["properties"], "osProfile": login, "timeCreated": self.now().isoformat()},
            "_state": self.take_fault("virtualMachines.createOrUpdate", "async") or "Creating",
            "_since": self.elapsed_s, "_timer_s": _timer_s(script),
        }  # fmt: skip
        self.billed[path] = Billed(where["name"], where["name"], body["tags"], self.elapsed_s)
        if self.vms[path]["_state"] != "Creating":
            self.billed[
                path
            ].ended_s = self.elapsed_s  # it never came up: what is left costs nothing by the hour
            self.billed[path].started_s = self.elapsed_s
        self.meter.append(self.billed[path])
        return Answer(201, _shown(self.vms[path], statuses=False))

    def _get_vm(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        vm = self.vms.get(path)
        return Answer(200, _shown(vm, statuses="$expand" in where)) if vm else _no_resource(where)

    def _delete_vm(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        if path not in self.vms:
            return Answer(204, "")
        self._begin_end(self.vms[path])
        return Answer(202, "")

    def _begin_end(self, vm: dict[str, Any]) -> None:
        if vm["_state"] != "Deleting":
            vm["_state"], vm["_gone"] = "Deleting", self.elapsed_s + ENDING_S

    def _list_vms(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        rows = [vm for vm in self.vms.values() if self.elapsed_s >= vm["_since"] + self.invisible_s]
        return Answer(200, {"value": [_shown(vm, statuses=False) for vm in rows]})

    # What ends them

    def _put_role(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        vm = path.partition("/providers/microsoft.authorization/")[0]
        if vm not in self.vms:
            return _no_resource(where)
        if path in self.roles:
            return _error(409, "RoleAssignmentExists", "The role assignment already exists.")
        if not self.take_fault("roleAssignments.createOrUpdate", "unarmed"):
            self.roles[path] = {**body, "id": path, "_vm": vm}
        return Answer(201, {"properties": body["properties"]})

    def _get_role(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        role = self.roles.get(path)
        return Answer(200, {"properties": role["properties"]}) if role else _no_resource(where)

    def _put_schedule(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        wanted = body["properties"]
        vm = wanted["targetResourceId"].lower()
        if vm not in self.vms or not where["name"].endswith(self.vms[vm]["name"]):
            raise ViolationError("a schedule is named shutdown-computevm-MACHINE, for a machine that exists")
        if self.take_fault("globalSchedules.createOrUpdate", "unarmed"):
            body = {**body, "properties": {**wanted, "status": "Disabled"}}
        self.schedules[path] = {**body, "_vm": vm, "_at_s": self._next(wanted["dailyRecurrence"]["time"])}
        return Answer(201, _public(self.schedules[path]))

    def _get_schedule(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        found = self.schedules.get(path)
        return Answer(200, _public(found)) if found else _no_resource(where)

    def _next(self, time_of_day: str) -> float:
        """Return when a time of day comes next, by this server's clock [s]."""
        now = self.now()
        then = now.replace(hour=int(time_of_day[:2]), minute=int(time_of_day[2:]), second=0, microsecond=0)
        wait = then - now if then > now else then - now + timedelta(days=1)
        return self.elapsed_s + wait.total_seconds()

    _deeds = {  # noqa: RUF012
        "resourceGroups.createOrUpdate": _group, "resourceGroups.get": _get_group,
        "resourceGroups.delete": _delete_group,
        "networkSecurityGroups.createOrUpdate": _put_network, "publicIPAddresses.createOrUpdate": _put_network,
        "virtualNetworks.createOrUpdate": _put_network, "networkInterfaces.createOrUpdate": _put_network,
        "networkInterfaces.get": _get_network,
        "virtualMachines.createOrUpdate": _put_vm, "virtualMachines.get": _get_vm,
        "virtualMachines.delete": _delete_vm, "virtualMachines.listAll": _list_vms,
        "roleAssignments.createOrUpdate": _put_role, "roleAssignments.get": _get_role,
        "globalSchedules.createOrUpdate": _put_schedule, "globalSchedules.get": _get_schedule,
    }  # fmt: skip


_SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
_QUOTA = (
    "Operation could not be completed as it results in exceeding approved standardNCASv3_T4Family Cores quota. "
    "Location: eastus, Current Limit: 0"
)
_FAULTS = {
    "http500": (500, "InternalServerError", "An internal error occurred"),
    "http503": (503, "ServiceUnavailable", "The service is unavailable"),
    "throttle": (429, "TooManyRequests", "The request is being throttled"),
    "unauthorized": (
        401,
        "ExpiredAuthenticationToken",
        "The access token expiry UTC time is earlier than now",
    ),
    "forbidden": (403, "AuthorizationFailed", "The client does not have authorization to perform the action"),
    "capacity": (409, "SkuNotAvailable", "The requested size is currently not available in location eastus"),
    "quota": (409, "OperationNotAllowed", _QUOTA),
    "invalid": (400, "InvalidParameter", "Required parameter osProfile.adminUsername is missing"),
    "principal": (400, "PrincipalNotFound", "Principal does not exist in the directory"),
    "busy": (409, "AnotherOperationInProgress", "Another operation on this resource is in progress"),
}
_REASONS = {"AllocationFailed": "We do not have sufficient capacity", "OperationNotAllowed": _QUOTA}


def _answered(method: Any) -> Any:
    """Return what an answer of a method is made of."""
    if isinstance(method.model, dict):
        return {"id": str, "name": str, **method.model}
    return method.model


def _shown(vm: dict[str, Any], *, statuses: bool) -> dict[str, Any]:
    """Return a machine as Azure shows it."""
    state = vm["_state"]
    failed = state in _REASONS
    busy = state in {"Creating", "Deleting"}
    provisioning = "Failed" if failed else state if busy else "Succeeded"
    properties = {**vm["properties"], "provisioningState": provisioning}
    if statuses:
        code = f"failed/{state}" if failed else state.lower() if busy else "succeeded"
        found = [{"code": f"ProvisioningState/{code}", "message": _REASONS.get(state, ""), "level": "Info"}]
        if not failed and state != "Creating":
            found.append(
                {"code": f"PowerState/{'running' if state == 'Deleting' else state}", "level": "Info"}
            )
        properties["instanceView"] = {"statuses": found}
    return {**_public(vm), "properties": properties}


def _timer_s(script: str) -> float:
    """Return what the first line of a start-up script waits for before it ends the machine."""
    first = script.splitlines()[1]
    found = re.match(r"setsid bash -c 'sleep (\d+); while", first)
    if not found:
        raise ViolationError(f"the first line sets no timer: {first[:80]}")
    return float(found.group(1))


def _referred(body: Any) -> list[str]:
    """Return the ids that something refers to."""
    return re.findall(r'"id": "(/subscriptions/[^"]+)"', json.dumps(body))


def _no_group(where: dict[str, str]) -> Answer:
    return _error(404, "ResourceGroupNotFound", f"Resource group '{where['group']}' could not be found.")


def _no_resource(where: dict[str, str]) -> Answer:
    return _error(404, "ResourceNotFound", f"The resource {where.get('name')} was not found.")


def _error(status: int, code: str, message: str) -> Answer:
    return Answer(status, {"error": {"code": code, "message": message}})


def _fault(how: str) -> Answer:
    if how == "reset":
        raise Drop
    return Answer(200, '{"id": "/subscr') if how == "garbage" else _error(*_FAULTS[how])


def _public(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith("_")}


if __name__ == "__main__":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    serve(AzureCloud(), wrap=lambda plain: context.wrap_socket(plain, server_side=True))
