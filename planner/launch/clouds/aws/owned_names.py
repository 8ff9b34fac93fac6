"""Names of an attempt's resources at AWS, which contain the owner, and those resources left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...core.api_call import Call
from ...core.cloud_adapter import Leftover
from ...core.request import TAG_RUN, LaunchRequest, parse_owner_tags

__all__ = ["PREFIX", "build_owned_name", "list_schedules", "list_security_groups", "parse_owned_name"]


PREFIX = "gpuplan."
_UNFIT = re.compile(r"[^0-9A-Za-z_-]")  # names of schedules: `[0-9a-zA-Z-_.]+`, 64 at most


def build_owned_name(request: LaunchRequest, number: int) -> str:
    """Return the name of an attempt's security group and schedule: prefix, owner, run and attempt.

    A list of schedules has no tags: only names identify the owner.
    """
    return f"{PREFIX}{_UNFIT.sub('-', request.owner)}.{request.run}.{number}"


def parse_owned_name(name: str) -> tuple[str, str, int] | None:
    """Return owner, run and attempt of such a name, or None.

    Example:
        >>> parse_owned_name("gpuplan.own-1a2b.r64879f7d-1.2")
        ('own-1a2b', 'r64879f7d-1', 2)
    """
    match = re.fullmatch(r"gpuplan\.([^.]+)\.([^.]+)\.(\d+)", name)
    return (match[1], match[2], int(match[3])) if match else None


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
