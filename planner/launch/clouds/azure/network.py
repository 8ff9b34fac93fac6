"""Options of a launch on Azure, the resource group of an attempt and its network: outbound access only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....errors import UsageError
from ...core.api_call import Call, build_call
from ...core.cloud_adapter import MachineRef
from ..base import Draft, parse_options

# Azure requires a key for Linux machines. This one has no known private key: its point is the first SHA-256 of
# "gpuplan: nobody's key N" that lies on the curve.
UNUSABLE_PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEuhoKbu9WB3FgD9fec3LuwZ6XeqNLGPrgzZJ4K2mN4G nobody"
PARTS_OF_AN_IMAGE = 4
SUBSCRIPTION = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureOptions:
    """Options and their defaults."""

    subscription: str  # subscription that pays; default `AZURE_SUBSCRIPTION_ID`
    zones: str = ""  # availability zones to try in turn, by number: `123`; empty: Azure chooses
    image: str = ""  # `PUBLISHER:OFFER:SKU:VERSION`, or the id of a custom image; empty: by the table of images
    disk_gb: str = "100"  # size of the disk [GB]
    ssh_from: str = ""  # addresses that may reach port 22 (CIDR); empty: no open port
    ssh_key: str = ""  # public key of the user `gpuplan`; empty: no login


def read_options(options: Mapping[str, str], *, subscription: str) -> AzureOptions:
    """Return validated options, or raise UsageError; `subscription` is that of the environment, or empty."""
    payer = options.get("subscription") or subscription
    needs = {"ssh_from": "ssh_key"}
    chosen = parse_options(AzureOptions, {**options, "subscription": payer.lower()}, provider="azure", needs=needs)
    if not SUBSCRIPTION.fullmatch(payer):
        raise UsageError(
            f"`{payer}` is not the id of a subscription"
            if payer
            else "no subscription is given to pay for the machine",
            hint="`-O subscription=ID`, or set AZURE_SUBSCRIPTION_ID (`az account show --query id`)",
        )
    if not set(chosen.zones) <= set("123"):
        raise UsageError(f"`--option zones={chosen.zones}`: Azure has the zones 1, 2 and 3", hint="try 123")
    custom = chosen.image.startswith("/subscriptions/") or not chosen.image
    if not custom and len(chosen.image.split(":")) != PARTS_OF_AN_IMAGE:
        raise UsageError(
            f"`--option image={chosen.image}` is neither PUBLISHER:OFFER:SKU:VERSION nor an image's id",
            hint="try microsoft-dsvm:ubuntu-hpc:2404:latest",
        )
    if chosen.ssh_key and not chosen.ssh_key.startswith(("ssh-rsa ", "ssh-ed25519 ")):
        raise UsageError(
            "`--option ssh_key` is not a public key", hint='try `-O ssh_key="$(cat ~/.ssh/id_ed25519.pub)"`'
        )
    return chosen


READY_S = 180.0
PRIVATE = "10.0.0.0/24"
LAST_PRIORITY, FIRST_PRIORITY = 4096, 100


def build_resource_path(chosen: AzureOptions, group: str, kind: str, name: str) -> str:
    """Return the path of a resource, such as kind `Microsoft.Network/virtualNetworks`."""
    return f"/subscriptions/{chosen.subscription}/resourceGroups/{group}/providers/{kind}/{name}"


def build_network_calls(draft: Draft[AzureOptions], *, group: str, zone: str | None) -> list[Call]:
    """Return the calls that create a group, and in it a network with the machine's interface, all of its name."""
    chosen, region, tags = draft.chosen, draft.candidate.region, draft.tags
    place = {"subscription": chosen.subscription, "group": group}

    def put(step: str, operation: str, properties: dict[str, Any], **more: Any) -> Call:
        body = {"location": region, "tags": tags, **more, "properties": properties}
        params = {**place, "name": group, "body": body}
        return draft.call(step, "network", f"{operation}.createOrUpdate", params)

    def of(kind: str) -> dict[str, str]:
        return {"id": build_resource_path(chosen, group, f"Microsoft.Network/{kind}", group)}

    address = {"sku": {"name": "Standard"}, **({"zones": [zone]} if zone else {})}
    inside = {
        "name": "machine",
        "properties": {"addressPrefix": PRIVATE, "networkSecurityGroup": of("networkSecurityGroups")},
    }
    subnet = build_resource_path(chosen, group, "Microsoft.Network/virtualNetworks", f"{group}/subnets/machine")
    out = {**of("publicIPAddresses"), "properties": {"deleteOption": "Delete"}}
    card = {
        "networkSecurityGroup": of("networkSecurityGroups"),
        "ipConfigurations": [{"name": "out", "properties": {"subnet": {"id": subnet}, "publicIPAddress": out}}],
    }
    made = {**place, "body": {"location": region, "tags": tags}}
    undo = build_group_removal(place, region)
    ready = {"expects": {"properties.provisioningState": "Succeeded"}, "patience_s": READY_S}
    return [
        draft.call("group", "resources", "resourceGroups.createOrUpdate", made, makes="resource", undo=undo),
        put("firewall", "networkSecurityGroups", {"securityRules": _rules(chosen)}),
        put("address", "publicIPAddresses", {"publicIPAllocationMethod": "Static"}, **address),
        put("network", "virtualNetworks", {"addressSpace": {"addressPrefixes": [PRIVATE]}, "subnets": [inside]}),
        put("interface", "networkInterfaces", card),
        draft.call("interface-ready", "network", "networkInterfaces.get", {**place, "name": group}, **ready),
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
