"""Parsing of Azure's description of a machine, and the calls that end it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ...core.api_call import Call, look_up
from ...core.cloud_adapter import CloudMachine, Leftover, MachineRef, MachineState
from ...core.request import TAG_RUN, parse_owner_tags, parse_tags
from .network import group_removal

__all__ = ["build_end_calls", "is_ours", "is_same", "parse_leftover", "parse_machine"]

# A machine that is shut down but allocated (`stopped`) is billed in full, so it counts as running.
_POWER: dict[str, MachineState] = {
    "PowerState/starting": "starting", "PowerState/running": "running", "PowerState/stopping": "running",
    "PowerState/stopped": "running", "PowerState/deallocating": "ending", "PowerState/deallocated": "stopped",
}  # fmt: skip
_PROVISIONING: dict[str, MachineState] = {"Deleting": "ending", "Failed": "stopped", "Succeeded": "running"}


def is_ours(row: Mapping[str, Any]) -> bool:
    """Whether a machine or a group has the tags of a launch."""
    return TAG_RUN in (row.get("tags") or {})


def is_same(machine: MachineRef, row: Mapping[str, Any]) -> bool:
    """Whether a row is the recorded machine, not another of the same name.

    Older records use the machine's name as its id.
    """
    return machine.id in {_id(row), str(row["name"]).lower()}


def parse_machine(row: Mapping[str, Any], *, seen_at: datetime) -> CloudMachine:
    """Return a machine; without an instance view, its state is the provisioning state.

    Its id is `vmId`, which is unique, unlike names.
    """
    tags: Mapping[str, str] = row.get("tags") or {}
    parts = str(row["id"]).split("/")
    started_at = datetime.fromisoformat(str(look_up(row, "properties.timeCreated"))).astimezone(UTC)
    zones = row.get("zones") or []
    return CloudMachine(
        id=_id(row),
        provider="azure",
        region=str(row["location"]).replace(" ", "").lower(),
        zone=zones[0] if zones else None,
        instance_type=str(look_up(row, "properties.hardwareProfile.vmSize")),
        purchase="spot" if look_up(row, "properties.priority") == "Spot" else "on_demand",
        state=_state(row),
        started_at=started_at,
        seen_at=max(seen_at, started_at),
        **parse_tags(tags, started_at=started_at),
        details={"subscription": parts[2].lower(), "group": parts[4].lower(), "name": parts[8].lower()},
    )


def build_end_calls(machine: MachineRef) -> tuple[Call, ...]:
    """Return the calls that force the deletion of a machine, and of its group if that has the same name."""
    name, group = machine.details["name"], machine.details["group"]
    place = {"subscription": machine.details["subscription"], "group": group}
    vm = Call(
        step="end",
        service="compute",
        operation="virtualMachines.delete",
        region=machine.region,
        params={**place, "name": name, "forceDeletion": "true"},
    )
    if group != name or not name.startswith("gpuplan-"):
        return (vm,)
    return (vm, group_removal(place, machine.region)[0])


def parse_leftover(row: Mapping[str, Any]) -> Leftover:
    """Return a resource group as a leftover resource."""
    tags: Mapping[str, str] = row["tags"]
    region = str(row["location"]).replace(" ", "").lower()
    place = {"subscription": str(row["id"]).split("/")[2].lower(), "group": str(row["name"]).lower()}
    return Leftover(
        kind="resource group",
        id=place["group"],
        region=region,
        **parse_owner_tags(tags),
        undo=group_removal(place, region),
    )


def _id(row: Mapping[str, Any]) -> str:
    """Return the `vmId` of a machine; its name without one."""
    return str(look_up(row, "properties.vmId") or row["name"]).lower()


def _state(row: Mapping[str, Any]) -> MachineState:
    """Return the state of a machine by its billing."""
    provisioning = str(look_up(row, "properties.provisioningState"))
    if provisioning == "Deleting":
        return "ending"
    for status in look_up(row, "properties.instanceView.statuses") or []:
        if status.get("code") in _POWER:
            return _POWER[status["code"]]
    return _PROVISIONING.get(provisioning, "starting")
