"""Calls to Google Cloud, each sent once: credentials, endpoints, clock, and classification of errors."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...core.api_call import CloudError, ErrorKind, look_up
from ...core.clock import ServerDateClock
from ...core.upload import build_archive
from ..base import find_status_kind, index_codes, read_answer

TIMEOUT_S = 60.0
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
# Variables are gcloud's own: https://cloud.google.com/sdk/gcloud/reference/config/set (api_endpoint_overrides).
_ENDPOINTS = {
    "compute": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "https://compute.googleapis.com/compute/v1/"),
    "tpu": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", "https://tpu.googleapis.com/"),
    "storage": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", "https://storage.googleapis.com/storage/v1/"),
}


def endpoint(interface: str) -> str:
    variable, default = _ENDPOINTS[interface]
    return os.environ.get(variable, default)


@contextmanager
def translate_errors(*, makes: bool) -> Iterator[None]:
    """Convert errors of Google's libraries to CloudError; a missing answer is an unknown outcome."""
    import requests
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.protobuf.json_format import ParseError

    try:
        yield
    except GoogleAPICallError as error:
        raise parse_error_response(int(error.code or 0), _body(error.response), makes=makes) from error
    except TransportError as error:  # no token; the call was not sent
        raise CloudError(ErrorKind.TRANSIENT, type(error).__name__, str(error)) from error
    except GoogleAuthError as error:
        raise CloudError(ErrorKind.CREDENTIALS, type(error).__name__, str(error)) from error
    except requests.RequestException as error:
        raise CloudError(ErrorKind.UNKNOWN, type(error).__name__, str(error)) from error
    except (ParseError, ValueError, AttributeError, TypeError) as error:
        # The clients raise the last two for an error body that is JSON but not in Google's form.
        raise CloudError(ErrorKind.UNKNOWN, "GarbledAnswer", "the answer is not in Google's JSON") from error


def _body(answer: Any) -> Any:
    try:
        return answer.json() if answer is not None else None
    except ValueError:
        return None


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _has_credentials() -> bool:
    """Whether credentials may exist: a configured or default file, or a machine of Google Cloud."""
    if os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return True
    folder = Path(os.environ.get("CLOUDSDK_CONFIG", Path.home() / ".config" / "gcloud"))
    board = Path("/sys/class/dmi/id/product_name")
    on_google = board.exists() and "Google" in board.read_text(encoding="utf-8", errors="replace")
    return on_google or (folder / "application_default_credentials.json").exists()


_CODES = {  # in upper case
    ErrorKind.CAPACITY: """
        ZONE_RESOURCE_POOL_EXHAUSTED ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS INSUFFICIENTCAPACITY STOCKOUT
        RESOURCE_POOL_EXHAUSTED UNSUPPORTED_OPERATION
    """,  # the last: preempted while it was created
    ErrorKind.CREDENTIALS: "PERMISSIONS_ERROR",
    ErrorKind.THROTTLED: """
        RATELIMITEXCEEDED USERRATELIMITEXCEEDED RATE_LIMIT_EXCEEDED RESOURCE_OPERATION_RATE_EXCEEDED
    """,
    ErrorKind.QUOTA: "QUOTAEXCEEDED QUOTA_EXCEEDED",
    ErrorKind.EXISTS: "ALREADYEXISTS ALREADY_EXISTS RESOURCE_ALREADY_EXISTS",
    ErrorKind.TRANSIENT: "RESOURCENOTREADY RESOURCE_NOT_READY RESOURCEINUSEBYANOTHERRESOURCE INTERNAL_ERROR",
}
_KIND_OF = index_codes(_CODES)
_NOT_HERE = ("does not exist in zone", "acceleratortypes/", "machinetypes/", "unknown zone", "accelerator type")
_RPC_EXHAUSTED = 8
# "The resource 'projects/p1/zones/us-east1-b' was not found": the place, not the resource.
_PLACE = re.compile(r"projects/[^/']+(/(zones|locations)/[^/']+)?'? was not found")


