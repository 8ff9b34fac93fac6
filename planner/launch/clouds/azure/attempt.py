"""API calls that start one machine on Azure, and options of a launch. Pure.

All is in a resource group of the attempt: a network with outbound access only, the machine, and its caps, which
are read back: its permission to delete itself, and an order at Azure. Azure has two kinds of order, which
deallocate the machine but keep disk and address: auto-shutdown at a time of day, for caps within a day, and a
scheduled action at a date for others. All fields that make an order work are read back: machine, time, time
zone, action and state.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....errors import UsageError
from ...core.api_call import Call, build_call
from ...core.cloud_adapter import MachineRef
from ...core.launch_plan import Attempt, CapLayer
from ...core.request import TAG_RUN
from ...core.shell import READ_TOKEN, quote
from ...core.startup import BootConfig, build_startup_script
from ..base import PACKAGES, Draft, build_timer, compute_highest_price, parse_options

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
    closed = ("nothing-in", "Deny", "*", "*", "*", LAST_PRIORITY)
    ssh = ("ssh", "Allow", "Tcp", chosen.ssh_from, "22", FIRST_PRIORITY)
    return [
        {
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
        for name, access, protocol, source, port, priority in ([ssh] if chosen.ssh_from else []) + [closed]
    ]


def build_end_calls(machine: MachineRef) -> tuple[Call, ...]:
    """Return the calls that force the deletion of a machine, and of its group if that has the same name."""
    name, group = machine.details["name"], machine.details["group"]
    place = {"subscription": machine.details["subscription"], "group": group}
    params = {**place, "name": name, "forceDeletion": "true"}
    vm = build_call("end", "compute", "virtualMachines.delete", params, region=machine.region)
    if group != name or not name.startswith("gpuplan-"):
        return (vm,)
    return (vm, build_group_removal(place, machine.region)[0])


# https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
_TOKEN = (
    "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01"
    "&resource=https%3A%2F%2Fmanagement.azure.com%2F"
)
VERSION = "2026-04-01"
DATE = "%Y-%m-%dT%H:%M:%SZ"
AGAIN_S = 15


def build_end_commands(resource: str, *, after_s: int) -> dict[str, str]:
    """Return the commands that end a machine: after some time [s], whatever became of the script, and now."""
    url = f"https://management.azure.com{resource}"
    ask = 'curl -s -f -m 30 -H "Authorization: Bearer $t"'
    loop = (
        f"while :; do t=$(curl -s -m 30 -H Metadata:true '{_TOKEN}' | {READ_TOKEN}); "
        f"{ask} -X DELETE '{url}?api-version={VERSION}' || "
        f"{ask} -X POST -d '' '{url}/deallocate?api-version={VERSION}'; sleep {AGAIN_S}; done"
    )
    timer = f"setsid bash -c {quote(f'sleep {after_s}; {loop}')} > /dev/null 2>&1 &"
    return {"timer": timer, "end": f"bash -c {quote(loop)}"}


BOOT_ALLOWANCE_S = 900.0  # from the start of billing until the start-up script sets its timer, and to the end
READ_BACK_S = 120.0
MINUTE_S = 60
DEALLOCATION_S = 600.0  # maximum time from an order at Azure to the end of billing
SHORTEST_S, LONGEST_S = 30 * 60, 23 * 3600  # auto-shutdown: a time of day at least 30 minutes ahead
UNPROVEN = "tested against Azure's client models only, not against the real cloud"
# https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/compute#virtual-machine-contributor
CONTRIBUTOR = "9980e02c-c2be-4d73-94e8-173b1dc7cf3c"


def has_auto_shutdown(cap_s: int) -> bool:
    """Whether Azure's daily auto-shutdown can implement a cap: 30 minutes to 23 hours."""
    return SHORTEST_S <= cap_s <= LONGEST_S


def build_layers(cap_s: int) -> tuple[CapLayer, ...]:
    name, what = (
        ("auto-shutdown", "auto-shutdown at a time of day")
        if has_auto_shutdown(cap_s)
        else ("scheduled-action", "a scheduled action at a date")
    )
    timer = build_timer(
        cap_s + BOOT_ALLOWANCE_S,
        "set by the start-up script, not verified from outside: the machine deletes itself; only its "
        f"permission to do so is read back ({UNPROVEN})",
    )
    order = CapLayer(
        name=name,
        where="cloud",
        fires_after_s=cap_s + 2.0 * MINUTE_S + DEALLOCATION_S,
        how=f"Azure's {what} deallocates it and keeps disk and address; machine, time and action are read back "
        f"({UNPROVEN})",
    )
    return (timer, order)


SEEN_S, RUNNING_S = 120.0, 900.0
_KEPT = {"id": "properties.vmId", "started": "properties.timeCreated"}


