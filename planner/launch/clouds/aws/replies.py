"""Parsing of AWS's replies: errors, resources left behind, prices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from ....offers.refresh.aws_sdk import list_products, list_spot_prices
from ....offers.refresh.http import FetchError
from ...core.api_call import CloudError, ErrorKind, build_call
from ...core.cloud_adapter import Leftover
from ...core.request import TAG_RUN, LaunchCandidate, parse_owner_tags
from ..base import load_error_kinds
from .schedule import PREFIX, parse_owned_name

_KIND_OF = load_error_kinds("aws")
# docs.aws.amazon.com/ec2/latest/devguide/errors-overview.html: what a region without a default VPC answers
_NO_NETWORK = {"VPCIdNotSpecified", "MissingInput", "DefaultVpcDoesNotExist", "DefaultSubnetDoesNotExist"}


def parse_sdk_error(error: Exception) -> CloudError | None:
    """Return the CloudError of a boto3 exception; None for a bug.

    Whatever may have been done is of unknown outcome: a lost or garbled answer, and every server error that does
    not guarantee that nothing was done.
    """
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        return _of_answer(error)
    name, message = type(error).__name__, str(error)
    if isinstance(error, (exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError)):
        kind = ErrorKind.TRANSIENT  # it was never sent
    elif isinstance(error, (exceptions.HTTPClientError, exceptions.ResponseStreamingError)):
        kind = ErrorKind.UNKNOWN
    elif name == "ResponseParserError":
        kind, message = ErrorKind.UNKNOWN, "the answer could not be read"
    elif any(part in name for part in ("Credential", "Token", "SSO")):
        kind = ErrorKind.CREDENTIALS
    elif isinstance(error, exceptions.BotoCoreError):
        kind = ErrorKind.INVALID
    else:
        return None
    return CloudError(kind, name, message)


def parse_state_error(instance: dict[str, Any]) -> CloudError | None:
    """Return the CloudError of an instance that ended while it started, or None."""
    if instance["State"]["Name"] not in {"shutting-down", "terminated", "stopping", "stopped"}:
        return None
    reason = instance.get("StateReason") or {}
    code = reason.get("Code") or "Terminated"
    kind = _KIND_OF.get(code, ErrorKind.SPENT_TOKEN)
    return CloudError(kind, code, reason.get("Message") or f"{instance['InstanceId']} has ended")


def _of_answer(error: Any) -> CloudError:
    code = error.response.get("Error", {}).get("Code", "Unknown")
    message = " ".join(error.response.get("Error", {}).get("Message", "").split())
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    kind = _KIND_OF.get(code)
    if kind is None and code == "ValidationException" and "assume" in message and "role" in message:
        kind = ErrorKind.TRANSIENT  # a new role takes time to propagate
    if kind is None:
        kind = ErrorKind.UNKNOWN if status >= 500 or not code else ErrorKind.INVALID
    way_out = "name a network of the region: `-O subnet=ID -O vpc=ID`" if code in _NO_NETWORK else ""
    return CloudError(kind, code, message, way_out=way_out)


def list_security_groups(client: Any, region: str) -> Iterator[Leftover]:
    """Yield a region's security groups with our tags; `client` is boto3's, for `ec2`."""
    asked = [{"Name": "tag-key", "Values": [TAG_RUN]}]
    for page in client.get_paginator("describe_security_groups").paginate(Filters=asked):
        for group in page["SecurityGroups"]:
            tags = {tag["Key"]: tag["Value"] for tag in group.get("Tags", [])}
            name = group["GroupId"]
            undo = build_call("group", "ec2", "delete_security_group", {"GroupId": name}, region=region)
            yield Leftover(kind="security group", id=name, region=region, **parse_owner_tags(tags), undo=(undo,))


def list_schedules(client: Any, region: str) -> Iterator[Leftover]:
    """Yield a region's schedules with our names; `client` is boto3's, for `scheduler`."""
    for page in client.get_paginator("list_schedules").paginate(GroupName="default", NamePrefix=PREFIX):
        for schedule in page["Schedules"]:
            name = schedule["Name"]
            owned = parse_owned_name(name)
            if owned is not None:
                undo = build_call("schedule", "scheduler", "delete_schedule", {"Name": name}, region=region)
                yield Leftover(kind="schedule", id=name, region=region, **owned, undo=(undo,))


def read_usd(client: Any, candidate: LaunchCandidate, *, zones: str, now: datetime) -> Decimal:
    """Return the highest current price of Linux on shared hardware; raise CloudError without one [USD/h].

    Args:
        client: boto3's, for `pricing`; for a spot machine, for `ec2`.
        zones: Last letters of the zones whose spot prices count; empty: all.
    """
    name, region = candidate.instance_type, candidate.region
    try:
        if candidate.purchase == "spot":
            by_zone = list_spot_prices(client, region, [name], now=now).get(name, {})
            prices = [usd for zone, usd in by_zone.items() if not zones or zone[-1] in zones]
        else:
            rows = list_products(client, instanceType=name, regionCode=region)
            prices = [row.usd_per_hour for row in rows if row.currency == "USD" and row.usd_per_hour > 0]
    except (KeyError, TypeError, ValueError, FetchError) as error:
        raise CloudError(ErrorKind.UNKNOWN, "Malformed", f"unexpected form of the price list: {error}") from error
    if prices:
        return max(prices)
    what = f"{name} {candidate.purchase.replace('_', ' ')} in {region}"
    raise CloudError(ErrorKind.ABSENT, "NoPrice", f"no price of {what}")


def list_instances(reply: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the instances of an answer."""
    return (one for reservation in reply["Reservations"] for one in reservation["Instances"])


def to_json_types(value: Any) -> Any:
    """Return an answer in JSON types: times as ISO 8601, without `ResponseMetadata`."""
    if isinstance(value, Mapping):
        return {key: to_json_types(inner) for key, inner in value.items() if key != "ResponseMetadata"}
    if isinstance(value, (list, tuple)):
        return [to_json_types(inner) for inner in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
