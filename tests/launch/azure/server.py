"""Fake Azure Resource Manager on loopback, over TLS: groups, networks, machines, orders, prices, and tokens.

Requests and answers are held to the official clients' models (`contract.py`). What it decides by itself (how
long things take, what an error looks like, what goes with what) is this project's reading of the documentation;
it has not been compared with the real cloud.
"""

from __future__ import annotations

import base64
import re
import ssl
import sys
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

sys.path.insert(0, str(Path(__file__).parents[2]))

from launch.azure.answers import (
    SUBSCRIPTION,
    error,
    fault,
    is_below,
    no_group,
    no_resource,
    public,
    referred,
    shown,
    timer_s,
)
from launch.azure.contract import ViolationError, check_body, check_request, match, methods
from launch.azure.orders import FOREVER, Orders
from launch.cloud_server import Answer, Billed, serve
from vendors.azure import answer
from vendors.server import Asked

MAKING_S, ENDING_S, BOOT_S = 40.0, 30.0, 90.0
TOKEN = "t0ken-of-the-tests"


class AzureCloud(Orders):
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
        self.orders: dict[str, dict[str, Any]] = {}  # scheduled actions, by operation
        self.prices: list[dict[str, Any]] = []  # items of the retail prices
        self.consoles = ""  # what any machine's console says
        self.refused: set[str] = set()  # subscriptions, or services that one is not registered for
        self.hang = False  # guests never run their start-up script
        self.billed: dict[str, Billed] = {}

    def answer(self, verb: str, url: str, headers: Any, body: Any) -> Answer:
        """Answer a request: token, contract, faults, deed, contract again."""
        path = url.partition("?")[0]
        outside = {"/api/retail/prices": self._retail, "/console/log": self._console}
        if path in outside:
            return outside[path](url, headers)
        if "/oauth2/" in path or path.endswith("openid-configuration"):
            return self._login(path, headers)
        found = match(self.methods, verb, path)
        if found is None:
            self.violations.append(f"{verb} {path}: no such method")
            return error(404, "InvalidResourceType", path)
        method, where = found
        self.log.append(method.name)
        before = self._refusal(headers, where["subscription"]) or self.take_fault(method.name, "before")
        if before:
            return fault(before)
        try:
            reply = self._done(method, path.lower(), where | check_request(method, url, body), headers, body)
        except ViolationError as problem:
            self.violations.append(str(problem))
            return error(400, "InvalidRequestContent", str(problem))
        after = self.take_fault(method.name, "after")
        return fault(after) if after else reply

    def _refusal(self, headers: Any, subscription: str) -> str | None:
        """Return the reason for which access is refused."""
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return "unauthorized"
        return "forbidden" if subscription in self.refused else None

    def _done(self, method: Any, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        """Do what a request asks for; the answer is held to the contract too."""
        reply = self._deeds[method.name](self, path, where, headers, body)
        if reply.status < 300 and reply.body:
            for one in reply.body.get("value", [reply.body]):
                check_body(method.answered, one, where=f"answer of {method.name}", answers=True)
        return reply

    def _console(self, url: str, headers: Any) -> Answer:
        """Answer with a console, to its signature alone."""
        signed = "Authorization" not in headers and "sig=s1" in url
        return Answer(200, self.consoles) if signed else error(403, "AuthenticationFailed", "no such signature")

    def _retail(self, url: str, headers: Any) -> Answer:
        """Answer a question for retail prices, without credentials."""
        asked = urlsplit(url)
        query = {key: values[-1] for key, values in parse_qs(asked.query).items()}
        return Answer(200, answer(Asked("GET", asked.path, query, {}, b""), self.prices))

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
        boots = has_right and not vm["_hangs"]
        timer_s = vm["_since"] + BOOT_S + vm["_timer_s"] if boots else FOREVER
        orders = (*self.schedules.values(), *self.orders.values())
        schedule_s = min((one["_at_s"] for one in orders if one["_vm"] == path), default=FOREVER)
        self.billed[path].set_to_end(min(timer_s, schedule_s))
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
            run = vm["tags"].get("gpuplan-run", "none")
            ours = vm["tags"].get("gpuplan-owner") in order.get("owners", ["me"])
            if (order.get("reclaim_all") and ours) or order.get("reclaim") == run:
                self._gone(path, self.elapsed_s)
            if order.get("power_off") == run:
                vm["_state"] = "stopped"
            if order.get("replace") == run:
                vm["properties"]["vmId"] = str(uuid.uuid4())
            if order.get("untag") == run:
                vm["tags"] = {}
        if order.get("lose_roles"):
            self.roles.clear()
        if order.get("lose_orders"):
            self.schedules.clear()
            self.orders.clear()
        self.refused = set(order.get("refused", self.refused))
        self.hang = order.get("hang", self.hang)
        self.consoles = order.get("consoles", self.consoles)
        self.prices = order.get("prices", self.prices)
        if "foreign" in order:
            self._foreign(order["foreign"])
        state = super().control(order)
        left = [self.groups, self.network, self.vms, self.roles, self.schedules]
        return {**state, "left": [path for these in left for path in these]}

    def _foreign(self, tags: dict[str, str]) -> None:
        """Somebody else starts a machine that has no cap."""
        number = len(self.vms)
        group = f"/subscriptions/{SUBSCRIPTION}/resourcegroups/theirs"
        path = f"{group}/providers/microsoft.compute/virtualmachines/v{number}"
        self.vms[path] = {
            "id": path, "name": f"v{number}", "location": "eastus", "tags": tags, "identity": {},
            "properties": {
                "vmId": str(uuid.uuid4()), "timeCreated": self.now().isoformat(),
                "hardwareProfile": {"vmSize": "Standard_NC4as_T4_v3"},
                "networkProfile": {"networkInterfaces": []},
            },
            "_state": "running", "_since": self.elapsed_s, "_timer_s": FOREVER, "_hangs": True,
        }  # fmt: skip
        self.billed[path] = Billed(f"v{number}", f"v{number}", tags, self.elapsed_s)
        self.meter.append(self.billed[path])

    # Groups and networks

    def _get_provider(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        state = "NotRegistered" if where["namespace"] in self.refused else "Registered"
        return Answer(200, {"namespace": where["namespace"], "registrationState": state})

    def _list_groups(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        tag = re.fullmatch("tagName eq '([^']+)'", where["$filter"])
        if tag is None:
            raise ViolationError(f"this server does not know the filter {where['$filter']}")
        rows = [one for key, one in self.groups.items() if is_below(key, where) and tag[1] in one["tags"]]
        return Answer(200, {"value": [self._group_shown(one) for one in rows]})

    def _group_shown(self, group: dict[str, Any]) -> dict[str, Any]:
        state = "Deleting" if group["_gone"] < FOREVER else "Succeeded"
        return {**public(group), "properties": {"provisioningState": state}}

    def _group(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        known = self.groups.get(path)
        if known and known["_gone"] < FOREVER:
            return error(409, "ResourceGroupBeingDeleted", "The resource group is in deprovisioning state")
        self.groups[path] = {**body, "id": path, "name": where["group"], "_gone": FOREVER}
        return self._get_group(path, where, headers, None)

    def _get_group(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        group = self.groups.get(path)
        if group is None:
            return no_group(where)
        return Answer(200, self._group_shown(group))

    def _delete_group(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        if path not in self.groups:
            return no_group(where)
        self.groups[path]["_gone"] = min(self.groups[path]["_gone"], self.elapsed_s + ENDING_S)
        for one in self._inside(self.vms, path):
            self._begin_end(self.vms[one])
        return Answer(202, "")

    def _put_network(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        missing = self._missing(where, referred(body))
        if missing:
            return missing
        self.network[path] = {**body, "id": path, "name": where["name"]}
        self.network[path]["properties"]["provisioningState"] = "Succeeded"
        return Answer(201, self.network[path])

    def _get_network(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        found = self.network.get(path)
        return Answer(200, found) if found else no_resource(where)

    def _missing(self, where: dict[str, str], referred: list[str]) -> Answer | None:
        """Return the error of a group or a resource that is not there."""
        group = f"/subscriptions/{where['subscription']}/resourcegroups/{where['group']}".lower()
        if group not in self.groups:
            return no_group(where)
        if self.groups[group]["_gone"] < FOREVER:
            return error(409, "ResourceGroupBeingDeleted", "The resource group is in deprovisioning state")
        for one in referred:
            if one.lower().partition("/subnets/")[0] not in self.network:
                return error(400, "InvalidResourceReference", f"Resource {one} was not found")
        return None

    # Machines

    def _put_vm(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        if headers.get("If-None-Match") != "*":
            raise ViolationError("a machine is to be made only where there is none")
        if path in self.vms:
            return error(412, "ConditionNotMet", "The resource exists already")
        cards = [one["id"] for one in body["properties"]["networkProfile"]["networkInterfaces"]]
        missing = self._missing(where, cards)
        if missing:
            return missing
        refused = self.take_fault("virtualMachines.createOrUpdate", "refuse")
        if refused:
            return fault(refused)
        login = dict(body["properties"]["osProfile"])
        script = base64.b64decode(login.pop("customData")).decode()
        self.vms[path] = {
            **body, "id": path, "name": where["name"],
            "identity": {"type": "SystemAssigned", "principalId": str(uuid.uuid5(uuid.NAMESPACE_URL, path))},
            "properties": {
                **body["properties"], "osProfile": login, "timeCreated": self.now().isoformat(),
                "vmId": str(uuid.uuid4()),
            },
            "_state": self.take_fault("virtualMachines.createOrUpdate", "async") or "Creating",
            "_since": self.elapsed_s, "_timer_s": timer_s(script), "_hangs": self.hang,
        }  # fmt: skip
        self.billed[path] = Billed(where["name"], where["name"], body["tags"], self.elapsed_s)
        if self.vms[path]["_state"] != "Creating":
            self.billed[path].ended_s = self.elapsed_s  # it never came up: what is left costs nothing by the hour
            self.billed[path].started_s = self.elapsed_s
        self.meter.append(self.billed[path])
        return Answer(201, shown(self.vms[path], statuses=False))

    def _get_vm(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        vm = self.vms.get(path)
        return Answer(200, shown(vm, statuses="$expand" in where)) if vm else no_resource(where)

    def _boot_diagnostics(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        vm = self.vms.get(path.removesuffix("/retrievebootdiagnosticsdata"))
        if vm is None or not vm["properties"].get("diagnosticsProfile", {})["bootDiagnostics"]["enabled"]:
            return no_resource(where)
        return Answer(200, {"serialConsoleLogBlobUri": f"https://{headers['Host']}/console/log?sig=s1"})

    def _delete_vm(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        if path not in self.vms:
            return Answer(204, "")
        self._begin_end(self.vms[path])
        return Answer(202, "")

    def _begin_end(self, vm: dict[str, Any]) -> None:
        if vm["_state"] != "Deleting":
            vm["_state"], vm["_gone"] = "Deleting", self.elapsed_s + ENDING_S

    def _list_vms(self, path: str, where: dict[str, str], headers: Any, body: Any) -> Answer:
        rows = [
            vm
            for key, vm in self.vms.items()
            if is_below(key, where) and self.elapsed_s >= vm["_since"] + self.invisible_s
        ]
        return Answer(200, {"value": [shown(vm, statuses=False) for vm in rows]})

    _deeds = {  # noqa: RUF012
        "resourceGroups.createOrUpdate": _group, "resourceGroups.get": _get_group,
        "resourceGroups.delete": _delete_group,
        "networkSecurityGroups.createOrUpdate": _put_network, "publicIPAddresses.createOrUpdate": _put_network,
        "virtualNetworks.createOrUpdate": _put_network, "networkInterfaces.createOrUpdate": _put_network,
        "networkInterfaces.get": _get_network,
        "virtualMachines.createOrUpdate": _put_vm, "virtualMachines.get": _get_vm,
        "virtualMachines.retrieveBootDiagnosticsData": _boot_diagnostics,
        "virtualMachines.delete": _delete_vm, "virtualMachines.listAll": _list_vms,
        "providers.get": _get_provider, "resourceGroups.list": _list_groups,
        **Orders.order_deeds,
    }  # fmt: skip


if __name__ == "__main__":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    serve(AzureCloud(), wrap=lambda plain: context.wrap_socket(plain, server_side=True))
