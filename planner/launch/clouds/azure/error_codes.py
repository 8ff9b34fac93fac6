"""Azure's errors, sorted by their code (never by HTTP status alone) into the kinds that all clouds share.

Codes: https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors
and https://learn.microsoft.com/troubleshoot/azure/virtual-machines/windows/allocation-failure.
[unverified] None of them was seen at the real cloud; whatever a server says of itself without such a code is
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.api_call import look_up
from ...core.errors import CloudError, ErrorKind

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
    # Its group is going, or the network interface, which ends with its machine, has gone: the attempt is over.
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
    """Return what an answer with an error means.

    Args:
        status: Of HTTP.
        body: As JSON; anything else when it was none.
        makes: Whether the call makes something: then "not found" is about what it needs.
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
    """Return what it means that a machine failed or ended while it was to start; None while it may come up.

    The reason stands in the status `ProvisioningState/failed/REASON` of its instance view.
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
    """Return what it means that a subscription may not use a service; None when it may."""
    state, namespace = reply.get("registrationState"), reply.get("namespace")
    if state == "Registered":
        return None
    return CloudError(
        ErrorKind.INVALID, "MissingSubscriptionRegistration",
        f"{namespace} is {state}: `az provider register --namespace {namespace}`",
    )  # fmt: skip


def _named(code: str, message: str) -> ErrorKind | None:
    """Return the kind of a code that says it all; a quota hides behind `OperationNotAllowed`."""
    if code in {"OperationNotAllowed", "Forbidden", "BadRequest"} and "quota" in message.lower():
        return ErrorKind.QUOTA
    return _KIND_OF.get(code)


def _by_status(status: int, *, makes: bool) -> ErrorKind:
    """Return the kind of an answer whose code says nothing."""
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
    """Return how far a quota reaches: Azure counts by region, but for the free subscriptions' own limit."""
    return "account" if "free trial" in message.lower() else "region"
