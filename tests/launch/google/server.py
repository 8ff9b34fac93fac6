"""Fake Google Cloud on loopback: Compute Engine v1 and Cloud TPU v2alpha1, as their discovery documents have them.

What it decides by itself (how long things take, what an error looks like) is this project's reading of the
documentation; it has not been compared with the real cloud.
"""

from __future__ import annotations

import base64
import json
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).parents[2]))

from launch.cloud_server import Answer, serve
from launch.google.cloud_state import CREATE, INSERT
from launch.google.compute_server import ComputeEngine
from launch.google.contract import Contract, ViolationError, parse_owned_name
from launch.google.tpu_server import CloudTpu


class GoogleCloud(ComputeEngine, CloudTpu):
    """Both, and objects of Cloud Storage; contract, credentials and faults come first."""

    def __init__(self) -> None:
        self.contracts = [Contract(name) for name in ("compute.v1", "tpu.v2alpha1", "storage.v1")]
        self.begin()

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
            return self.error(401, "authError", "Invalid Credentials")
        try:
            query = contract.check(method, url, body)
        except ViolationError as error:
            self.violations.append(str(error))
            return self.error(400, "invalid", str(error))
        before = self.take_fault(name, "before")
        if (parts.get("project") or parts.get("parent", "/").split("/")[1]) in self.refused:
            before = "forbidden"
        if before:
            return self.fail(before)
        reply = self._do(name, parts | query, body)
        after = self.take_fault(name, "after")
        return self.fail(after) if after else reply

    def _do(self, name: str, where: dict[str, str], body: Any) -> Answer:
        try:
            deeds = {
                INSERT: self.insert,
                "compute.instances.get": self.get,
                "compute.instances.delete": self.delete,
                "compute.instances.getSerialPortOutput": self.serial_port,
                "compute.instances.aggregatedList": self.list_all,
                "compute.zoneOperations.list": self.list_operations,
                "compute.zoneOperations.get": self.get_operation,
                "storage.objects.insert": self._keep_object,
                "storage.objects.list": self._list_objects,
                "storage.objects.delete": self._drop_object,
                CREATE: self.create_slice,
                "tpu.projects.locations.queuedResources.get": self.get_slice,
                "tpu.projects.locations.queuedResources.delete": self.delete_slice,
                "tpu.projects.locations.queuedResources.list": self.list_slices,
            }
            return deeds[name](where, body)
        except ViolationError as error:
            self.violations.append(str(error))
            return self.error(400, "invalid", str(error))

    def tick(self) -> None:
        """Do what the cloud does by itself."""
        self.tick_machines()
        self.tick_slices()

    def control(self, order: dict[str, Any]) -> dict[str, Any]:
        if order.get("begin"):
            self.begin()
        if order.get("reclaim_all"):
            ours = [one.name for one in self.meter if one.tags["gpuplan-owner"] in order.get("owners", ["me"])]
            order = {**order, "reclaim": ours}
        self.consoles = order.get("consoles", "" if order.get("begin") else self.consoles)
        if "foreign" in order:
            self.foreign(order["foreign"])
        for name in order.get("reclaim", []):
            for key in [key for key in self.vms if key[1] == name]:
                self.vm_gone(key, self.elapsed_s)
            for full in [full for full in self.slices if full.endswith(f"/{name}")]:
                self.slice_ends(self.slices[full], "SUSPENDED", self.elapsed_s)
        for name in order.get("power_off", []):
            self.power_off(name)
        if order.get("calm"):
            self.unreachable = []
        self.unreachable = order.get("unreachable", self.unreachable)
        self.hang = order.get("hang", self.hang)
        self.refused = order.get("refused", self.refused)
        held = {name: base64.b64encode(raw).decode() for name, (_, raw) in self.objects.items()}
        return {**super().control(order), "objects": held, "left": list(self.objects)}

    def _keep_object(self, where: dict[str, str], body: bytes) -> Answer:
        described, content = parse_owned_name(body)
        row = {**described, "bucket": where["bucket"], "size": str(len(content))}
        self.objects[f"{where['bucket']}/{row['name']}"] = (row, content)
        return Answer(200, row)

    def _list_objects(self, where: dict[str, str], body: Any) -> Answer:
        rows = [row for row, _ in self.objects.values() if row["bucket"] == where["bucket"]]
        rows = [row for row in rows if fnmatchcase(row["name"], where["matchGlob"])]
        return Answer(200, {"kind": "storage#objects", **({"items": rows} if rows else {})})

    def _drop_object(self, where: dict[str, str], body: Any) -> Answer:
        if self.objects.pop(f"{where['bucket']}/{unquote(where['object'])}", None) is None:
            return self.error(404, "notFound", "No such object")
        return Answer(204, "")


def _is_signed(authorization: str) -> bool:
    """Whether a request carries a token of the tests' service account."""
    parts = authorization.removeprefix("Bearer ").split(".")
    if len(parts) != 3:
        return False
    claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=="))
    return bool(claims["iss"] == "tests@p1.iam.gserviceaccount.com")


if __name__ == "__main__":
    serve(GoogleCloud())
