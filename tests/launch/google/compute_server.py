"""Compute Engine of the fake Google Cloud: machines, zone operations, the cloud's end, the guest's timer."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

from launch.cloud_server import Answer, Billed
from launch.google.cloud_state import ENDING_S, INSERT, MAKING_S, GoogleState, altered, public
from launch.google.contract import ViolationError, check_instance, check_labels

__all__ = ["ComputeEngine"]


class ComputeEngine(GoogleState):
    """Machines of all projects and zones."""

    consoles = ""  # what any machine's serial port says

    def foreign(self, tags: dict[str, str]) -> None:
        """Somebody else starts a machine that has no cap."""
        number = str(next(self.numbers))
        name, zone = f"theirs-{number}", "us-central1-a"
        self.vms[zone, name] = {
            "id": number, "name": name, "labels": tags, "status": "RUNNING", "machineType": "a/b",
            "scheduling": {},
            "creationTimestamp": self.now().isoformat(), "zone": f"projects/p1/zones/{zone}", "_project": "p1",
            "_since": self.elapsed_s, "_ends": float("inf"), "_off": float("inf"), "_operation": {},
            "_altered": None,
        }  # fmt: skip
        self.billed[number] = Billed(number, name, tags, self.elapsed_s)
        self.meter.append(self.billed[number])

    def tick_machines(self) -> None:
        """Let operations end, and deadlines fall."""
        for key, vm in list(self.vms.items()):
            bill = self.billed[vm["id"]]
            if vm["status"] == "STAGING" and self.elapsed_s >= vm["_since"] + MAKING_S:
                self._comes_up(vm, bill)
            if vm["status"] == "RUNNING" and self.elapsed_s >= vm["_ends"] <= vm["_off"]:
                self._vm_at_its_end(key, vm, bill)
            elif vm["status"] == "RUNNING" and self.elapsed_s >= vm["_off"]:
                vm["status"], bill.ended_s = "TERMINATED", vm["_off"]  # its disk is still there, and listed
            elif vm["status"] == "STOPPING" and self.elapsed_s >= vm["_gone"]:
                self.vm_gone(key, vm["_gone"])

    def insert(self, where: dict[str, str], body: Any) -> Answer:
        check_instance(body)
        check_labels(body["disks"][0]["initializeParams"]["labels"])
        fingerprint = json.dumps(body, sort_keys=True)
        known = self.by_request.get(where["requestId"])
        if known:
            same = known[0] == fingerprint
            return Answer(200, known[1]) if same else self.error(400, "invalid", "request id of another request")
        key = (where["zone"], body["name"])
        if key in self.vms:
            return self.error(409, "alreadyExists", f"{body['name']} already exists")
        sync = self.take_fault("compute.instances.insert", "refuse")
        if sync:
            return self.fail(sync)
        operation = self._operation(where, "insert")
        self.by_request[where["requestId"]] = (fingerprint, operation)
        operation["clientOperationId"] = where["requestId"]
        failure = self.take_fault("compute.instances.insert", "async")
        if failure:
            code, message = _ASYNC[failure]
            operation |= {"status": "DONE", "error": {"errors": [{"code": code, "message": message}]}}
            return Answer(
                200, {key: value for key, value in operation.items() if key != "error"} | {"status": "RUNNING"}
            )
        number, how = operation["targetId"], self.take_fault(INSERT, "alter")
        self.vms[key] = {
            **altered(body, how),
            "_altered": how,
            "id": number, "status": "STAGING", "creationTimestamp": self.now().isoformat(),
            "zone": f"https://www.googleapis.com/compute/v1/projects/{where['project']}/zones/{where['zone']}",
            "resourceStatus": {}, "_since": self.elapsed_s, "_operation": operation, "_project": where["project"],
        }  # fmt: skip
        self.billed[number] = Billed(number, body["name"], body["labels"], self.elapsed_s)
        self.meter.append(self.billed[number])
        return Answer(200, dict(operation))

    def _comes_up(self, vm: dict[str, Any], bill: Billed) -> None:
        """Set both ends; one layer fails at a time: a guest hangs only where the cloud does as asked."""
        vm["_operation"]["status"] = "DONE"
        vm["status"] = "RUNNING"
        limit = vm["scheduling"].get("maxRunDuration", {}).get("seconds")
        hangs = self.hang and not vm["_altered"]
        vm["_ends"] = float("inf")
        vm["_off"] = float("inf") if hangs else vm["_since"] + MAKING_S + _timer_s(vm)
        if limit and (hangs or not self.take_fault(INSERT, "unarmed")):
            vm["_ends"] = bill.started_s + float(limit) + vm.get("_late", 0.0)
            ends_at = self.now() + timedelta(seconds=vm["_ends"] - self.elapsed_s)
            vm["resourceStatus"] = {"scheduling": {"terminationTimestamp": ends_at.isoformat()}}
        bill.set_to_end(min(vm["_ends"], vm["_off"]))

    def power_off(self, name: str) -> None:
        """Let a guest switch its machine off."""
        for key, vm in self.vms.items():
            if key[1] == name:
                vm["status"], vm["_ends"] = "TERMINATED", float("inf")
                vm["resourceStatus"]["scheduling"] = {}

    def _vm_at_its_end(self, key: tuple[str, str], vm: dict[str, Any], bill: Billed) -> None:
        if vm["scheduling"]["instanceTerminationAction"] == "DELETE":
            self.vm_gone(key, vm["_ends"])
        else:  # its disk is still there, and listed
            vm["status"], bill.ended_s = "TERMINATED", vm["_ends"]

    def vm_gone(self, key: tuple[str, str], at_s: float) -> None:
        vm = self.vms.pop(key)
        vm["_operation"]["status"] = "DONE"
        bill = self.billed[vm["id"]]
        bill.ended_s = at_s if bill.ended_s is None else bill.ended_s

    def _find(self, where: dict[str, str]) -> dict[str, Any] | None:
        wanted = where["instance"]
        found = (vm for key, vm in self.vms.items() if key[0] == where["zone"] and wanted in {key[1], vm["id"]})
        return next((vm for vm in found if vm["_project"] == where["project"]), None)

    def get(self, where: dict[str, str], body: Any) -> Answer:
        vm = self._find(where)
        return Answer(200, public(vm)) if vm else self.error(404, "notFound", f"{where['instance']} was not found")

    def serial_port(self, where: dict[str, str], body: Any) -> Answer:
        if self._find(where) is None:
            return self.error(404, "notFound", f"{where['instance']} was not found")
        start = int(where.get("start", 0))
        text = self.consoles[start:]
        return Answer(200, {"contents": text, "start": "0", "next": str(len(text))})

    def delete(self, where: dict[str, str], body: Any) -> Answer:
        vm = self._find(where)
        if vm is None:
            return self.error(404, "notFound", f"{where['instance']} was not found")
        if vm["status"] != "STOPPING":
            vm["status"], vm["_gone"] = "STOPPING", self.elapsed_s + ENDING_S
        return Answer(200, self._operation(where, "delete"))

    def list_all(self, where: dict[str, str], body: Any) -> Answer:
        if where.get("filter") != "labels.gpuplan-run:*":
            raise ViolationError("this server knows one filter of instances")
        items: dict[str, Any] = {"zones/us-west1-a": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}
        for zone in self.unreachable:
            items[f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE", "message": f"{zone} is unreachable"}}
        rows = [vm for vm in self.vms.values() if self._is_listed(vm, where["project"])]
        page = int(where.get("pageToken") or 0)
        for vm in rows[page : page + 1]:  # one a page: whoever forgets the others is found out
            zone = vm["zone"].rpartition("/")[2]
            items[f"zones/{zone}"] = {"instances": [public(vm)]}
        more = {"nextPageToken": str(page + 1)} if page + 1 < len(rows) else {}
        return Answer(200, {"kind": "compute#instanceAggregatedList", "items": items, **more})

    def _is_listed(self, vm: dict[str, Any], project: str) -> bool:
        visible = self.elapsed_s >= vm["_since"] + self.invisible_s
        reachable = vm["zone"].rpartition("/")[2] not in self.unreachable
        return visible and reachable and vm["_project"] == project and "gpuplan-run" in vm["labels"]

    def _operation(self, where: dict[str, str], kind: str) -> dict[str, Any]:
        number = str(next(self.numbers))
        operation = {
            "kind": "compute#operation", "name": f"operation-{number}", "operationType": kind, "status": "RUNNING",
            "targetId": number, "insertTime": self.now().isoformat(), "zone": where["zone"],
        }  # fmt: skip
        self.operations.append(operation)
        return operation

    def list_operations(self, where: dict[str, str], body: Any) -> Answer:
        field, _, value = where["filter"].partition(" = ")
        rows = [
            one for one in self.operations if one.get(field) == value.strip('"') and one["zone"] == where["zone"]
        ]
        return Answer(200, {"kind": "compute#operationList", "items": rows} if rows else {})

    def get_operation(self, where: dict[str, str], body: Any) -> Answer:
        return Answer(200, next(one for one in self.operations if one["name"] == where["operation"]))


_ASYNC = {
    "capacity": ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "The zone does not have enough resources available"),
    "quota": ("QUOTA_EXCEEDED", "Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 0.0 globally."),
}


def _timer_s(vm: dict[str, Any]) -> float:
    """Return after how long a guest powers itself off, by the first command of its script [s]."""
    items = {item["key"]: item["value"] for item in vm.get("metadata", {}).get("items", [])}
    timer = re.match(r"#!/bin/bash\nshutdown -P \+(\d+)\n", items.get("startup-script", ""))
    return int(timer[1]) * 60.0 if timer else float("inf")
