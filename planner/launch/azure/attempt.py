"""The calls that start one machine on Azure, as data. Pure: no credentials, no network, no SDK."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

from ..blueprint import Attempt, CapLayer
from ..calls import Call
from ..names import TAG_RUN, resource_name, tags_of, token_of
from ..request import Candidate, LaunchRequest
from ..startup import Boot, startup_script
from .network import network_calls, resource_path
from .options import NOBODYS_KEY, PARTS_OF_AN_IMAGE, AzureOptions
from .timer import ending_line, timer_line

__all__ = ["BOOT_ALLOWANCE_S", "attempt_of", "has_auto_shutdown", "spot_max_price"]

BOOT_ALLOWANCE_S = 900.0  # from the start of billing until the start-up script sets its timer, and to the end
SEEN_S, RUNNING_S, READ_BACK_S = 120.0, 900.0, 120.0
MINUTE_S = 60
SHORTEST_S, LONGEST_S = 30 * 60, 23 * 3600  # auto-shutdown is a time of day, and half an hour away at least
SPOT_CEILING = Decimal("1.25")
CENTS_OF_A_CENT = Decimal("0.0001")
PACKAGES = ("keras", "jax[cuda12]")
UNPROVEN = "tested against Azure's own client models, never against the real cloud"
# https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/compute#virtual-machine-contributor
CONTRIBUTOR = "9980e02c-c2be-4d73-94e8-173b1dc7cf3c"


def spot_max_price(usd_per_hour: Decimal) -> Decimal:
    """Return the most that is bid for a spot machine [USD/h]; above it Azure evicts the machine.

    Example:
        >>> spot_max_price(Decimal("0.2"))
        Decimal('0.2500')
    """
    return (usd_per_hour * SPOT_CEILING).quantize(CENTS_OF_A_CENT)


def has_auto_shutdown(cap_s: int) -> bool:
    """Whether Azure's daily auto-shutdown can stand for a cap: within a day, and not too soon.

    Example:
        >>> has_auto_shutdown(3600), has_auto_shutdown(30 * 3600)
        (True, False)
    """
    return SHORTEST_S <= cap_s <= LONGEST_S


def attempt_of(
    request: LaunchRequest, candidate: Candidate, *, number: int, zone: str | None, chosen: AzureOptions
) -> Attempt:
    """Return the calls for one candidate in one place."""
    maker = _Maker(request, candidate, number, zone, chosen)
    return Attempt(
        number=number, candidate=candidate, zone=zone, calls=tuple(maker.calls()),
        layers=tuple(_layers(candidate.cap_s)),
        stop_by_hand=f"az group delete --yes --subscription {chosen.subscription} --name {maker.name}",
    )  # fmt: skip


class _Maker:
    """Makes the calls of one attempt."""

    def __init__(
        self,
        request: LaunchRequest,
        candidate: Candidate,
        number: int,
        zone: str | None,
        chosen: AzureOptions,
    ) -> None:
        self.request, self.candidate, self.number = request, candidate, number
        self.zone, self.chosen = zone, chosen
        self.token = token_of(request=request, number=number, candidate=candidate, zone=zone)
        self.name = f"{resource_name(request, number)}-{self.token[:8]}"
        self.tags = tags_of(request=request, number=number, candidate=candidate)
        self.path = resource_path(chosen, self.name, "Microsoft.Compute/virtualMachines", self.name)
        self.place = {"subscription": chosen.subscription, "group": self.name}

    def calls(self) -> list[Call]:
        """Return all of them in order: the machine's right to end itself comes before anything is waited for."""
        made = network_calls(
            self.chosen, group=self.name, region=self.candidate.region, zone=self._zone(), tags=self.tags
        )
        made += [self._machine(), self._get("created", patience_s=SEEN_S), *self._role(), self._running()]
        return [*made, *self._auto_shutdown()] if has_auto_shutdown(self.candidate.cap_s) else made

    def _call(self, step: str, service: str, operation: str, params: dict[str, Any], **more: Any) -> Call:
        """Return a call in the candidate's region."""
        return Call(
            step=step, service=service, operation=operation, region=self.candidate.region,
            params={**self.place, **params}, **more,
        )  # fmt: skip

    def _machine(self) -> Call:
        """Start the machine; everything that makes it findable is in this one call. Never over another one."""
        script = startup_script(self.request, self.candidate, self.number, self._boot())
        params = {
            "name": self.name, "headers": {"If-None-Match": "*"}, "custom_data": script, "body": self._body(),
        }  # fmt: skip
        return self._call(
            "machine", "compute", "virtualMachines.createOrUpdate", params, makes="machine", token=self.token,
            find=self._get("machine", patience_s=SEEN_S),
            keeps={"id": "name", "started": "properties.timeCreated"},
        )  # fmt: skip

    def _get(self, step: str, *, patience_s: float) -> Call:
        """Ask for the machine, which must be of this run and owner, and have an identity."""
        ours = {f"tags.{TAG_RUN}": self.request.run, "tags.gpuplan-owner": self.request.owner}
        return self._call(
            step, "compute", "virtualMachines.get", {"name": self.name, "$expand": "instanceView"},
            keeps={"id": "name", "started": "properties.timeCreated", "principal": "identity.principalId"},
            expects={**ours, "properties.timeCreated": None, "identity.principalId": None},
            patience_s=patience_s,
        )  # fmt: skip

    def _running(self) -> Call:
        """Wait until it runs, or has failed or ended while it was to start."""
        return self._call(
            "running", "compute", "virtualMachines.get", {"name": self.name, "$expand": "instanceView"},
            expects={"properties.provisioningState": "Succeeded"}, patience_s=RUNNING_S,
        )  # fmt: skip

    def _role(self) -> list[Call]:
        """Let the machine end itself, and nothing else: the role reaches as far as the machine."""
        names = {"vm": self.name, "name": str(uuid.uuid5(uuid.UUID(self.token), "end"))}
        definitions = (
            f"/subscriptions/{self.chosen.subscription}/providers/Microsoft.Authorization/roleDefinitions"
        )
        role = f"{definitions}/{CONTRIBUTOR}"
        wanted = {
            "roleDefinitionId": role, "principalId": {"$ref": "created.principal"},
            "principalType": "ServicePrincipal",
        }  # fmt: skip
        read = self._call(
            "role-armed", "authorization", "roleAssignments.get", names, arms="timer", patience_s=READ_BACK_S,
            expects={"properties.roleDefinitionId": role},
        )  # fmt: skip
        find = read.model_copy(update={"step": "role", "arms": None})
        give = self._call(
            "role",
            "authorization",
            "roleAssignments.create",
            {**names, "body": {"properties": wanted}},
            find=find,
        )
        return [give, read]

    def _auto_shutdown(self) -> list[Call]:
        """Have Azure give the hardware back by itself, at the minute after the cap by Azure's own clock."""
        name = {"name": f"shutdown-computevm-{self.name}"}
        at = {"from": "created.started", "plus_s": self.candidate.cap_s + MINUTE_S, "format": "%H%M"}
        wanted = {
            "status": "Enabled", "taskType": "ComputeVmShutdownTask", "dailyRecurrence": {"time": {"$time": at}},
            "timeZoneId": "UTC", "notificationSettings": {"status": "Disabled"}, "targetResourceId": self.path,
        }  # fmt: skip
        body = {"location": self.candidate.region, "tags": self.tags, "properties": wanted}
        give = self._call(
            "auto-shutdown", "devtestlabs", "globalSchedules.createOrUpdate", {**name, "body": body}
        )
        read = self._call(
            "auto-shutdown-armed", "devtestlabs", "globalSchedules.get", name, arms="auto-shutdown",
            patience_s=READ_BACK_S, expects={"properties.status": "Enabled", "properties.timeZoneId": "UTC"},
        )  # fmt: skip
        return [give, read]

    def _body(self) -> dict[str, Any]:
        """Return the machine that is asked for; the start-up script is put in when it is sent."""
        card = resource_path(self.chosen, self.name, "Microsoft.Network/networkInterfaces", self.name)
        disk = {
            "createOption": "FromImage", "deleteOption": "Delete", "diskSizeGB": int(self.chosen.disk_gb),
            "managedDisk": {"storageAccountType": "StandardSSD_LRS"},
        }  # fmt: skip
        properties: dict[str, Any] = {
            "hardwareProfile": {"vmSize": self.candidate.instance_type},
            "storageProfile": {"imageReference": _image(self.chosen.image), "osDisk": disk},
            "osProfile": self._login(),
            "networkProfile": {
                "networkInterfaces": [{"id": card, "properties": {"primary": True, "deleteOption": "Delete"}}]
            },
        }
        if self.candidate.purchase == "spot":
            price = float(spot_max_price(self.candidate.usd_per_hour))
            properties |= {
                "priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": price},
            }  # fmt: skip
        return {
            "location": self.candidate.region, "tags": self.tags, "identity": {"type": "SystemAssigned"},
            **({"zones": [self._zone()]} if self.zone else {}), "properties": properties,
        }  # fmt: skip

    def _login(self) -> dict[str, Any]:
        """Return who may log in: whoever has the private half of a key, and without one nobody."""
        key = {"path": "/home/gpuplan/.ssh/authorized_keys", "keyData": self.chosen.ssh_key or NOBODYS_KEY}
        return {
            "computerName": self.name, "adminUsername": "gpuplan",
            "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [key]}},
        }  # fmt: skip

    def _boot(self) -> Boot:
        """Return what the start-up script needs on Azure."""
        return Boot(
            timer=timer_line(self.path, after_s=self.candidate.cap_s), end=ending_line(self.path),
            packages=PACKAGES, notices="azure",
        )  # fmt: skip

    def _zone(self) -> str | None:
        """Return the number of the availability zone."""
        return self.zone.rpartition("-")[2] if self.zone else None


def _image(text: str) -> dict[str, str]:
    """Return an image as Azure names it.

    Example:
        >>> _image("publisher:offer:sku:latest")
        {'publisher': 'publisher', 'offer': 'offer', 'sku': 'sku', 'version': 'latest'}
    """
    parts = text.split(":")
    if len(parts) != PARTS_OF_AN_IMAGE:
        return {"id": text}
    return dict(zip(("publisher", "offer", "sku", "version"), parts, strict=True))


def _layers(cap_s: int) -> list[CapLayer]:
    """Return what ends the machine."""
    layers = [
        CapLayer(
            name="timer", where="machine", fires_after_s=cap_s + BOOT_ALLOWANCE_S, unproven=UNPROVEN,
            how="the start-up script's first line; the machine deletes itself, with a right of its own, read back",
        )
    ]  # fmt: skip
    if has_auto_shutdown(cap_s):
        layers.append(
            CapLayer(
                name="auto-shutdown", where="cloud", fires_after_s=cap_s + 2.0 * MINUTE_S, unproven=UNPROVEN,
                how="Azure's auto-shutdown gives the hardware back, read back; disk and address are left",
            )
        )  # fmt: skip
    return layers
