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
from ...core.errors import CloudFault, FaultKind

__all__ = ["fault_of_answer", "fault_of_machine", "fault_of_registration"]

_CODES: dict[FaultKind, frozenset[str]] = {
    FaultKind.CAPACITY: frozenset(
        {
            "SkuNotAvailable", "AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest",
            "OverconstrainedZonalAllocationRequest", "LocationNotAvailableForResourceType",
            "AvailabilityZoneNotSupported", "LowPriorityCapacityNotAvailable",
        }
    ),
    FaultKind.QUOTA: frozenset(
        {"QuotaExceeded", "ResourceQuotaExceeded", "PublicIPCountLimitReached", "CoreQuotaExceeded"}
    ),
    FaultKind.CREDENTIALS: frozenset(
        {
            "AuthenticationFailed", "AuthorizationFailed", "ExpiredAuthenticationToken",
            "InvalidAuthenticationToken", "InvalidAuthenticationTokenTenant", "LinkedAuthorizationFailed",
            "SubscriptionNotFound", "DisabledSubscription", "ReadOnlyDisabledSubscription",
        }
    ),
    FaultKind.THROTTLED: frozenset(
        {"TooManyRequests", "SubscriptionRequestsThrottled", "OperationNotAllowedThrottled"}
    ),
    FaultKind.TRANSIENT: frozenset(
        {
            "AnotherOperationInProgress", "ReferencedResourceNotProvisioned", "RetryableError",
            "PrincipalNotFound", "Conflict",
        }
    ),
    # Its group is going, or the network interface, which ends with its machine, has gone: the attempt is over.
    FaultKind.SPENT_TOKEN: frozenset(
        {"ResourceGroupBeingDeleted", "ResourceGroupNotFound", "InvalidResourceReference"}
    ),
    FaultKind.EXISTS: frozenset({"ConditionNotMet", "PreconditionFailed", "RoleAssignmentExists"}),
}  # fmt: skip
_KIND_OF = {code: kind for kind, codes in _CODES.items() for code in codes}
_GIVEN_BACK = {
    "PowerState/deallocating",
    "PowerState/deallocated",
    "PowerState/stopping",
    "PowerState/stopped",
}


def fault_of_answer(status: int, body: Any, *, makes: bool) -> CloudFault:
    """Return what an answer with an error means.

    Args:
        status: Of HTTP.
        body: As JSON; anything else when it was none.
        makes: Whether the call makes something: then "not found" is about what it needs.
    """
    error = look_up(body, "error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return CloudFault(_by_status(status, makes=makes), f"HTTP {status}", "")
    code, message = str(error.get("code") or status), " ".join(str(error.get("message", "")).split())
    kind = FaultKind.THROTTLED if status == 429 else _named(code, message) or _by_status(status, makes=makes)
    if kind is FaultKind.SPENT_TOKEN and not makes:
        kind = FaultKind.ABSENT
    return CloudFault(kind, code, message, scope=_scope(message))


def fault_of_machine(reply: Mapping[str, Any]) -> CloudFault | None:
    """Return what it means that a machine failed or ended while it was to start; None while it may come up.

    The reason stands in the status `ProvisioningState/failed/REASON` of its instance view.
    """
    statuses = look_up(reply, "properties.instanceView.statuses") or []
    codes = {str(one.get("code")): one for one in statuses}
    failed = next((code for code in codes if code.startswith("ProvisioningState/failed")), None)
    if failed:
        reason = failed.split("/")[2] if failed.count("/") > 1 else "ProvisioningFailed"
        message = " ".join(str(codes[failed].get("message", "")).split())
        kind = _named(reason, message) or FaultKind.CAPACITY
        return CloudFault(kind, reason, message, scope=_scope(message))
    if look_up(reply, "properties.provisioningState") == "Deleting" or _GIVEN_BACK & codes.keys():
        return CloudFault(FaultKind.SPENT_TOKEN, "Ended", "the machine ended while it started")
    return None


def fault_of_registration(reply: Mapping[str, Any]) -> CloudFault | None:
    """Return what it means that a subscription may not use a service; None when it may."""
    state, namespace = reply.get("registrationState"), reply.get("namespace")
    if state == "Registered":
        return None
    return CloudFault(
        FaultKind.INVALID, "MissingSubscriptionRegistration",
        f"{namespace} is {state}: `az provider register --namespace {namespace}`",
    )  # fmt: skip


def _named(code: str, message: str) -> FaultKind | None:
    """Return the kind of a code that says it all; a quota hides behind `OperationNotAllowed`."""
    if code in {"OperationNotAllowed", "Forbidden", "BadRequest"} and "quota" in message.lower():
        return FaultKind.QUOTA
    return _KIND_OF.get(code)


def _by_status(status: int, *, makes: bool) -> FaultKind:
    """Return the kind of an answer whose code says nothing."""
    if status in {401, 403}:
        return FaultKind.CREDENTIALS
    if status == 404:
        return FaultKind.SPENT_TOKEN if makes else FaultKind.ABSENT
    if status == 429:
        return FaultKind.THROTTLED
    if status == 412:
        return FaultKind.EXISTS
    return FaultKind.INVALID if 400 <= status < 500 else FaultKind.UNKNOWN


def _scope(message: str) -> str:
    """Return how far a quota reaches: Azure counts by region, but for the free subscriptions' own limit."""
    return "account" if "free trial" in message.lower() else "region"
