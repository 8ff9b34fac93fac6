"""Adapter of Azure, and its prices."""

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
from ...core.launch_plan import CostBounds
from ...core.ledger import KnownAccounts
from ...core.request import TAG_RUN, LaunchCandidate
from ..base import CloudBase, Failed, Questions, is_in, none_if_absent, read_price_list
from .attempt import BOOT_ALLOWANCE_S, AzureOptions, build_attempt, build_end_calls, read_options
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

CUSTOM_DATA_BYTES = 64 * 1024  # https://learn.microsoft.com/azure/virtual-machines/custom-data
LEFT_HOURS = 24  # time of disk and address after the cap that the maximum cost includes


class AzureAdapter(CloudBase[AzureOptions]):
    """Rents from Azure; `state_dir` has the list of used subscriptions."""

    provider, title = "azure", "Azure"
    sources = ("git", "image")
    before_zone = "-"
    options_type = AzureOptions
    build_attempt = staticmethod(build_attempt)
    build_end_calls = staticmethod(build_end_calls)
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
        def ask(subscription: str) -> Iterator[CloudMachine]:
            return filter(None, map(self._described, filter(is_ours, self._rows(subscription))))

        return {one: partial(ask, one) for one in self._accounts.names()}

    def ask_leftovers(self, regions: Sequence[str] | None, failed: Failed) -> Questions[Leftover]:
        """Return how to list resource groups with our tags but without a machine, of each known subscription."""
        return {one: partial(self._empty_groups, one, regions) for one in self._accounts.names()}

    def live_price(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> LivePrice:
        """Return the current price in the Retail Prices API, which needs no credentials."""
        from ....offers.refresh.azure import read_listed
        from ....offers.refresh.source import RefreshRequest
        from ....settings import load_settings

        now, one = datetime.now(UTC), candidate
        size = f"armSkuName eq '{one.instance_type}'"
        request = RefreshRequest(environ=os.environ, endpoints=load_settings().endpoint)
        return read_price_list(
            lambda http: read_listed(request, http, region=one.region, chosen=size, now=now),
            candidate,
            code="RetailPrices",
            name="Azure's retail prices",
            read_at=now,
        )

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
