"""State that the parts of the fake Google Cloud share, and its errors."""

from __future__ import annotations

import itertools
from typing import Any

from launch.cloud_server import Answer, Billed, CloudState, Drop

__all__ = ["CREATE", "ENDING_S", "INSERT", "MAKING_S", "GoogleState", "altered", "public"]

MAKING_S, ENDING_S = 20.0, 15.0
INSERT, CREATE = "compute.instances.insert", "tpu.projects.locations.queuedResources.create"


class GoogleState(CloudState):
    """Projects, zones, operations, tokens; machines, slices and objects are a subclass's to fill."""

    def begin(self) -> None:
        """Forget everything: a new cloud."""
        super().__init__()
        self.vms: dict[tuple[str, str], dict[str, Any]] = {}
        self.slices: dict[str, dict[str, Any]] = {}
        self.operations: list[dict[str, Any]] = []
        self.by_request: dict[str, tuple[str, dict[str, Any]]] = {}
        self.numbers = itertools.count(7_000_000_001)
        self.billed: dict[str, Billed] = {}
        self.objects: dict[str, tuple[dict[str, Any], bytes]] = {}
        self.unreachable: list[str] = []  # zones that do not answer
        self.refused: list[str] = []  # projects in which nothing is allowed
        self.hang = False  # guests that come up now hang: their timers are never set

    def error(self, status: int, reason: str, message: str) -> Answer:
        upper = {"status": reason} if reason.isupper() else {"errors": [{"reason": reason, "message": message}]}
        return Answer(status, {"error": {"code": status, "message": message, **upper}})

    def fail(self, how: str) -> Answer:
        if how == "reset":
            raise Drop
        if how == "garbage":
            return Answer(200, '{"kind": "compute#oper')
        if how == "page":
            return Answer(502, "<html>Bad Gateway</html>", {"Content-Type": "text/html"})
        if how == "list":
            return Answer(500, [{"error": "of a proxy"}])
        return self.error(*_SYNC[how])


_SYNC = {
    "http500": (500, "backendError", "Internal error"),
    "http503": (503, "backendError", "The service is currently unavailable"),
    "throttle": (429, "rateLimitExceeded", "Rate Limit Exceeded"),
    "throttle403": (403, "rateLimitExceeded", "Rate Limit Exceeded"),
    "unauthorized": (401, "authError", "Invalid Credentials"),
    "forbidden": (403, "forbidden", "Required 'compute.instances.create' permission"),
    "disabled": (403, "accessNotConfigured", "Cloud TPU API has not been used in project p1 before"),
    "capacity": (503, "ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources available"),
    "quota": (403, "quotaExceeded", "Quota 'NVIDIA_T4_GPUS' exceeded. Limit: 0.0 in region us-central1."),
    "not_here": (400, "invalid", "Machine type with name 'a2' does not exist in zone 'us-central1-f'."),
    "invalid": (400, "invalid", "Invalid value for field 'resource.disks[0]'"),
}
# Of a queued resource, and of an instance.
_ALTERED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "longer": (
        {"runDuration": {"maxRunDuration": "999999s"}},
        {"scheduling": {"maxRunDuration": {"seconds": "999999"}}},
    ),
    "bought otherwise": (
        {"provisioningModel": "RESERVATION_BOUND"},
        {"scheduling": {"provisioningModel": "RESERVATION_BOUND"}},
    ),
    "stop": ({}, {"scheduling": {"instanceTerminationAction": "STOP"}}),
    "late": ({}, {"_late": 3600.0}),
}


def altered(body: dict[str, Any], how: str | None) -> dict[str, Any]:
    """Return what the cloud makes of a request, which it may not keep to."""
    changes = _ALTERED[how]["scheduling" in body] if how else {}
    both = {key: {**body[key], **value} for key, value in changes.items() if isinstance(value, dict)}
    return {**body, **changes, **both}


def public(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith("_")}