def build_attempt(draft: Draft[AzureOptions]) -> Attempt:
    builder = _CallBuilder(draft)
    subscription, name = quote(draft.chosen.subscription), quote(builder.name)
    return draft.attempt(
        builder.calls(),
        build_layers(draft.candidate.cap_s),
        stop_by_hand=f"az group delete --yes --subscription {subscription} --name {name}",
        **builder.place,
        name=builder.name,
    )


class _CallBuilder:
    """Builds the calls of one attempt; the step `created` keeps the machine's time of creation."""

    def __init__(self, draft: Draft[AzureOptions]) -> None:
        self.draft, self.candidate, self.chosen = draft, draft.candidate, draft.chosen
        self.name = f"{draft.name}-{draft.token[:8]}"  # of the machine and its group
        self.path = build_resource_path(self.chosen, self.name, "Microsoft.Compute/virtualMachines", self.name)
        self.place = {"subscription": self.chosen.subscription, "group": self.name}
        self.cap_s = draft.candidate.cap_s  # from its creation

    def calls(self) -> list[Call]:
        """Return all calls in order: the machine's permission to end itself is set before any waiting."""
        running = {"properties.provisioningState": "Succeeded"}
        return [
            self._registered(),
            *build_network_calls(self.draft, group=self.name, zone=self._zone()),
            self._machine(),
            self._look("created", **self._ours()),
            *self._right(),
            self._look("running", expects=running, patience_s=RUNNING_S),  # raises if it failed or ended
            *(self._auto_shutdown() if has_auto_shutdown(self.cap_s) else self._scheduled_action()),
        ]

    def _machine(self) -> Call:
        """Create the machine with its tags, never over an existing one."""
        ends = build_end_commands(self.path, after_s=self.cap_s)
        boot = BootConfig(**ends, packages=PACKAGES, notices="azure")
        script = build_startup_script(self.draft.request, self.candidate, self.draft.number, boot)
        params = {
            "name": self.name,
            "headers": {"If-None-Match": "*"},
            "custom_data": script,
            "body": self._body(),
        }
        more = {"makes": "machine", "token": self.draft.token, "keeps": _KEPT}
        find = self._look("machine", **self._ours())
        return self._call("machine", "compute", "virtualMachines.createOrUpdate", params, find=find, **more)

    def _look(self, step: str, **more: Any) -> Call:
        params = {"name": self.name, "$expand": "instanceView"}
        return self._call(step, "compute", "virtualMachines.get", params, **more)

    def _ours(self) -> dict[str, Any]:
        """Return what a created machine keeps: it must belong to this run and owner and have an identity."""
        ours = {f"tags.{TAG_RUN}": self.draft.request.run, "tags.gpuplan-owner": self.draft.request.owner}
        kept = {**_KEPT, "principal": "identity.principalId"}
        return {"keeps": kept, "expects": {**ours, **dict.fromkeys(kept.values())}, "patience_s": SEEN_S}

    def _body(self) -> dict[str, Any]:
        """Return the requested machine; the start-up script is inserted when it is sent."""
        path = build_resource_path(self.chosen, self.name, "Microsoft.Network/networkInterfaces", self.name)
        card = {"id": path, "properties": {"primary": True, "deleteOption": "Delete"}}
        disk = {
            "createOption": "FromImage",
            "deleteOption": "Delete",
            "diskSizeGB": int(self.chosen.disk_gb),
            "managedDisk": {"storageAccountType": "StandardSSD_LRS"},
        }
        # Without a key of the user's, logins are impossible.
        key = {"path": "/home/gpuplan/.ssh/authorized_keys", "keyData": self.chosen.ssh_key or UNUSABLE_PUBLIC_KEY}
        properties: dict[str, Any] = {
            "hardwareProfile": {"vmSize": self.candidate.instance_type},
            "storageProfile": {"imageReference": _image(self.draft.image), "osDisk": disk},
            "osProfile": {
                "computerName": self.name,
                "adminUsername": "gpuplan",
                "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [key]}},
            },
            "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},  # its console, in Azure's own storage
            "networkProfile": {"networkInterfaces": [card]},
        }
        if self.candidate.purchase == "spot":
            price = float(compute_highest_price(self.candidate))
            properties |= {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": price}}
        return {
            "location": self.candidate.region,
            "tags": self.draft.tags,
            "identity": {"type": "SystemAssigned"},
            **({"zones": [self._zone()]} if self.draft.zone else {}),
            "properties": properties,
        }

    def _zone(self) -> str | None:
        return self.draft.zone.rpartition("-")[2] if self.draft.zone else None

    def _registered(self) -> Call:
        """Check, before anything is made, that the subscription may use the order's service."""
        service = "DevTestLab" if has_auto_shutdown(self.cap_s) else "ComputeSchedule"
        params = {"subscription": self.chosen.subscription, "namespace": f"Microsoft.{service}"}
        expects = {"registrationState": "Registered"}
        return self.draft.call("registered", "resources", "providers.get", params, expects=expects)

    def _right(self) -> list[Call]:
        """Assign the machine a role whose scope is only itself, so that it can end itself."""
        names = {"vm": self.name, "name": str(uuid.uuid5(uuid.UUID(self.draft.token), "end"))}
        definitions = (
            f"/subscriptions/{self.chosen.subscription}/providers/Microsoft.Authorization/roleDefinitions"
        )
        role, principal = f"{definitions}/{CONTRIBUTOR}", {"$ref": "created.principal"}
        wanted = {"roleDefinitionId": role, "principalId": principal, "principalType": "ServicePrincipal"}
        given = {"properties.roleDefinitionId": role.lower(), "properties.principalId": principal}
        more = {"expects": given, "patience_s": READ_BACK_S}
        read = self._call("role-read", "authorization", "roleAssignments.get", names, **more)
        find = read.model_copy(update={"step": "role"})
        body = {**names, "body": {"properties": wanted}}
        return [self._call("role", "authorization", "roleAssignments.create", body, find=find), read]

    def _auto_shutdown(self) -> list[Call]:
        """Return the calls of an auto-shutdown in the minute after the cap."""
        names = {"name": f"shutdown-computevm-{self.name}"}
        time = self._at("%H%M")
        wanted = {
            "status": "Enabled", "taskType": "ComputeVmShutdownTask", "dailyRecurrence": {"time": time},
            "timeZoneId": "UTC", "notificationSettings": {"status": "Disabled"}, "targetResourceId": self.path,
        }  # fmt: skip
        body = {"location": self.draft.candidate.region, "tags": self.draft.tags, "properties": wanted}
        made = {
            "properties.targetResourceId": self.path.lower(),
            "properties.dailyRecurrence.time": time,
            "properties.timeZoneId": "UTC",
            "properties.status": "Enabled",
            "properties.taskType": "ComputeVmShutdownTask",
        }
        service, step = "devtestlabs", "auto-shutdown"
        armed = {"arms": step, "patience_s": READ_BACK_S, "expects": made}
        return [
            self._call(step, service, "globalSchedules.createOrUpdate", {**names, "body": body}),
            self._call(f"{step}-armed", service, "globalSchedules.get", names, **armed),
        ]

    def _scheduled_action(self) -> list[Call]:
        """Return the calls of a scheduled action at a date; repeating it changes nothing."""
        where = {"subscription": self.chosen.subscription, "location": self.candidate.region}
        date = self._at(DATE)
        correlation = str(uuid.uuid5(uuid.UUID(self.draft.token), "order"))
        body = {
            "schedule": {"deadline": date, "deadlineType": "InitiateAt", "timezone": "UTC"},
            "executionParameters": {"retryPolicy": {"retryCount": 7, "retryWindowInMinutes": 120}},
            "resources": {"ids": [self.path]},
            "correlationid": correlation,
        }
        asked = {"operationIds": [{"$ref": "scheduled-action.operation"}], "correlationid": correlation}
        found = "results.0.operation"
        made = {
            f"{found}.resourceId": self.path.lower(),
            f"{found}.deadline": date,
            f"{found}.opType": "Deallocate",
            f"{found}.deadlineType": "InitiateAt",
            f"{found}.state": "Scheduled",
        }
        service, step, path = "computeschedule", "scheduled-action", f"{found}.operationId"
        kept = {"keeps": {"operation": path}, "expects": {path: None}}
        armed = {"arms": step, "patience_s": READ_BACK_S, "expects": made}
        call = self.draft.call
        return [
            call(step, service, "virtualMachinesSubmitDeallocate", {**where, "body": body}, **kept),
            call(f"{step}-armed", service, "virtualMachinesGetOperationStatus", {**where, "body": asked}, **armed),
        ]

    def _at(self, form: str) -> dict[str, Any]:
        """Return the minute after the cap, relative to Azure's time of creation."""
        return {"$time": {"from": "created.started", "plus_s": self.cap_s + MINUTE_S, "format": form}}

    def _call(self, step: str, service: str, operation: str, params: dict[str, Any], **more: Any) -> Call:
        """Return a call in the machine's group."""
        return self.draft.call(step, service, operation, {**self.place, **params}, **more)


def _image(text: str) -> dict[str, str]:
    """Return an image as Azure names it: the parts of `publisher:offer:sku:version`, or an id."""
    parts = text.split(":")
    if len(parts) != PARTS_OF_AN_IMAGE:
        return {"id": text}
    return dict(zip(("publisher", "offer", "sku", "version"), parts, strict=True))
