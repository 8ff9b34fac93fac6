"""API calls that start one machine on Azure. Pure: no credentials, network or SDK."""

from __future__ import annotations

from typing import Any

from ...core.api_call import Call
from ...core.launch_plan import Attempt
from ...core.request import TAG_RUN
from ...core.shell import quote
from ...core.startup import BootConfig, build_startup_script
from ..base import PACKAGES, Draft, compute_highest_price
from .caps import CapCalls, build_end_commands, build_layers
from .network import PARTS_OF_AN_IMAGE, UNUSABLE_PUBLIC_KEY, AzureOptions, build_network_calls, build_resource_path

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


class _CallBuilder(CapCalls):
    """Builds the calls of one attempt."""

    def calls(self) -> list[Call]:
        """Return all calls in order: the machine's permission to end itself is set before any waiting."""
        running = {"properties.provisioningState": "Succeeded"}
        return [
            self.registered(),
            *build_network_calls(self.draft, group=self.name, zone=self._zone()),
            self._machine(),
            self._look("created", **self._ours()),
            *self.right(),
            self._look("running", expects=running, patience_s=RUNNING_S),  # raises if it failed or ended
            *self.order(),
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


def _image(text: str) -> dict[str, str]:
    """Return an image as Azure names it: the parts of `publisher:offer:sku:version`, or an id."""
    parts = text.split(":")
    if len(parts) != PARTS_OF_AN_IMAGE:
        return {"id": text}
    return dict(zip(("publisher", "offer", "sku", "version"), parts, strict=True))
