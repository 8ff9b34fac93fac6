"""Cloud TPU of the fake Google Cloud: queued resources, which wait, run until their deadline, and are deleted."""

from __future__ import annotations

from typing import Any

from launch.cloud_server import Answer, Billed
from launch.google.cloud_state import CREATE, ENDING_S, MAKING_S, GoogleState, altered, public
from launch.google.contract import ViolationError, check_labels

__all__ = ["CloudTpu"]

METADATA = "google.cloud.tpu.v2.OperationMetadata"


class CloudTpu(GoogleState):
    """Queued resources of all projects and zones."""

    def tick_slices(self) -> None:
        """Let slices come up, and deadlines fall."""
        for name, one in list(self.slices.items()):
            self._tick_slice(name, one)

    def create_slice(self, where: dict[str, str], body: Any) -> Answer:
        spec = body["tpu"]["nodeSpec"][0]
        check_labels(spec["node"]["labels"])
        if spec["parent"] != where["parent"]:
            raise ViolationError("the node's parent is another")
        name = f"{where['parent']}/queuedResources/{where['queuedResourceId']}"
        known = self.by_request.get(where["requestId"])
        if known:
            return Answer(200, known[1])
        if name in self.slices:
            return self.error(409, "ALREADY_EXISTS", f"{name} already exists")
        sync = self.take_fault(CREATE, "refuse")
        if sync:
            return self.fail(sync)
        at = self.now().isoformat()
        operation = {
            "name": f"{where['parent']}/operations/{next(self.numbers)}",
            "done": False,
            "metadata": {"target": name, "createTime": at, "verb": "create"},
        }
        self.by_request[where["requestId"]] = ("", operation)
        failure = self.take_fault(CREATE, "async")
        self.slices[name] = {
            **altered(body, self.take_fault(CREATE, "alter")),
            "name": name, "createTime": at, "state": {"state": "WAITING_FOR_RESOURCES"},
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
                one["state"] = {"state": "FAILED", "failedData": {"error": {"code": code, "message": message}}}
                return
            one["state"] = {"state": "ACTIVE", "activeData": {}}
            bill.started_s = one["_since"] + MAKING_S
            limit = one.get("runDuration", {}).get("maxRunDuration")
            one["_ends"] = bill.started_s + float(limit.removesuffix("s")) if limit else float("inf")
            bill.set_to_end(one["_ends"])
            state = "ACTIVE"
        if state == "ACTIVE" and self.elapsed_s >= one["_ends"]:
            self.slice_ends(one, "SUSPENDED", one["_ends"])
        elif state == "DELETING" and self.elapsed_s >= one["_gone"]:
            self.slice_ends(one, "SUSPENDED", one["_gone"])
            del self.slices[name]

    def slice_ends(self, one: dict[str, Any], state: str, at_s: float) -> None:
        bill = self.billed[one["name"]]
        if bill.started_s is not None and bill.ended_s is None:
            bill.ended_s = at_s
        one["state"] = {"state": state}

    def get_slice(self, where: dict[str, str], body: Any) -> Answer:
        one = self.slices.get(where["name"])
        return Answer(200, public(one)) if one else self.error(404, "NOT_FOUND", f"{where['name']} was not found")

    def delete_slice(self, where: dict[str, str], body: Any) -> Answer:
        one = self.slices.get(where["name"])
        if one is None:
            return self.error(404, "NOT_FOUND", f"{where['name']} was not found")
        if where.get("force") != "true":
            raise ViolationError("a slice with nodes is deleted by force")
        if one["state"]["state"] != "DELETING":
            one["state"], one["_gone"] = {"state": "DELETING"}, self.elapsed_s + ENDING_S
        return Answer(
            200,
            {
                "name": "operations/delete",
                "done": False,
                "metadata": {"@type": f"type.googleapis.com/{METADATA}", "target": where["name"]},
            },
        )

    def list_slices(self, where: dict[str, str], body: Any) -> Answer:
        project = where["parent"].removesuffix("/locations/-")
        rows = [
            public(one)
            for name, one in self.slices.items()
            if name.startswith(f"{project}/") and self.elapsed_s >= one["_since"] + self.invisible_s
        ]
        rows = [row for row in rows if row["name"].split("/")[3] not in self.unreachable]
        return Answer(200, {"queuedResources": rows, "unreachable": self.unreachable})


_RPC = {
    "capacity": (8, "There is no more capacity in the zone"),
    "quota": (8, "Quota limit 'TPUV5sLitepodPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 0"),
}
