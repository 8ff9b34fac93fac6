"""Resource group of an attempt and its network: outbound access only.

All resources of an attempt are in its group and are deleted with it. Names consist of run, attempt and token, so
that repeated calls are idempotent and names of other groups cannot collide. The network interface is created
before the machine and deleted with it: a machine request that is repeated after the machine has ended fails
without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.api_call import Call, build_call
from ...core.cloud_adapter import MachineRef
from .options import AzureOptions

READY_S = 180.0
PRIVATE = "10.0.0.0/24"
LAST_PRIORITY, FIRST_PRIORITY = 4096, 100


def build_resource_path(chosen: AzureOptions, group: str, kind: str, name: str) -> str:
    """Return the path of a resource, such as kind `Microsoft.Network/virtualNetworks`."""
    return f"/subscriptions/{chosen.subscription}/resourceGroups/{group}/providers/{kind}/{name}"


def build_network_calls(
    chosen: AzureOptions, *, group: str, region: str, zone: str | None, tags: dict[str, str]
) -> list[Call]:
    """Return the calls that create a group and a network with the machine's interface.

    Args:
        group: Name of the group and of its resources.
        zone: Availability zone of the machine and its address.
    """
    place = {"subscription": chosen.subscription, "group": group}

    def put(step: str, operation: str, properties: dict[str, Any], **more: Any) -> Call:
        body = {"location": region, "tags": tags, **more, "properties": properties}
        params = {**place, "name": group, "body": body}
        return build_call(step, "network", f"{operation}.createOrUpdate", params, region=region)

    def of(kind: str) -> dict[str, str]:
        return {"id": build_resource_path(chosen, group, f"Microsoft.Network/{kind}", group)}

    address = {"sku": {"name": "Standard"}, **({"zones": [zone]} if zone else {})}
    inside = {
        "name": "machine",
        "properties": {"addressPrefix": PRIVATE, "networkSecurityGroup": of("networkSecurityGroups")},
    }
    subnet = build_resource_path(
        chosen, group, "Microsoft.Network/virtualNetworks", f"{group}/subnets/machine"
    )
    out = {**of("publicIPAddresses"), "properties": {"deleteOption": "Delete"}}
    card = {
        "networkSecurityGroup": of("networkSecurityGroups"),
        "ipConfigurations": [
            {"name": "out", "properties": {"subnet": {"id": subnet}, "publicIPAddress": out}},
        ],
    }
    return [
        build_call(
            "group",
            "resources",
            "resourceGroups.createOrUpdate",
            {**place, "body": {"location": region, "tags": tags}},
            region=region,
            makes="resource",
            undo=build_group_removal(place, region),
        ),
        put("firewall", "networkSecurityGroups", {"securityRules": _rules(chosen)}),
        put("address", "publicIPAddresses", {"publicIPAllocationMethod": "Static"}, **address),
        put(
            "network",
            "virtualNetworks",
            {"addressSpace": {"addressPrefixes": [PRIVATE]}, "subnets": [inside]},
        ),
        put("interface", "networkInterfaces", card),
        build_call(
            "interface-ready",
            "network",
            "networkInterfaces.get",
            {**place, "name": group},
            region=region,
            expects={"properties.provisioningState": "Succeeded"},
            patience_s=READY_S,
        ),
    ]


def build_group_removal(place: Mapping[str, str], region: str) -> tuple[Call, Call]:
    """Return the calls that delete a group with its content and read back that the deletion has begun."""
    remove = build_call("group", "resources", "resourceGroups.delete", dict(place), region=region)
    begun = {"properties.provisioningState": "Deleting"}
    return remove, remove.model_copy(update={"operation": "resourceGroups.get", "expects": begun})


def _rules(chosen: AzureOptions) -> list[dict[str, Any]]:
    """Return the firewall rules: no inbound access, except SSH from the user's addresses."""
    closed = _rule("nothing-in", "Deny", "*", source="*", port="*", priority=LAST_PRIORITY)
    if not chosen.ssh_from:
        return [closed]
    return [_rule("ssh", "Allow", "Tcp", source=chosen.ssh_from, port="22", priority=FIRST_PRIORITY), closed]


def _rule(name: str, access: str, protocol: str, *, source: str, port: str, priority: int) -> dict[str, Any]:
    """Return an inbound rule."""
    return {
        "name": name,
        "properties": {
            "direction": "Inbound",
            "access": access,
            "protocol": protocol,
            "priority": priority,
            "sourceAddressPrefix": source,
            "sourcePortRange": "*",
            "destinationAddressPrefix": "*",
            "destinationPortRange": port,
        },
    }


def build_end_calls(machine: MachineRef) -> tuple[Call, ...]:
    """Return the calls that force the deletion of a machine, and of its group if that has the same name."""
    name, group = machine.details["name"], machine.details["group"]
    place = {"subscription": machine.details["subscription"], "group": group}
    params = {**place, "name": name, "forceDeletion": "true"}
    vm = build_call("end", "compute", "virtualMachines.delete", params, region=machine.region)
    if group != name or not name.startswith("gpuplan-"):
        return (vm,)
    return (vm, build_group_removal(place, machine.region)[0])
