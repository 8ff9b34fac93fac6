"""Classification of Azure's errors by their code, never by HTTP status alone.

Codes: https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors
and https://learn.microsoft.com/troubleshoot/azure/virtual-machines/windows/allocation-failure.
[unverified] None was seen at the real cloud; a server error without such a code is of unknown outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.api_call import CloudError, ErrorKind, look_up

__all__ = ["parse_error_response", "parse_machine_error", "parse_registration_error"]

_CODES: dict[ErrorKind, frozenset[str]] = {
    ErrorKind.CAPACITY: frozenset(
        {
            "SkuNotAvailable", "AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest",
            "OverconstrainedZonalAllocationRequest", "LocationNotAvailableForResourceType",
            "AvailabilityZoneNotSupported", "LowPriorityCapacityNotAvailable",
        }
    ),
    ErrorKind.QUOTA: frozenset(
        {"QuotaExceeded", "ResourceQuotaExceeded", "PublicIPCountLimitReached", "CoreQuotaExceeded"}
    ),
    ErrorKind.CREDENTIALS: frozenset(
        {
            "AuthenticationFailed", "AuthorizationFailed", "ExpiredAuthenticationToken",
            "InvalidAuthenticationToken", "InvalidAuthenticationTokenTenant", "LinkedAuthorizationFailed",
            "SubscriptionNotFound", "DisabledSubscription", "ReadOnlyDisabledSubscription",
        }
    ),
    ErrorKind.THROTTLED: frozenset(
        {"TooManyRequests", "SubscriptionRequestsThrottled", "OperationNotAllowedThrottled"}
    ),
    ErrorKind.TRANSIENT: frozenset(
        {
            "AnotherOperationInProgress", "ReferencedResourceNotProvisioned", "RetryableError",
            "PrincipalNotFound", "Conflict",
        }
    ),
    # The group is being deleted, or the interface was deleted with its machine: the attempt is over.
    ErrorKind.SPENT_TOKEN: frozenset(
        {"ResourceGroupBeingDeleted", "ResourceGroupNotFound", "InvalidResourceReference"}
    ),
    ErrorKind.EXISTS: frozenset({"ConditionNotMet", "PreconditionFailed", "RoleAssignmentExists"}),
}  # fmt: skip
_KIND_OF = {code: kind for kind, codes in _CODES.items() for code in codes}
_GIVEN_BACK = {
    "PowerState/deallocating",
    "PowerState/deallocated",
    "PowerState/stopping",
    "PowerState/stopped",
}


def parse_error_response(status: int, body: Any, *, makes: bool) -> CloudError:
    """Return the CloudError of an error response.

    Args:
        status: HTTP status.
        body: Parsed JSON, or None.
        makes: Whether the call makes something: then "not found" is about a dependency.
    """
    error = look_up(body, "error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return CloudError(_by_status(status, makes=makes), f"HTTP {status}", "")
    code, message = str(error.get("code") or status), " ".join(str(error.get("message", "")).split())
    kind = ErrorKind.THROTTLED if status == 429 else _named(code, message) or _by_status(status, makes=makes)
    if kind is ErrorKind.SPENT_TOKEN and not makes:
        kind = ErrorKind.ABSENT
    return CloudError(kind, code, message, scope=_scope(message))


def parse_machine_error(reply: Mapping[str, Any]) -> CloudError | None:
    """Return the CloudError of a machine that failed or ended while it started, or None.

    The reason is in the status `ProvisioningState/failed/REASON` of its instance view.
    """
    statuses = look_up(reply, "properties.instanceView.statuses") or []
    codes = {str(one.get("code")): one for one in statuses}
    failed = next((code for code in codes if code.startswith("ProvisioningState/failed")), None)
    if failed:
        reason = failed.split("/")[2] if failed.count("/") > 1 else "ProvisioningFailed"
        message = " ".join(str(codes[failed].get("message", "")).split())
        kind = _named(reason, message) or ErrorKind.CAPACITY
        return CloudError(kind, reason, message, scope=_scope(message))
    if look_up(reply, "properties.provisioningState") == "Deleting" or _GIVEN_BACK & codes.keys():
        return CloudError(ErrorKind.SPENT_TOKEN, "Ended", "the machine ended while it started")
    return None


def parse_registration_error(reply: Mapping[str, Any]) -> CloudError | None:
    """Return the CloudError of a service that the subscription has not registered, or None."""
    state, namespace = reply.get("registrationState"), reply.get("namespace")
    if state == "Registered":
        return None
    return CloudError(
        ErrorKind.INVALID,
        "MissingSubscriptionRegistration",
        f"{namespace} is {state}: `az provider register --namespace {namespace}`",
    )


def _named(code: str, message: str) -> ErrorKind | None:
    """Return the kind of an unambiguous code, or None; a quota may be reported as `OperationNotAllowed`."""
    if code in {"OperationNotAllowed", "Forbidden", "BadRequest"} and "quota" in message.lower():
        return ErrorKind.QUOTA
    return _KIND_OF.get(code)


def _by_status(status: int, *, makes: bool) -> ErrorKind:
    """Return the kind of an answer without a known code."""
    if status in {401, 403}:
        return ErrorKind.CREDENTIALS
    if status == 404:
        return ErrorKind.SPENT_TOKEN if makes else ErrorKind.ABSENT
    if status == 429:
        return ErrorKind.THROTTLED
    if status == 412:
        return ErrorKind.EXISTS
    return ErrorKind.INVALID if 400 <= status < 500 else ErrorKind.UNKNOWN


def _scope(message: str) -> str:
    """Return the scope of a quota: the region, or the account for limits of free subscriptions."""
    return "account" if "free trial" in message.lower() else "region"
