"""Fake Google Cloud on loopback: Compute Engine v1 and Cloud TPU v2alpha1, as their discovery documents have them.

What it decides by itself (how long things take, what an error looks like) is this project's reading of the
documentation; nobody has compared it with the real cloud.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).parents[2]))

from launch.cloud_server import Answer, Billed, CloudState, Drop, serve
from launch.google.contract import Contract, ViolationError, check_instance, check_labels

MAKING_S, ENDING_S = 20.0, 15.0
INSERT, CREATE = "compute.instances.insert", "tpu.projects.locations.queuedResources.create"
DELETES = ("compute.instances.delete", "tpu.projects.locations.queuedResources.delete")


class GoogleCloud(CloudState):
    """Projects, zones, machines, queued resources, operations."""

    def __init__(self) -> None:
        self.contracts = [Contract("compute.v1"), Contract("tpu.v2alpha1"), Contract("storage.v1")]
        self.begin()

    def begin(self) -> None:
        """Forget everything: a new cloud."""
        super().__init__()
        self.vms: dict[tuple[str, str], dict[str, Any]] = {}
        self.slices: dict[str, dict[str, Any]] = {}
        self.operations: list[dict[str, Any]] = []
        self.by_request: dict[str, tuple[str, dict[str, Any]]] = {}
        self.numbers = itertools.count(7_000_000_001)
        self.billed: dict[str, Billed] = {}
        self.objects: dict[str, bytes] = {}

    def answer(self, verb: str, url: str, headers: Any, body: Any) -> Answer:
        """Answer a request: contract, credentials, faults, deed."""
        path = url.partition("?")[0]
        for contract in self.contracts:
            found = contract.match(verb, path) or contract.match_upload(verb, path)
            if found:
                return self._checked(contract, *found, url=url, headers=headers, body=body)
        self.violations.append(f"{verb} {path}: no such method")
        return Answer(404, {"error": {"code": 404, "message": f"no method {verb} {path}"}})

    def _checked(
        self,
        contract: Contract,
        method: dict[str, Any],
        parts: dict[str, str],
        *,
        url: str,
        headers: Any,
        body: Any,
    ) -> Answer:
        name = method["id"]
        self.log.append(name)
        if not _is_signed(headers.get("Authorization", "")):
            return self._error(401, "authError", "Invalid Credentials")
        try:
            query = contract.check(method, url, body)
        except ViolationError as error:
            self.violations.append(str(error))
            return self._error(400, "invalid", str(error))
        before = self.take_fault(name, "before")
        if before:
            return self._fault(before)
        reply = self._do(name, parts | query, body)
        after = self.take_fault(name, "after")
        return self._fault(after) if after else reply

    def _do(self, name: str, where: dict[str, str], body: Any) -> Answer:
        try:
            deeds = {
                INSERT: self._insert,
                "compute.instances.get": self._get,
                "compute.instances.delete": self._delete,
                "compute.instances.aggregatedList": self._list,
                "compute.zoneOperations.list": self._list_operations,
                "compute.zoneOperations.get": self._get_operation,
                "storage.objects.insert": self._keep_object,
                "storage.objects.delete": self._drop_object,
                CREATE: self._create_slice,
                "tpu.projects.locations.queuedResources.get": self._get_slice,
                "tpu.projects.locations.queuedResources.delete": self._delete_slice,
                "tpu.projects.locations.queuedResources.list": self._list_slices,
            }
            return deeds[name](where, body)
        except ViolationError as error:
            self.violations.append(str(error))
            return self._error(400, "invalid", str(error))

    def tick(self) -> None:
        """Let operations end, and deadlines fall."""
        for key, vm in list(self.vms.items()):
            bill = self.billed[vm["id"]]
            if vm["status"] == "STAGING" and self.elapsed_s >= vm["_since"] + MAKING_S:
                self._comes_up(vm, bill)
            if vm["status"] == "RUNNING" and self.elapsed_s >= vm["_ends"]:
                self._vm_gone(key, vm["_ends"])
            elif vm["status"] == "RUNNING" and self.elapsed_s >= vm["_off"]:
                vm["status"], bill.ended_s = "TERMINATED", vm["_off"]  # its disk is still there, and listed
            elif vm["status"] == "STOPPING" and self.elapsed_s >= vm["_gone"]:
                self._vm_gone(key, vm["_gone"])
        for name, one in list(self.slices.items()):
            self._tick_slice(name, one)

    def control(self, order: dict[str, Any]) -> dict[str, Any]:
        if order.get("begin"):
            self.begin()
        if order.get("reclaim_all"):
            ours = [one.name for one in self.meter if one.tags["gpuplan-owner"] == "me"]
            order = {**order, "reclaim": ours}
        if "foreign" in order:
            self._foreign(order["foreign"])
        for name in order.get("reclaim", []):
            for key in [key for key in self.vms if key[1] == name]:
                self._vm_gone(key, self.elapsed_s)
            for full in [full for full in self.slices if full.endswith(f"/{name}")]:
                self._slice_ends(self.slices[full], "SUSPENDED", self.elapsed_s)
        for name in order.get("power_off", []):
            for key, vm in self.vms.items():
                if key[1] == name:
                    vm["status"], vm["_ends"] = "TERMINATED", float("inf")
                    vm["resourceStatus"]["scheduling"] = {}
        held = {name: base64.b64encode(raw).decode() for name, raw in self.objects.items()}
        return {**super().control(order), "objects": held}

    def _foreign(self, tags: dict[str, str]) -> None:
        """Somebody else starts a machine that has no cap."""
        number = str(next(self.numbers))
        name, zone = f"theirs-{number}", "us-central1-a"
        self.vms[zone, name] = {
            "id": number, "name": name, "labels": tags, "status": "RUNNING", "machineType": "a/b",
            "scheduling": {},
            "creationTimestamp": self.now().isoformat(), "zone": f"projects/p1/zones/{zone}", "_project": "p1",
            "_since": self.elapsed_s, "_ends": float("inf"), "_off": float("inf"), "_operation": {},
        }  # fmt: skip
        self.billed[number] = Billed(number, name, tags, self.elapsed_s)
        self.meter.append(self.billed[number])

    # Compute Engine

    def _insert(self, where: dict[str, str], body: Any) -> Answer:
        check_instance(body)
        check_labels(body["disks"][0]["initializeParams"]["labels"])
        fingerprint = json.dumps(body, sort_keys=True)
        known = self.by_request.get(where["requestId"])
        if known:
            same = known[0] == fingerprint
            return (
                Answer(200, known[1])
                if same
                else self._error(400, "invalid", "request id of another request")
            )
        key = (where["zone"], body["name"])
        if key in self.vms:
            return self._error(409, "alreadyExists", f"{body['name']} already exists")
        sync = self.take_fault("compute.instances.insert", "refuse")
        if sync:
            return self._fault(sync)
        operation = self._operation(where, "insert")
        self.by_request[where["requestId"]] = (fingerprint, operation)
        operation["clientOperationId"] = where["requestId"]
        failure = self.take_fault("compute.instances.insert", "async")
        if failure:
            code, message = _ASYNC[failure]
            operation |= {"status": "DONE", "error": {"errors": [{"code": code, "message": message}]}}
            return Answer(
                200,
                {key: value for key, value in operation.items() if key != "error"} | {"status": "RUNNING"},
            )
        number = operation["targetId"]
        self.vms[key] = {
            **body, "id": number, "status": "STAGING", "creationTimestamp": self.now().isoformat(),
            "zone": f"https://www.googleapis.com/compute/v1/projects/{where['project']}/zones/{where['zone']}",
            "resourceStatus": {}, "_since": self.elapsed_s, "_operation": operation, "_project": where["project"],
        }  # fmt: skip
        self.billed[number] = Billed(number, body["name"], body["labels"], self.elapsed_s)
        self.meter.append(self.billed[number])
        return Answer(200, dict(operation))

    def _comes_up(self, vm: dict[str, Any], bill: Billed) -> None:
        vm["_operation"]["status"] = "DONE"
        vm["status"] = "RUNNING"
        limit = vm["scheduling"].get("maxRunDuration", {}).get("seconds")
        vm["_ends"] = float("inf")
        vm["_off"] = vm["_since"] + MAKING_S + _timer_s(vm)
        if limit and not self.take_fault("compute.instances.insert", "unarmed"):
            vm["_ends"] = bill.started_s + float(limit)
            ends_at = self.now() + timedelta(seconds=vm["_ends"] - self.elapsed_s)
            vm["resourceStatus"] = {"scheduling": {"terminationTimestamp": ends_at.isoformat()}}

    def _vm_gone(self, key: tuple[str, str], at_s: float) -> None:
        vm = self.vms.pop(key)
        vm["_operation"]["status"] = "DONE"
        bill = self.billed[vm["id"]]
        bill.ended_s = at_s if bill.ended_s is None else bill.ended_s

    def _find(self, where: dict[str, str]) -> dict[str, Any] | None:
        wanted = where["instance"]
        found = (
            vm for key, vm in self.vms.items() if key[0] == where["zone"] and wanted in {key[1], vm["id"]}
        )
        return next((vm for vm in found if vm["_project"] == where["project"]), None)

    def _keep_object(self, where: dict[str, str], body: bytes) -> Answer:
        self.objects[f"{where['bucket']}/{where['name']}"] = body
        return Answer(200, {"bucket": where["bucket"], "name": where["name"], "size": str(len(body))})

    def _drop_object(self, where: dict[str, str], body: Any) -> Answer:
        if self.objects.pop(f"{where['bucket']}/{unquote(where['object'])}", None) is None:
            return self._error(404, "notFound", "No such object")
        return Answer(204, "")

    def _get(self, where: dict[str, str], body: Any) -> Answer:
        vm = self._find(where)
        return (
            Answer(200, _public(vm))
            if vm
            else self._error(404, "notFound", f"{where['instance']} was not found")
        )

    def _delete(self, where: dict[str, str], body: Any) -> Answer:
        vm = self._find(where)
        if vm is None:
            return self._error(404, "notFound", f"{where['instance']} was not found")
        if vm["status"] != "STOPPING":
            vm["status"], vm["_gone"] = "STOPPING", self.elapsed_s + ENDING_S
        return Answer(200, self._operation(where, "delete"))

    def _list(self, where: dict[str, str], body: Any) -> Answer:
        if where.get("filter") != "labels.gpuplan-run:*":
            raise ViolationError("this server knows one filter of instances")
        items: dict[str, Any] = {"zones/us-west1-a": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}
        rows = [vm for vm in self.vms.values() if self._is_listed(vm, where["project"])]
        page = int(where.get("pageToken") or 0)
        for vm in rows[page : page + 1]:  # one a page: whoever forgets the others is found out
            zone = vm["zone"].rpartition("/")[2]
            items[f"zones/{zone}"] = {"instances": [_public(vm)]}
        more = {"nextPageToken": str(page + 1)} if page + 1 < len(rows) else {}
        return Answer(200, {"kind": "compute#instanceAggregatedList", "items": items, **more})

    def _is_listed(self, vm: dict[str, Any], project: str) -> bool:
        visible = self.elapsed_s >= vm["_since"] + self.invisible_s
        return visible and vm["_project"] == project and "gpuplan-run" in vm["labels"]

    def _operation(self, where: dict[str, str], kind: str) -> dict[str, Any]:
        number = str(next(self.numbers))
        operation = {
            "kind": "compute#operation", "name": f"operation-{number}", "operationType": kind, "status": "RUNNING",
            "targetId": number, "insertTime": self.now().isoformat(), "zone": where["zone"],
        }  # fmt: skip
        self.operations.append(operation)
        return operation

    def _list_operations(self, where: dict[str, str], body: Any) -> Answer:
        field, _, value = where["filter"].partition(" = ")
        rows = [
            one
            for one in self.operations
            if one.get(field) == value.strip('"') and one["zone"] == where["zone"]
        ]
        return Answer(200, {"kind": "compute#operationList", "items": rows} if rows else {})

    def _get_operation(self, where: dict[str, str], body: Any) -> Answer:
        return Answer(200, next(one for one in self.operations if one["name"] == where["operation"]))

    # Cloud TPU

    def _create_slice(self, where: dict[str, str], body: Any) -> Answer:
        spec = body["tpu"]["nodeSpec"][0]
        check_labels(spec["node"]["labels"])
        if spec["parent"] != where["parent"]:
            raise ViolationError("the node's parent is another")
        name = f"{where['parent']}/queuedResources/{where['queuedResourceId']}"
        known = self.by_request.get(where["requestId"])
        if known:
            return Answer(200, known[1])
        if name in self.slices:
            return self._error(409, "ALREADY_EXISTS", f"{name} already exists")
        sync = self.take_fault(CREATE, "refuse")
        if sync:
            return self._fault(sync)
        at = self.now().isoformat()
        operation = {
            "name": f"{where['parent']}/operations/{next(self.numbers)}", "done": False,
            "metadata": {"target": name, "createTime": at, "verb": "create"},
        }  # fmt: skip
        self.by_request[where["requestId"]] = ("", operation)
        failure = self.take_fault(CREATE, "async")
        self.slices[name] = {
            **body, "name": name, "createTime": at, "state": {"state": "WAITING_FOR_RESOURCES"},
            "_since": self.elapsed_s, "_failure": failure,
        }  # fmt: skip
        self.billed[name] = Billed(name, where["queuedResourceId"], spec["node"]["labels"], None)
        self.meter.append(self.billed[name])
        return Answer(200, operation)

    def _tick_slice(self, name: str, one: dict[str, Any]) -> None:
        state, bill = one["state"]["state"], self.billed[name]
        if state == "WAITING_FOR_RESOURCES" and self.elapsed_s >= one["_since"] + MAKING_S:
            if one["_failure"]:
                code, message = _RPC[one["_failure"]]
                one["state"] = {
                    "state": "FAILED",
                    "failedData": {"error": {"code": code, "message": message}},
                }
                return
            one["state"] = {"state": "ACTIVE", "activeData": {}}
            bill.started_s = one["_since"] + MAKING_S
            limit = one.get("runDuration", {}).get("maxRunDuration")
            one["_ends"] = bill.started_s + float(limit.removesuffix("s")) if limit else float("inf")
            state = "ACTIVE"
        if state == "ACTIVE" and self.elapsed_s >= one["_ends"]:
            self._slice_ends(one, "SUSPENDED", one["_ends"])
        elif state == "DELETING" and self.elapsed_s >= one["_gone"]:
            self._slice_ends(one, "SUSPENDED", one["_gone"])
            del self.slices[name]

    def _slice_ends(self, one: dict[str, Any], state: str, at_s: float) -> None:
        bill = self.billed[one["name"]]
        if bill.started_s is not None and bill.ended_s is None:
            bill.ended_s = at_s
        one["state"] = {"state": state}

    def _get_slice(self, where: dict[str, str], body: Any) -> Answer:
        one = self.slices.get(where["name"])
        return (
            Answer(200, _public(one))
            if one
            else self._error(404, "NOT_FOUND", f"{where['name']} was not found")
        )

    def _delete_slice(self, where: dict[str, str], body: Any) -> Answer:
        one = self.slices.get(where["name"])
        if one is None:
            return self._error(404, "NOT_FOUND", f"{where['name']} was not found")
        if where.get("force") != "true":
            raise ViolationError("a slice with nodes is deleted by force")
        if one["state"]["state"] != "DELETING":
            one["state"], one["_gone"] = {"state": "DELETING"}, self.elapsed_s + ENDING_S
        return Answer(
            200, {"name": "operations/delete", "done": False, "metadata": {"target": where["name"]}}
        )

    def _list_slices(self, where: dict[str, str], body: Any) -> Answer:
        project = where["parent"].removesuffix("/locations/-")
        rows = [
            _public(one)
            for name, one in self.slices.items()
            if name.startswith(f"{project}/") and self.elapsed_s >= one["_since"] + self.invisible_s
        ]
        return Answer(200, {"queuedResources": rows})

    # Errors

    def _error(self, status: int, reason: str, message: str) -> Answer:
        upper = (
            {"status": reason} if reason.isupper() else {"errors": [{"reason": reason, "message": message}]}
        )
        return Answer(status, {"error": {"code": status, "message": message, **upper}})

    def _fault(self, how: str) -> Answer:
        if how == "reset":
            raise Drop
        if how == "garbage":
            return Answer(200, '{"kind": "compute#oper')
        return self._error(*_SYNC[how])


_SYNC = {
    "http500": (500, "backendError", "Internal error"),
    "http503": (503, "backendError", "The service is currently unavailable"),
    "throttle": (429, "rateLimitExceeded", "Rate Limit Exceeded"),
    "throttle403": (403, "rateLimitExceeded", "Rate Limit Exceeded"),
    "unauthorized": (401, "authError", "Invalid Credentials"),
    "forbidden": (403, "forbidden", "Required 'compute.instances.create' permission"),
    "capacity": (503, "ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources available"),
    "quota": (403, "quotaExceeded", "Quota 'NVIDIA_T4_GPUS' exceeded. Limit: 0.0 in region us-central1."),
    "not_here": (400, "invalid", "Machine type with name 'a2' does not exist in zone 'us-central1-f'."),
    "invalid": (400, "invalid", "Invalid value for field 'resource.disks[0]'"),
}
_ASYNC = {
    "capacity": (
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "The zone does not have enough resources available",
    ),
    "quota": ("QUOTA_EXCEEDED", "Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 0.0 globally."),
}
_RPC = {
    "capacity": (8, "There is no more capacity in the zone"),
    "quota": (8, "Quota limit 'TPUV5sLitepodPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 0"),
}


def _is_signed(authorization: str) -> bool:
    """Whether a request carries a token of the tests' service account."""
    parts = authorization.removeprefix("Bearer ").split(".")
    if len(parts) != 3:
        return False
    claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=="))
    return bool(claims["iss"] == "tests@p1.iam.gserviceaccount.com")


def _timer_s(vm: dict[str, Any]) -> float:
    """Return after how long a guest powers itself off, by the first command of its script [s]."""
    items = {item["key"]: item["value"] for item in vm.get("metadata", {}).get("items", [])}
    timer = re.match(r"#!/bin/bash\nshutdown -P \+(\d+)\n", items.get("startup-script", ""))
    return int(timer[1]) * 60.0 if timer else float("inf")


def _public(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith("_")}


if __name__ == "__main__":
    serve(GoogleCloud())
