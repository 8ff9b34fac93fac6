"""A machine from Azure's own description, and the calls that end it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ..adapter import Machine, MachineState
from ..calls import Call, look_up
from ..names import TAG_RUN, usd_from_tag

__all__ = ["ending_of", "is_ours", "machine_of"]

# A machine that only shut itself down (`stopped`) is paid for in full: by its bill it is running.
_POWER: dict[str, MachineState] = {
    "PowerState/starting": "starting", "PowerState/running": "running", "PowerState/stopping": "running",
    "PowerState/stopped": "running", "PowerState/deallocating": "ending", "PowerState/deallocated": "stopped",
}  # fmt: skip
_PROVISIONING: dict[str, MachineState] = {"Deleting": "ending", "Failed": "stopped", "Succeeded": "running"}


def is_ours(row: Mapping[str, Any]) -> bool:
    """Whether a machine carries the tags that every launch puts on."""
    return TAG_RUN in (row.get("tags") or {})


def machine_of(row: Mapping[str, Any], *, seen_at: datetime) -> Machine:
    """Return a machine; its row holds the instance view."""
    tags: Mapping[str, str] = row.get("tags") or {}
    parts = str(row["id"]).split("/")
    started_at = datetime.fromisoformat(str(look_up(row, "properties.timeCreated"))).astimezone(UTC)
    cap_s, number = tags.get("gpuplan-cap-s", ""), tags.get("gpuplan-attempt", "")
    zones = row.get("zones") or []
    return Machine(
        id=str(row["name"]).lower(), provider="azure", region=str(row["location"]).replace(" ", "").lower(),
        zone=zones[0] if zones else None,
        instance_type=str(look_up(row, "properties.hardwareProfile.vmSize")),
        purchase="spot" if look_up(row, "properties.priority") == "Spot" else "on_demand",
        state=_state(row), started_at=started_at, seen_at=max(seen_at, started_at),
        cap_at=started_at + timedelta(seconds=int(cap_s)) if cap_s.isdecimal() else None,
        run=tags.get(TAG_RUN, ""), attempt=int(number) if number.isdecimal() else 0,
        owner=tags.get("gpuplan-owner", ""), usd_per_hour=usd_from_tag(tags.get("gpuplan-microusd-per-hour")),
        details={"subscription": parts[2].lower(), "group": parts[4].lower()},
    )  # fmt: skip


def ending_of(machine: Machine) -> tuple[Call, ...]:
    """Return the calls that delete a machine, by force, and its group if that is its own: then it has its name."""
    place = {key: machine.details[key] for key in ("subscription", "group")}
    vm = Call(
        step="end", service="compute", operation="virtualMachines.delete", region=machine.region,
        params={**place, "name": machine.id, "forceDeletion": "true"},
    )  # fmt: skip
    if machine.details["group"] != machine.id or not machine.id.startswith(f"gpuplan-{machine.run}-"):
        return (vm,)
    group = Call(
        step="end-group", service="resources", operation="resourceGroups.delete", region=machine.region,
        params=place,
    )  # fmt: skip
    return (vm, group)


def _state(row: Mapping[str, Any]) -> MachineState:
    """Return a machine's state by what it costs."""
    provisioning = str(look_up(row, "properties.provisioningState"))
    if provisioning == "Deleting":
        return "ending"
    for status in look_up(row, "properties.instanceView.statuses") or []:
        if status.get("code") in _POWER:
            return _POWER[status["code"]]
    return _PROVISIONING.get(provisioning, "starting")