def parse_error_response(status: int, body: Any, *, makes: bool) -> CloudError:
    """Return the CloudError of an error response; "not found" is about the place of a thing that a call makes."""
    error = look_up(body, "error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        kind = ErrorKind.THROTTLED if status == 429 else ErrorKind.UNKNOWN
        return CloudError(kind, f"HTTP {status}", "")
    code = str(look_up(error, "errors.0.reason") or error.get("status") or status)
    message = str(error.get("message", ""))
    kind = _named(code, message) or _by_status(status, message, makes=makes)
    return CloudError(kind, code, message, scope=_scope(message))


def parse_operation_error(reply: Mapping[str, Any]) -> CloudError | None:
    """Return the CloudError of a failed operation, or None."""
    first = look_up(reply, "error.errors.0")
    if isinstance(first, Mapping):
        code, message = str(first.get("code", "")), str(first.get("message", ""))
        kind = _named(code, message) or (ErrorKind.CAPACITY if _is_not_here(message) else ErrorKind.INVALID)
        return CloudError(kind, code, message, scope=_scope(message))
    if reply.get("done") and isinstance(reply.get("error"), Mapping):
        return _of_rpc(reply["error"])
    return None


def parse_tpu_state_error(reply: Mapping[str, Any]) -> CloudError | None:
    """Return the CloudError of a queued resource that failed or ended, or None."""
    state = look_up(reply, "state.state")
    if state == "FAILED":
        return _of_rpc(look_up(reply, "state.failedData.error") or {})
    if state in {"SUSPENDING", "SUSPENDED", "DELETING"}:
        return CloudError(ErrorKind.SPENT_TOKEN, str(state), "the slice ended while it started")
    return None


def _named(code: str, message: str) -> ErrorKind | None:
    return _exhausted(message) if code.upper() == "RESOURCE_EXHAUSTED" else _KIND_OF.get(code.upper())


def _by_status(status: int, message: str, *, makes: bool) -> ErrorKind:
    if status in {400, 404} and makes and _is_not_here(message):
        return ErrorKind.CAPACITY
    absent = ErrorKind.INVALID if makes or _PLACE.search(message) else ErrorKind.ABSENT
    taken = ErrorKind.EXISTS if makes else ErrorKind.TRANSIENT
    return find_status_kind(status, {404: absent, 409: taken})


def _of_rpc(error: Mapping[str, Any]) -> CloudError:
    """Return the CloudError of a `google.rpc.Status`; a failed slice usually means no capacity."""
    code, message = int(error.get("code", 0)), str(error.get("message", ""))
    kinds = {3: ErrorKind.INVALID, 7: ErrorKind.CREDENTIALS, 16: ErrorKind.CREDENTIALS}
    kind = _exhausted(message) if code == _RPC_EXHAUSTED else kinds.get(code, ErrorKind.CAPACITY)
    return CloudError(kind, f"rpc {code}", message, scope=_scope(message))


def _exhausted(message: str) -> ErrorKind:
    """Return the kind of an exhausted resource: capacity, quota or request rate."""
    lower = message.lower()
    if "quota limit" in lower or "quota exceeded" in lower:
        return ErrorKind.THROTTLED if "per minute" in lower else ErrorKind.QUOTA
    return ErrorKind.CAPACITY


def _is_not_here(message: str) -> bool:
    return any(part in message.lower() for part in _NOT_HERE)


def _scope(message: str) -> str:
    return "account" if "GPUS_ALL_REGIONS" in message or "all_regions" in message.lower() else "region"


# Package in `google.cloud`, class without `Client`, method and class of the request.
CLIENT_METHODS = {
    "compute.v1.instances.insert": ("compute_v1", "Instances", "insert_unary", "InsertInstanceRequest"),
    "compute.v1.instances.get": ("compute_v1", "Instances", "get", "GetInstanceRequest"),
    "compute.v1.instances.delete": ("compute_v1", "Instances", "delete_unary", "DeleteInstanceRequest"),
    "compute.v1.instances.getSerialPortOutput": (
        "compute_v1", "Instances", "get_serial_port_output", "GetSerialPortOutputInstanceRequest",
    ),
    "compute.v1.instances.aggregatedList": (
        "compute_v1", "Instances", "aggregated_list", "AggregatedListInstancesRequest",
    ),
    "compute.v1.zoneOperations.list": ("compute_v1", "ZoneOperations", "list", "ListZoneOperationsRequest"),
    "tpu.v2.projects.locations.queuedResources.delete": (
        "tpu_v2", "Tpu", "delete_queued_resource", "DeleteQueuedResourceRequest",
    ),
}  # fmt: skip
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


class GoogleAccess:
    """Application default credentials, the cloud's clock, and calls: through Google's clients, or over HTTPS."""

    def __init__(self) -> None:
        self._credentials: Any = None
        self._session: Any = None
        self._clients: dict[tuple[str, str], Any] = {}
        self.clock = ServerDateClock()

    def missing(self) -> str:
        """Return the reason why Google Cloud cannot be called from here; empty if it can. Sends nothing."""
        if any(not _is_installed(name) for name in ("google.auth", "google.cloud.compute_v1")):
            return "Google's clients are not installed: `pip install 'gpuplan[gcp]'`"
        if not _has_credentials():
            return "no credentials for Google Cloud: `gcloud auth application-default login`"
        return ""

    def credentials(self) -> Any:
        """Return the credentials, read once."""
        if self._credentials is None:
            import google.auth
            from google.auth.exceptions import GoogleAuthError

            try:
                self._credentials, _ = google.auth.default(scopes=[SCOPE])
            except (GoogleAuthError, OSError, ValueError) as error:
                raise CloudError(ErrorKind.CREDENTIALS, type(error).__name__, str(error)) from error
        return self._credentials

    def send(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once and return its reply, or raise CloudError."""
        name = f"{service}.{operation}"
        return self._by_client(name, params) if name in CLIENT_METHODS else self._by_rest(name, params)

    def _by_client(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        package, client, method, kind = CLIENT_METHODS[name]
        module = importlib.import_module(f"google.cloud.{package}")
        request = _message(getattr(module, kind), params)
        send = getattr(self._client(module, package, client), method)
        with translate_errors(makes=method.startswith("insert")):
            return _plain(send(request=request, retry=None, timeout=TIMEOUT_S))

    def _by_rest(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        verb, template = REST_METHODS[name]
        named = {name: value for name, value in params.items() if name not in {"body", "media"}}
        query = {name: value for name, value in named.items() if f"{{{name}}}" not in template}
        base, body = endpoint(name.partition(".")[0]), {"json": params.get("body")}
        if "media" in params:  # `mediaUpload.protocols.simple.path` of the discovery document
            base, body = base.removesuffix("storage/v1/") + "upload/storage/v1/", _multipart(params)
        url, makes = base + template.format(**named), verb == "POST"
        body |= {"params": query, "timeout": TIMEOUT_S, "max_allowed_time": TIMEOUT_S}
        with translate_errors(makes=makes):
            answer = self._authorized().request(verb, url, **body)
        return read_answer(answer.status_code, answer.text, error_of=parse_error_response, makes=makes)

    def _client(self, module: Any, package: str, name: str) -> Any:
        """Return a client on the REST transport of the endpoint that is set."""
        key = (package, name)
        if key not in self._clients:
            client = getattr(module, f"{name}Client")
            host = endpoint(package.partition("_")[0]).rstrip("/").removesuffix("/compute/v1")
            transport = client.get_transport_class("rest")(
                host=host, credentials=self.credentials(), always_use_jwt_access=True
            )
            transport._session.hooks["response"].append(self._note_time)
            self._clients[key] = client(transport=transport)
        return self._clients[key]

    def _authorized(self) -> Any:
        """Return the session, which renews its token and retries nothing else."""
        if self._session is None:
            from google.auth.transport.requests import AuthorizedSession

            self._session = AuthorizedSession(self.credentials())
            self._session.hooks["response"].append(self._note_time)
        return self._session

    def _note_time(self, answer: Any, *_: Any, **__: Any) -> None:
        """Take the time from an answer; a hook of `requests`."""
        self.clock.note(answer.headers.get("Date"))


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


def _multipart(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object and its metadata as one body (cloud.google.com/storage/docs/uploading-objects)."""
    head = f"--{_BOUNDARY}\r\nContent-Type: application/json\r\n\r\n{json.dumps(params['body'])}\r\n"
    middle = f"--{_BOUNDARY}\r\nContent-Type: application/gzip\r\n\r\n"
    data = (head + middle).encode() + build_archive(params["media"]) + f"\r\n--{_BOUNDARY}--\r\n".encode()
    return {"data": data, "headers": {"Content-Type": f"multipart/related; boundary={_BOUNDARY}"}}
