"""Classification of Google's errors; an unrecognized error is of unknown outcome.

Codes of Compute Engine's operations, and of `google.rpc.Code` for Cloud TPU. [unverified] None was seen at the
real cloud; after an unknown outcome, machines are looked up by label before anything else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...core.api_call import CloudError, ErrorKind, look_up

__all__ = ["parse_error_response", "parse_operation_error", "parse_tpu_state_error"]

_CAPACITY = {
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    "INSUFFICIENTCAPACITY",
    "STOCKOUT",
    "RESOURCE_POOL_EXHAUSTED",
}
_RATE = {
    "RATELIMITEXCEEDED",
    "USERRATELIMITEXCEEDED",
    "RATE_LIMIT_EXCEEDED",
    "RESOURCE_OPERATION_RATE_EXCEEDED",
}
_NOT_READY = {"RESOURCENOTREADY", "RESOURCE_NOT_READY", "RESOURCEINUSEBYANOTHERRESOURCE"}
_NOT_HERE = (
    "does not exist in zone",
    "acceleratortypes/",
    "machinetypes/",
    "unknown zone",
    "accelerator type",
)
_RPC_EXHAUSTED = 8
# "The resource 'projects/p1/zones/us-east1-b' was not found": the place, not the resource.
_PLACE = re.compile(r"projects/[^/']+(/(zones|locations)/[^/']+)?'? was not found")


def parse_error_response(status: int, body: Any, *, makes: bool) -> CloudError:
    """Return the CloudError of an error response.

    Args:
        status: HTTP status.
        body: Parsed JSON, or None.
        makes: Whether the call creates a resource: then "not found" is about the place.
    """
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
        kind = _named(code, message) or _in_operation(code, message)
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
    """Return the kind of an unambiguous code, or None."""
    upper = code.upper()
    if upper in _CAPACITY:
        return ErrorKind.CAPACITY
    if upper in _RATE:
        return ErrorKind.THROTTLED
    if upper in {"QUOTAEXCEEDED", "QUOTA_EXCEEDED"}:
        return ErrorKind.QUOTA
    if upper == "RESOURCE_EXHAUSTED":
        return _exhausted(message)
    if upper in {"ALREADYEXISTS", "ALREADY_EXISTS", "RESOURCE_ALREADY_EXISTS"}:
        return ErrorKind.EXISTS
    return ErrorKind.TRANSIENT if upper in _NOT_READY else None


def _by_status(status: int, message: str, *, makes: bool) -> ErrorKind:
    """Return the kind of an answer without a known code."""
    if status in {401, 403}:
        return ErrorKind.CREDENTIALS
    if status in {400, 404} and makes and _is_not_here(message):
        return ErrorKind.CAPACITY
    if status == 404:
        return ErrorKind.INVALID if makes or _PLACE.search(message) else ErrorKind.ABSENT
    if status == 409:
        return ErrorKind.EXISTS if makes else ErrorKind.TRANSIENT
    if status == 429:
        return ErrorKind.THROTTLED
    return ErrorKind.INVALID if 400 <= status < 500 else ErrorKind.UNKNOWN


def _in_operation(code: str, message: str) -> ErrorKind:
    """Return the kind of an operation's error."""
    if code == "UNSUPPORTED_OPERATION" or _is_not_here(message):  # preempted while it was created
        return ErrorKind.CAPACITY
    if code == "PERMISSIONS_ERROR":
        return ErrorKind.CREDENTIALS
    return ErrorKind.TRANSIENT if code == "INTERNAL_ERROR" else ErrorKind.INVALID


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
    """Whether the zone does not offer such a machine."""
    return any(part in message.lower() for part in _NOT_HERE)


def _scope(message: str) -> str:
    """Return the scope of a quota."""
    return "account" if "GPUS_ALL_REGIONS" in message or "all_regions" in message.lower() else "region"
