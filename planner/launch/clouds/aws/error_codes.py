"""What EC2 and its neighbours answer when they do not do it, in the words that all clouds share.

Codes: docs.aws.amazon.com/ec2/latest/devguide/errors-overview.html, and for the tokens
docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html.
"""

from __future__ import annotations

from typing import Any

from ...core.errors import CloudFault, FaultKind

__all__ = ["fault_of", "fault_of_state"]

_CODES: dict[FaultKind, frozenset[str]] = {
    FaultKind.CAPACITY: frozenset(
        {
            "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
            "InsufficientCapacity", "SpotMaxPriceTooLow", "UnfulfillableCapacity", "Unsupported",
            "InsufficientAddressCapacity", "InsufficientFreeAddressesInSubnet",
        }
    ),
    FaultKind.QUOTA: frozenset(
        {
            "VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded",
            "SecurityGroupLimitExceeded", "VolumeLimitExceeded", "MaxIOPSLimitExceeded",
            "ServiceQuotaExceededException",
        }
    ),
    FaultKind.CREDENTIALS: frozenset(
        {
            "AuthFailure", "UnauthorizedOperation", "ExpiredToken", "ExpiredTokenException", "RequestExpired",
            "InvalidClientTokenId", "SignatureDoesNotMatch", "AccessDenied", "AccessDeniedException",
            "OptInRequired", "Blocked", "PendingVerification", "UnrecognizedClientException",
            "InvalidAccessKeyId", "403",  # S3 answers HEAD without a body: the status is the code
        }
    ),
    FaultKind.THROTTLED: frozenset(
        {
            "RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException",
            "EC2ThrottledException", "SlowDown", "PriorRequestNotComplete",
        }
    ),
    FaultKind.TRANSIENT: frozenset(
        {"DependencyViolation", "IncorrectState", "IncorrectInstanceState", "ConcurrentModification"}
    ),
    FaultKind.SPENT_TOKEN: frozenset({"IdempotentInstanceTerminated"}),
    FaultKind.EXISTS: frozenset(
        {"InvalidGroup.Duplicate", "InvalidPermission.Duplicate", "ConflictException", "EntityAlreadyExists"}
    ),
    FaultKind.ABSENT: frozenset(
        {
            "InvalidInstanceID.NotFound", "InvalidGroup.NotFound", "InvalidGroupId.NotFound",
            "ResourceNotFoundException", "NoSuchKey", "NoSuchBucket", "NoSuchEntity", "404",
        }
    ),
}  # fmt: skip
_KIND_OF = {code: kind for kind, codes in _CODES.items() for code in codes}
_STATE_KINDS = {
    "Server.InsufficientInstanceCapacity": FaultKind.CAPACITY,
    "Server.SpotInstanceTermination": FaultKind.CAPACITY,
    "Server.InternalError": FaultKind.CAPACITY,
    "Client.VolumeLimitExceeded": FaultKind.QUOTA,
}


def fault_of(error: Exception) -> CloudFault | None:  # noqa: PLR0911 - one a kind
    """Return what an exception of boto3's means; None when it is no answer of the cloud's but a bug.

    Whatever may have been done without our knowing is of unknown outcome: a lost or garbled answer, and every
    error of the server's own that does not promise that nothing was done.
    """
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        return _of_answer(error)
    message = str(error)
    if isinstance(error, (exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError)):
        return CloudFault(FaultKind.TRANSIENT, type(error).__name__, message)  # it was never sent
    if isinstance(error, (exceptions.HTTPClientError, exceptions.ResponseStreamingError)):
        return CloudFault(FaultKind.UNKNOWN, type(error).__name__, message)
    if type(error).__name__ == "ResponseParserError":
        return CloudFault(FaultKind.UNKNOWN, "ResponseParserError", "the answer could not be read")
    if (
        "Credential" in type(error).__name__
        or "Token" in type(error).__name__
        or "SSO" in type(error).__name__
    ):
        return CloudFault(FaultKind.CREDENTIALS, type(error).__name__, message)
    if isinstance(error, (exceptions.ParamValidationError, exceptions.BotoCoreError)):
        return CloudFault(FaultKind.INVALID, type(error).__name__, " ".join(message.split()))
    return None


def fault_of_state(instance: dict[str, Any]) -> CloudFault | None:
    """Return what it means that an instance has ended while it was to start; None if it has not."""
    if instance["State"]["Name"] not in {"shutting-down", "terminated", "stopping", "stopped"}:
        return None
    reason = instance.get("StateReason") or {}
    code = reason.get("Code") or "Terminated"
    kind = _STATE_KINDS.get(code, FaultKind.SPENT_TOKEN)
    return CloudFault(kind, code, reason.get("Message") or f"{instance['InstanceId']} has ended")


def _of_answer(error: Any) -> CloudFault:
    """Return what an error that the cloud answered means."""
    code = error.response.get("Error", {}).get("Code", "Unknown")
    message = " ".join(error.response.get("Error", {}).get("Message", "").split())
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    kind = _KIND_OF.get(code)
    if kind is None and code == "ValidationException" and "assume" in message and "role" in message:
        kind = FaultKind.TRANSIENT  # a role that was just made is not known everywhere at once
    if kind is None:
        kind = FaultKind.UNKNOWN if status >= 500 or not code else FaultKind.INVALID
    return CloudFault(kind, code, message)
