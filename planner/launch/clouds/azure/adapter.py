"""Adapter of Azure, and its prices."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from ....errors import UsageError
from ...core.api_call import Call, CloudError, look_up
from ...core.clock import Clock
from ...core.cloud_adapter import (
    CloudMachine,
    Leftover,
    Listing,
    LivePrice,
    MachineRef,
    collect_leftovers,
    collect_machines,
)
from ...core.launch_plan import Attempt, CostBounds
from ...core.ledger import KnownAccounts
from ...core.request import TAG_RUN, LaunchCandidate, LaunchRequest
from ...core.startup import require_fetchable
from ..base import CloudBase, compute_highest_price, find_exact_price, none_if_absent, read_price_list
from .attempt import build_attempt
from .caps import BOOT_ALLOWANCE_S
from .network import AzureOptions, build_end_calls, parse_options
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


class AzureAdapter(CloudBase):
    """Rents from Azure.

    Args:
        state_dir: Folder with the list of used subscriptions.
        clock: Unused: the cloud's clock is used.
    """

    provider = "azure"

    def __init__(self, *, state_dir: Path, clock: Clock) -> None:
        self._accounts = KnownAccounts(
            state_dir / "azure-subscriptions.txt", current=os.environ.get("AZURE_SUBSCRIPTION_ID")
        )
        self._rest = AzureRest()
        self._clock = self._rest.clock

    def compute_cost_bounds(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> CostBounds:
        """Return the maximum cost, disk and address included."""
        left = left_usd_per_hour(disk_gb=int(self._options(options).disk_gb))
        return CostBounds(
            slack_s=BOOT_ALLOWANCE_S,
            max_usd_per_hour=compute_highest_price(candidate) + left,
            left_usd=left * LEFT_HOURS,
            notes=(
                "the Azure adapter has not been run against the real cloud yet",
                "the role assignment that lets the machine end itself needs Owner or User Access Administrator",
                "checkpoints and logs are lost with the machine: storage on Azure is not supported yet",
                "a machine that Azure's order ended keeps disk and address until `gpuplan reap`: `at most` "
                f"includes {LEFT_HOURS} h of them after the cap, ${left * LEFT_HOURS:.2f}; each further day costs "
                "the same",
            ),
            outer_cap="Azure's auto-shutdown supports caps from 0.5 to 23 hours: `--max-hours 23` or less",
        )

    def build_attempts(self, request: LaunchRequest) -> tuple[Attempt, ...]:
        """Return one attempt for each candidate, or for each of its zones."""
        chosen = self._options(request.options)
        require_fetchable(request.spec.source, kinds=("git", "image"), provider="Azure")
        places = [  # zones such as `eastus-1`; None: Azure chooses
            (candidate, f"{candidate.region}-{number}" if number else None)
            for candidate in request.candidates
            for number in chosen.zones or [""]
        ]
        return tuple(
            build_attempt(request, candidate, number=number, zone=zone, chosen=chosen)
            for number, (candidate, zone) in enumerate(places, start=request.attempt)
        )

    def build_end_calls(self, machine: MachineRef) -> tuple[Call, ...]:
        """Return the calls that delete a machine."""
        return build_end_calls(machine)

    def send(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once; raise the failure that a machine's description reports."""
        if call.makes:
            self._accounts.add(params["subscription"])
        reply = self._rest.send(call.service, call.operation, _with_script(params))
        reads = {"virtualMachines.get": parse_machine_error, "providers.get": parse_registration_error}
        fault = reads[call.operation](reply) if call.operation in reads else None
        if fault:
            raise fault
        spelled: dict[str, Any] = normalize_reply(reply)
        return spelled

    def missing(self) -> str:
        """Return the reason why Azure cannot be queried; empty if it can."""
        if not self._accounts.names():
            return "no known subscription: set AZURE_SUBSCRIPTION_ID"
        return self._rest.missing()

    def look(self, machine: MachineRef) -> CloudMachine | None:
        """Return the recorded machine, never another of the same name; None when Azure does not know it.

        A deallocated machine is `stopped`: its disk and address still cost money.
        """
        where = {key: machine.details[key] for key in ("subscription", "group", "name")}
        row = self._row(where)
        return None if row is None or not is_same(machine, row) else parse_machine(row, seen_at=self._now())

    def machines(self, regions: Sequence[str] | None) -> Listing:
        """Return all machines with our tags in all known subscriptions."""

        def ask(subscription: str) -> list[CloudMachine]:
            found = [self._described(row) for row in self._rows(subscription) if is_ours(row)]
            return [one for one in found if one is not None and _is_in(one.region, regions)]

        return collect_machines(self._accounts.names(), ask)

    def leftovers(self, regions: Sequence[str] | None) -> tuple[list[Leftover], dict[str, CloudError]]:
        """Return resource groups with our tags but without a machine, and the subscriptions that failed."""
        found, failed = collect_leftovers(self._accounts.names(), self._empty_groups)
        return [one for one in found if _is_in(one.region, regions)], failed

    def live_price(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> LivePrice:
        """Return the current retail price; needs no credentials."""
        return live_price(candidate)

    def _options(self, options: Mapping[str, str]) -> AzureOptions:
        """Return the validated options."""
        return parse_options(options, subscription=self._accounts.current)

    def _rows(self, subscription: str) -> list[dict[str, Any]]:
        """Return all machines of a subscription, without their instance views."""
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

    def _empty_groups(self, subscription: str) -> list[Leftover]:
        """Return the groups of a subscription with our tags that contain no machine and are not being deleted."""
        params = {"subscription": subscription, "$filter": f"tagName eq '{TAG_RUN}'"}
        groups = list(self._rest.pages("resources", "resourceGroups.list", params))
        full = {str(row["id"]).split("/")[4].lower() for row in self._rows(subscription)}
        return [
            parse_leftover(row)
            for row in groups
            if is_ours(row)
            and str(row["name"]).lower() not in full
            and look_up(row, "properties.provisioningState") != "Deleting"
        ]


def _with_script(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with the start-up script as `osProfile.customData` in base64.

    Raises:
        UsageError: It is too long.
    """
    sent = deepcopy(dict(params))
    if "custom_data" not in sent:
        return sent
    data = base64.b64encode(sent.pop("custom_data").encode()).decode()
    if len(data) > CUSTOM_DATA_BYTES:
        raise UsageError(
            f"the start-up script has {len(data)} bytes, and Azure takes {CUSTOM_DATA_BYTES}",
            hint="shorten the script's arguments",
        )
    sent["body"]["properties"]["osProfile"]["customData"] = data
    return sent


def _is_in(region: str, regions: Sequence[str] | None) -> bool:
    """Whether a region is among the requested ones."""
    return regions is None or region in regions


# Upper bounds, not prices: a standard SSD is about $0.08 a GB and month (https://azure.microsoft.com/pricing/details/
# managed-disks), a standard address $0.005 an hour (https://azure.microsoft.com/pricing/details/ip-addresses).
DISK_USD_PER_GB_HOUR = Decimal("0.0003")
ADDRESS_USD_PER_HOUR = Decimal("0.01")
LEFT_HOURS = 24  # time of disk and address after the cap that the maximum cost includes


def left_usd_per_hour(*, disk_gb: int) -> Decimal:
    """Return the maximum price of a deallocated machine's disk and address [USD/h].

    Example:
        >>> left_usd_per_hour(disk_gb=100)
        Decimal('0.0400')
    """
    return DISK_USD_PER_GB_HOUR * disk_gb + ADDRESS_USD_PER_HOUR


def live_price(candidate: LaunchCandidate) -> LivePrice:
    """Return the price of a machine from the Retail Prices API, which needs no credentials.

    Raises:
        CloudError: The API is unreachable, or has no price or several prices for the machine.
    """
    from ....offers.refresh.azure import read_listed
    from ....offers.refresh.source import RefreshRequest
    from ....settings import load_settings

    now, one = datetime.now(UTC), candidate
    request = RefreshRequest(environ=os.environ, endpoints=load_settings().endpoint)
    rows = read_price_list(
        lambda http: read_listed(request, http, region=one.region, size=one.instance_type, now=now),
        name="RetailPrices",
    )
    return find_exact_price(candidate, rows, name="Azure's retail prices", read_at=now)
