"""Parsing of AWS's replies: error codes of EC2, IAM, S3 and EventBridge Scheduler, and resources left behind.

Codes: docs.aws.amazon.com/ec2/latest/devguide/errors-overview.html, and for the tokens
docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.api_call import Call, CloudError, ErrorKind
from ...core.cloud_adapter import Leftover
from ...core.request import TAG_RUN, parse_owner_tags
from .schedule import PREFIX, parse_owned_name

__all__ = ["list_schedules", "list_security_groups", "parse_sdk_error", "parse_state_error"]

_CODES: dict[ErrorKind, frozenset[str]] = {
    ErrorKind.CAPACITY: frozenset(
        {
            "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
            "InsufficientCapacity", "SpotMaxPriceTooLow", "UnfulfillableCapacity", "Unsupported",
            "InsufficientAddressCapacity", "InsufficientFreeAddressesInSubnet",
        }
    ),
    ErrorKind.QUOTA: frozenset(
        {
            "VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded",
            "SecurityGroupLimitExceeded", "VolumeLimitExceeded", "MaxIOPSLimitExceeded",
            "ServiceQuotaExceededException",
        }
    ),
    ErrorKind.CREDENTIALS: frozenset(
        {
            "AuthFailure", "UnauthorizedOperation", "ExpiredToken", "ExpiredTokenException", "RequestExpired",
            "InvalidClientTokenId", "SignatureDoesNotMatch", "AccessDenied", "AccessDeniedException",
            "OptInRequired", "Blocked", "PendingVerification", "UnrecognizedClientException",
            "InvalidAccessKeyId", "403",  # S3 answers HEAD without a body: the code is the status
        }
    ),
    ErrorKind.THROTTLED: frozenset(
        {
            "RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException",
            "EC2ThrottledException", "SlowDown", "PriorRequestNotComplete",
        }
    ),
    ErrorKind.TRANSIENT: frozenset(
        {"DependencyViolation", "IncorrectState", "IncorrectInstanceState", "ConcurrentModification"}
    ),
    ErrorKind.SPENT_TOKEN: frozenset({"IdempotentInstanceTerminated"}),
    ErrorKind.EXISTS: frozenset(
        {"InvalidGroup.Duplicate", "InvalidPermission.Duplicate", "ConflictException", "EntityAlreadyExists"}
    ),
    ErrorKind.ABSENT: frozenset(
        {
            "InvalidInstanceID.NotFound", "InvalidGroup.NotFound", "InvalidGroupId.NotFound",
            "ResourceNotFoundException", "NoSuchKey", "NoSuchBucket", "NoSuchEntity", "404",
        }
    ),
}  # fmt: skip
_KIND_OF = {code: kind for kind, codes in _CODES.items() for code in codes}
_STATE_KINDS = {
    "Server.InsufficientInstanceCapacity": ErrorKind.CAPACITY,
    "Server.SpotInstanceTermination": ErrorKind.CAPACITY,
    "Server.InternalError": ErrorKind.CAPACITY,
    "Client.VolumeLimitExceeded": ErrorKind.QUOTA,
}


def parse_sdk_error(error: Exception) -> CloudError | None:  # noqa: PLR0911 - one a kind
    """Return the CloudError of a boto3 exception; None for a bug.

    Whatever may have been done is of unknown outcome: a lost or garbled answer, and every server error that does
    not guarantee that nothing was done.
    """
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        return _of_answer(error)
    message = str(error)
    if isinstance(error, (exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError)):
        return CloudError(ErrorKind.TRANSIENT, type(error).__name__, message)  # it was never sent
    if isinstance(error, (exceptions.HTTPClientError, exceptions.ResponseStreamingError)):
        return CloudError(ErrorKind.UNKNOWN, type(error).__name__, message)
    if type(error).__name__ == "ResponseParserError":
        return CloudError(ErrorKind.UNKNOWN, "ResponseParserError", "the answer could not be read")
    if (
        "Credential" in type(error).__name__
        or "Token" in type(error).__name__
        or "SSO" in type(error).__name__
    ):
        return CloudError(ErrorKind.CREDENTIALS, type(error).__name__, message)
    if isinstance(error, (exceptions.ParamValidationError, exceptions.BotoCoreError)):
        return CloudError(ErrorKind.INVALID, type(error).__name__, " ".join(message.split()))
    return None


def parse_state_error(instance: dict[str, Any]) -> CloudError | None:
    """Return the CloudError of an instance that ended while it started, or None."""
    if instance["State"]["Name"] not in {"shutting-down", "terminated", "stopping", "stopped"}:
        return None
    reason = instance.get("StateReason") or {}
    code = reason.get("Code") or "Terminated"
    kind = _STATE_KINDS.get(code, ErrorKind.SPENT_TOKEN)
    return CloudError(kind, code, reason.get("Message") or f"{instance['InstanceId']} has ended")


def _of_answer(error: Any) -> CloudError:
    """Return the CloudError of an error response."""
    code = error.response.get("Error", {}).get("Code", "Unknown")
    message = " ".join(error.response.get("Error", {}).get("Message", "").split())
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    kind = _KIND_OF.get(code)
    if kind is None and code == "ValidationException" and "assume" in message and "role" in message:
        kind = ErrorKind.TRANSIENT  # a new role takes time to propagate
    if kind is None:
        kind = ErrorKind.UNKNOWN if status >= 500 or not code else ErrorKind.INVALID
    return CloudError(kind, code, message)


def list_security_groups(client: Any, region: str) -> Iterator[Leftover]:
    """Yield a region's security groups with our tags; `client` is boto3's, for `ec2`."""
    asked = [{"Name": "tag-key", "Values": [TAG_RUN]}]
    for page in client.get_paginator("describe_security_groups").paginate(Filters=asked):
        for group in page["SecurityGroups"]:
            tags = {tag["Key"]: tag["Value"] for tag in group.get("Tags", [])}
            undo = Call(
                step="group",
                service="ec2",
                operation="delete_security_group",
                region=region,
                params={"GroupId": group["GroupId"]},
            )
            yield Leftover(
                kind="security group",
                id=group["GroupId"],
                region=region,
                **parse_owner_tags(tags),
                undo=(undo,),
            )


def list_schedules(client: Any, region: str) -> Iterator[Leftover]:
    """Yield a region's schedules with our names; `client` is boto3's, for `scheduler`."""
    for page in client.get_paginator("list_schedules").paginate(GroupName="default", NamePrefix=PREFIX):
        for schedule in page["Schedules"]:
            parts = parse_owned_name(schedule["Name"])
            if parts is None:
                continue
            owner, run, number = parts
            undo = Call(
                step="schedule",
                service="scheduler",
                operation="delete_schedule",
                region=region,
                params={"Name": schedule["Name"]},
            )
            yield Leftover(
                kind="schedule",
                id=schedule["Name"],
                region=region,
                run=run,
                attempt=number,
                owner=owner,
                undo=(undo,),
            )
