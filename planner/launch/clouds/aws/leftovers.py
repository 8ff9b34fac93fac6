"""Leftover resources at AWS: security groups by their tags, schedules by their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.api_call import Call
from ...core.cloud_adapter import Leftover
from ...core.resource_names import TAG_RUN
from ..base import parse_owner_tags
from .owned_names import PREFIX, parse_owned_name

__all__ = ["list_schedules", "list_security_groups"]


def list_security_groups(client: Any, region: str) -> Iterator[Leftover]:
    """Yield a region's security groups with our tags; `client` is boto3's, for `ec2`."""
    asked = [{"Name": "tag-key", "Values": [TAG_RUN]}]
    for page in client.get_paginator("describe_security_groups").paginate(Filters=asked):
        for group in page["SecurityGroups"]:
            tags = {tag["Key"]: tag["Value"] for tag in group.get("Tags", [])}
            undo = Call(
                step="group", service="ec2", operation="delete_security_group", region=region,
                params={"GroupId": group["GroupId"]},
            )  # fmt: skip
            yield Leftover(
                kind="security group", id=group["GroupId"], region=region, **parse_owner_tags(tags),
                undo=(undo,),
            )  # fmt: skip


def list_schedules(client: Any, region: str) -> Iterator[Leftover]:
    """Yield a region's schedules with our names; `client` is boto3's, for `scheduler`."""
    for page in client.get_paginator("list_schedules").paginate(GroupName="default", NamePrefix=PREFIX):
        for schedule in page["Schedules"]:
            parts = parse_owned_name(schedule["Name"])
            if parts is None:
                continue
            owner, run, number = parts
            undo = Call(
                step="schedule", service="scheduler", operation="delete_schedule", region=region,
                params={"Name": schedule["Name"]},
            )  # fmt: skip
            yield Leftover(
                kind="schedule", id=schedule["Name"], region=region, run=run, attempt=number, owner=owner,
                undo=(undo,),
            )  # fmt: skip
