"""Calls to Google Cloud, each sent once: no retries, no polling of operations, one page of a list.

Google's clients send what they suffice for. Parameters and replies are the client's messages in JSON form: camel
case, enumerations by name, 64-bit integers as text. A name that the client does not know is an error.

All others are sent over HTTPS with google-auth, after the discovery documents:

Cloud TPU `v2alpha1`: google-cloud-tpu (1.28) lacks what a safe launch needs.
    - `runDuration` and `provisioningModel` of a queued resource (cap and purchase option) are in neither `tpu_v2`
      nor `tpu_v2alpha1` (ValueError: Unknown field), so the cap can be neither set nor read back.
    - `tpu_v2alpha1` has gRPC transports only.
    - A failed queued resource with a detail of a type unknown to the client cannot be parsed (ParseError), and one
      such resource makes a whole list unreadable.
Deletion with `force` goes through the client.

Cloud Storage: google-cloud-storage would add resumable uploads and retries that bypass the ledger.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from typing import Any

from ...core.api_call import CloudError, ErrorKind
from ...prepare.upload import build_archive
from ..base import read_answer
from .access import TIMEOUT_S, GoogleAccess, endpoint, parse_error_response, translate_errors

# Package in `google.cloud`, class without `Client`, method and class of the request.
CLIENT_METHODS = {
    "compute.v1.instances.insert": ("compute_v1", "Instances", "insert_unary", "InsertInstanceRequest"),
    "compute.v1.instances.get": ("compute_v1", "Instances", "get", "GetInstanceRequest"),
    "compute.v1.instances.delete": ("compute_v1", "Instances", "delete_unary", "DeleteInstanceRequest"),
    "compute.v1.instances.aggregatedList": (
        "compute_v1", "Instances", "aggregated_list", "AggregatedListInstancesRequest",
    ),
    "compute.v1.zoneOperations.list": ("compute_v1", "ZoneOperations", "list", "ListZoneOperationsRequest"),
    "tpu.v2.projects.locations.queuedResources.delete": (
        "tpu_v2", "Tpu", "delete_queued_resource", "DeleteQueuedResourceRequest",
    ),
}  # fmt: skip


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
        package, client, method, kind = CLIENT_METHODS[f"{service}.{operation}"]
        module = importlib.import_module(f"google.cloud.{package}")
        request = _message(getattr(module, kind), params)
        send = getattr(self._client(module, package, client), method)
        with translate_errors(makes=method.startswith("insert")):
            return _plain(send(request=request, retry=None, timeout=TIMEOUT_S))

    def _client(self, module: Any, package: str, name: str) -> Any:
        """Return a client on the REST transport of the endpoint that is set."""
        key = (package, name)
        if key not in self._made:
            client = getattr(module, f"{name}Client")
            host = endpoint(package.partition("_")[0]).rstrip("/").removesuffix("/compute/v1")
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


_QUEUED = "tpu.v2alpha1.projects.locations.queuedResources"
# Verb and path of each method, from the discovery documents; other parameters go into the query.
REST_METHODS = {
    f"{_QUEUED}.create": ("POST", "v2alpha1/{parent}/queuedResources"),
    f"{_QUEUED}.list": ("GET", "v2alpha1/{parent}/queuedResources"),
    f"{_QUEUED}.get": ("GET", "v2alpha1/{name}"),
    "storage.v1.objects.get": ("GET", "b/{bucket}/o/{object}"),
    "storage.v1.objects.list": ("GET", "b/{bucket}/o"),
    "storage.v1.objects.insert": ("POST", "b/{bucket}/o"),
    "storage.v1.objects.delete": ("DELETE", "b/{bucket}/o/{object}"),
}
_BOUNDARY = "gpuplan-next-part"


class GoogleRest:
    """A session with credentials.

    Args:
        access: Credentials and clock.
    """

    def __init__(self, access: GoogleAccess) -> None:
        self._access = access
        self._session: Any = None

    def send(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once and return its reply.

        Raises:
            CloudError: The call failed.
        """
        verb, template = REST_METHODS[f"{service}.{operation}"]
        named = {name: value for name, value in params.items() if name not in {"body", "media"}}
        query = {name: value for name, value in named.items() if f"{{{name}}}" not in template}
        base, body = endpoint(service.partition(".")[0]), {"json": params.get("body")}
        if "media" in params:  # `mediaUpload.protocols.simple.path` of the discovery document
            base, body = base.removesuffix("storage/v1/") + "upload/storage/v1/", _multipart(params)
        makes = verb == "POST"
        with translate_errors(makes=makes):
            answer = self._authorized().request(
                verb,
                base + template.format(**named),
                params=query,
                timeout=TIMEOUT_S,
                max_allowed_time=TIMEOUT_S,
                **body,
            )
        return read_answer(answer.status_code, answer.text, error_of=parse_error_response, makes=makes)

    def _authorized(self) -> Any:
        """Return the session, which renews its token and retries nothing else."""
        if self._session is None:
            from google.auth.transport.requests import AuthorizedSession

            self._session = AuthorizedSession(self._access.credentials())
            self._session.hooks["response"].append(self._access.note_time)
        return self._session


def _multipart(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object and its metadata as one body (cloud.google.com/storage/docs/uploading-objects)."""
    head = f"--{_BOUNDARY}\r\nContent-Type: application/json\r\n\r\n{json.dumps(params['body'])}\r\n"
    middle = f"--{_BOUNDARY}\r\nContent-Type: application/gzip\r\n\r\n"
    data = (head + middle).encode() + build_archive(params["media"]) + f"\r\n--{_BOUNDARY}--\r\n".encode()
    return {"data": data, "headers": {"Content-Type": f"multipart/related; boundary={_BOUNDARY}"}}
