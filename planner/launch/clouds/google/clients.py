"""Calls through Google's clients: google-cloud-compute, and google-cloud-tpu where that suffices.

Parameters and replies are the client's messages in JSON form: camel case, enumerations by name, 64-bit integers as
text. A name that the client does not know is an error. Each call is sent once: no retries, no polling of
operations, one page of a list.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.api_call import CloudError, ErrorKind
from .access import TIMEOUT_S, GoogleAccess, endpoint, translate_errors

__all__ = ["METHODS", "GoogleClients"]


@dataclass(frozen=True, slots=True)
class _Method:
    """A method of a client.

    Args:
        package: Package in `google.cloud`.
        client: Class name without `Client`.
        name: Name of the method.
        request: Class of its request.
        makes: Whether it creates a resource.
    """

    package: str
    client: str
    name: str
    request: str
    makes: bool = False


METHODS = {
    "compute.v1.instances.insert": _Method(
        "compute_v1", "Instances", "insert_unary", "InsertInstanceRequest", makes=True
    ),
    "compute.v1.instances.get": _Method("compute_v1", "Instances", "get", "GetInstanceRequest"),
    "compute.v1.instances.delete": _Method(
        "compute_v1", "Instances", "delete_unary", "DeleteInstanceRequest"
    ),
    "compute.v1.instances.aggregatedList": _Method(
        "compute_v1", "Instances", "aggregated_list", "AggregatedListInstancesRequest"
    ),
    "compute.v1.zoneOperations.list": _Method(
        "compute_v1", "ZoneOperations", "list", "ListZoneOperationsRequest"
    ),
    "tpu.v2.projects.locations.queuedResources.delete": _Method(
        "tpu_v2", "Tpu", "delete_queued_resource", "DeleteQueuedResourceRequest"
    ),
}


class GoogleClients:
    """Clients, created on first use.

    Args:
        access: Credentials and clock.
    """

    def __init__(self, access: GoogleAccess) -> None:
        self._access = access
        self._made: dict[tuple[str, str], Any] = {}

    def send(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once and return its reply.

        Raises:
            CloudError: The call failed.
        """
        method = METHODS[f"{service}.{operation}"]
        module = importlib.import_module(f"google.cloud.{method.package}")
        request = _message(getattr(module, method.request), params)
        client = self._client(module, method)
        with translate_errors(makes=method.makes):
            return _plain(getattr(client, method.name)(request=request, retry=None, timeout=TIMEOUT_S))

    def _client(self, module: Any, method: _Method) -> Any:
        """Return a client on the REST transport of the endpoint that is set."""
        key = (method.package, method.client)
        if key not in self._made:
            client = getattr(module, f"{method.client}Client")
            host = endpoint(method.package.partition("_")[0]).rstrip("/").removesuffix("/compute/v1")
            transport = client.get_transport_class("rest")(
                host=host, credentials=self._access.credentials(), always_use_jwt_access=True
            )
            transport._session.hooks["response"].append(self._access.note_time)
            self._made[key] = client(transport=transport)
        return self._made[key]


def _message(kind: Any, params: Mapping[str, Any]) -> Any:
    """Return parameters as a message of the client; raise CloudError for an unknown name or value."""
    from google.protobuf.json_format import ParseError

    try:
        return kind.from_json(json.dumps(params), ignore_unknown_fields=False)
    except ParseError as error:
        reason = str(error).partition("\n")[0]
        raise CloudError(ErrorKind.INVALID, kind.__name__, reason) from error


def _plain(reply: Any) -> dict[str, Any]:
    """Return a reply in its JSON form: a message, the first page of a list, or an operation."""
    from google.protobuf.json_format import MessageToDict

    if hasattr(reply, "pages"):
        reply = next(iter(reply.pages))
    message = reply.operation if hasattr(reply, "operation") else type(reply).pb(reply)
    return dict(MessageToDict(message))
