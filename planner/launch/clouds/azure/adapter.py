"""Adapter of Azure, the API calls that start one machine, and its prices."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from ....errors import UsageError
from ...core.api_call import Call, CloudError, look_up
from ...core.clock import Clock
from ...core.cloud_adapter import CloudMachine, Leftover, LivePrice, MachineRef
from ...core.launch_plan import Attempt, CostBounds
from ...core.ledger import KnownAccounts
from ...core.request import TAG_RUN, LaunchCandidate
from ...core.shell import quote
from ...core.startup import BootConfig, build_startup_script
from ..base import (
    PACKAGES,
    CloudBase,
    Draft,
    Failed,
    Questions,
    compute_highest_price,
    is_in,
    none_if_absent,
    read_price_list,
)
from .caps import BOOT_ALLOWANCE_S, CapCalls, build_end_commands, build_layers
from .network import (
    PARTS_OF_AN_IMAGE,
    UNUSABLE_PUBLIC_KEY,
    AzureOptions,
    build_end_calls,
    build_network_calls,
    build_resource_path,
    read_options,
)
from .replies import (
    AzureRest,
    is_ours,
    is_same,
    normalize_reply,
    parse_leftover,
    parse_machine,
    parse_machine_error,
    parse_registration_error,
)

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


CUSTOM_DATA_BYTES = 64 * 1024  # https://learn.microsoft.com/azure/virtual-machines/custom-data
LEFT_HOURS = 24  # time of disk and address after the cap that the maximum cost includes


class AzureAdapter(CloudBase[AzureOptions]):
    """Rents from Azure; `state_dir` has the list of used subscriptions."""

    provider, title = "azure", "Azure"
    sources = ("git", "image")
    options_type = AzureOptions
    slack_s = BOOT_ALLOWANCE_S
    # Upper bounds, not prices: a standard SSD is about $0.08 a GB and month (https://azure.microsoft.com/pricing/
    # details/managed-disks), a standard address $0.005 an hour (https://azure.microsoft.com/pricing/details/
    # ip-addresses).
    disk_usd_per_gb_hour = Decimal("0.0003")
    address_usd_per_hour = Decimal("0.01")

    def __init__(self, *, state_dir: Path, clock: Clock) -> None:
        self._accounts = KnownAccounts(
            state_dir / "azure-subscriptions.txt", current=os.environ.get("AZURE_SUBSCRIPTION_ID")
        )
        self._rest = AzureRest()
        self._clock = self._rest.clock

    def read_options(self, options: Mapping[str, str]) -> AzureOptions:
        return read_options(options, subscription=self._accounts.current or "")

    def compute_cost_bounds(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> CostBounds:
        """Return the maximum cost, with disk and address after the cap too."""
        left_usd = self.compute_kept_usd_per_hour(candidate, self.read_options(options)) * LEFT_HOURS
        note = (
            "a machine that Azure's order ended keeps disk and address until `gpuplan reap`: `at most` includes "
            f"{LEFT_HOURS} h of them after the cap, ${left_usd:.2f}; each further day costs the same"
        )
        known = super().compute_cost_bounds(candidate, options)
        outer_cap = "Azure's auto-shutdown supports caps from 0.5 to 23 hours: `--max-hours 23` or less"
        return known.model_copy(
            update={"left_usd": left_usd, "notes": (*known.notes, note), "outer_cap": outer_cap}
        )

    def describe_limits(self, candidate: LaunchCandidate, chosen: AzureOptions) -> tuple[str, ...]:
        return (
            "the Azure adapter has not been run against the real cloud yet",
            "the role assignment that lets the machine end itself needs Owner or User Access Administrator",
            "checkpoints and logs are lost with the machine: storage on Azure is not supported yet",
        )

    def list_zones(self, candidate: LaunchCandidate, chosen: AzureOptions) -> Sequence[str | None]:
        """Return the chosen zones, such as `eastus-1`."""
        return [f"{candidate.region}-{number}" for number in chosen.zones] or [None]

    def build_attempt(self, draft: Draft[AzureOptions]) -> Attempt:
        return build_attempt(draft)

    def build_end_calls(self, machine: MachineRef) -> tuple[Call, ...]:
        return build_end_calls(machine)

    def exchange(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one request, with the start-up script in base64; its reply has one spelling of paths and dates."""
        if call.makes:
            self._accounts.add(params["subscription"])
        sent = deepcopy(dict(params))
        if "custom_data" in sent:
            data = base64.b64encode(sent.pop("custom_data").encode()).decode()
            if len(data) > CUSTOM_DATA_BYTES:
                raise UsageError(
                    f"the start-up script has {len(data)} bytes, and Azure takes {CUSTOM_DATA_BYTES}",
                    hint="shorten the script's arguments",
                )
            sent["body"]["properties"]["osProfile"]["customData"] = data
        return dict(normalize_reply(self._rest.send(call.service, call.operation, sent)))

    def find_fault(self, call: Call, reply: Mapping[str, Any]) -> CloudError | None:
        """Return the failure of a machine that did not start, or of a service that is not registered."""
        reads = {"virtualMachines.get": parse_machine_error, "providers.get": parse_registration_error}
        return reads[call.operation](reply) if call.operation in reads else None

    def missing(self) -> str:
        if not self._accounts.names():
            return "no known subscription: set AZURE_SUBSCRIPTION_ID"
        return self._rest.missing()

    def look(self, machine: MachineRef) -> CloudMachine | None:
        """Return the recorded machine, never another of its name; a deallocated one is `stopped`."""
        row = self._row(machine.details)
        return None if row is None or not is_same(machine, row) else parse_machine(row, seen_at=self._now())

    def console(self, machine: MachineRef) -> str:
        """Return the end of the serial console in the machine's boot diagnostics."""
        found = self._rest.send("compute", "virtualMachines.retrieveBootDiagnosticsData", machine.details)
        return self._rest.read_end(str(found.get("serialConsoleLogBlobUri", "")))

    def ask_machines(self, regions: Sequence[str] | None, failed: Failed) -> Questions[CloudMachine]:
        return {one: partial(self._machines_in, one) for one in self._accounts.names()}

    def ask_leftovers(self, regions: Sequence[str] | None, failed: Failed) -> Questions[Leftover]:
        """Return how to list resource groups with our tags but without a machine, of each known subscription."""
        return {one: partial(self._empty_groups, one, regions) for one in self._accounts.names()}

    def live_price(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> LivePrice:
        """Return the current price in the Retail Prices API, which needs no credentials."""
        from ....offers.refresh.azure import read_listed
        from ....offers.refresh.source import RefreshRequest
        from ....settings import load_settings

        now, one = datetime.now(UTC), candidate
        request = RefreshRequest(environ=os.environ, endpoints=load_settings().endpoint)
        return read_price_list(
            lambda http: read_listed(request, http, region=one.region, size=one.instance_type, now=now),
            candidate,
            code="RetailPrices",
            name="Azure's retail prices",
            read_at=now,
        )

    def _machines_in(self, subscription: str) -> Iterator[CloudMachine]:
        return filter(None, map(self._described, filter(is_ours, self._rows(subscription))))

    def _rows(self, subscription: str) -> list[dict[str, Any]]:
        return list(self._rest.pages("compute", "virtualMachines.listAll", {"subscription": subscription}))

    def _described(self, row: Mapping[str, Any]) -> CloudMachine | None:
        """Return a listed machine, with its instance view if it can be read; None when it is gone."""
        _, _, subscription, _, group, *_, name = str(row["id"]).split("/")
        try:
            seen = self._row({"subscription": subscription, "group": group, "name": name})
        except CloudError:
            return parse_machine(row, seen_at=self._now())
        return None if seen is None else parse_machine(seen, seen_at=self._now())

    def _row(self, where: Mapping[str, str]) -> dict[str, Any] | None:
        """Return a machine with its instance view; None for an unknown name."""
        params = {**where, "$expand": "instanceView"}
        return none_if_absent(lambda: self._rest.send("compute", "virtualMachines.get", params))

    def _empty_groups(self, subscription: str, regions: Sequence[str] | None) -> list[Leftover]:
        """Return the groups of a subscription with our tags that contain no machine and are not being deleted."""
        params = {"subscription": subscription, "$filter": f"tagName eq '{TAG_RUN}'"}
        groups = list(self._rest.pages("resources", "resourceGroups.list", params))
        full = {str(row["id"]).split("/")[4].lower() for row in self._rows(subscription)}
        found = [
            parse_leftover(row)
            for row in filter(is_ours, groups)
            if str(row["name"]).lower() not in full and look_up(row, "properties.provisioningState") != "Deleting"
        ]
        return [one for one in found if is_in(one.region, regions)]
