"""Azure behind the protocol."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..adapter import Machine, Outcome
from ..blueprint import Attempt, Terms
from ..calls import Call
from ..clock import Clock
from ..faults import CloudFault, FaultKind
from ..remembered import Remembered
from ..request import Candidate, LaunchRequest
from .attempt import BOOT_ALLOWANCE_S, attempt_of, has_auto_shutdown, spot_max_price
from .faults import fault_of_machine
from .machine import ending_of, is_ours, machine_of
from .options import AzureOptions, options_of, require_ours
from .rest import AzureRest

__all__ = ["AzureAdapter"]

# Upper bounds, not prices: a standard SSD is about $0.08 a GB and month (https://azure.microsoft.com/pricing/details/
# managed-disks), a standard address $0.005 an hour (https://azure.microsoft.com/pricing/details/ip-addresses).
DISK_USD_PER_GB_HOUR = Decimal("0.0003")
ADDRESS_USD_PER_HOUR = Decimal("0.01")
CUSTOM_DATA_BYTES = 64 * 1024  # https://learn.microsoft.com/azure/virtual-machines/custom-data


class AzureAdapter:
    """Rents from Azure.

    Args:
        state_dir: Where it remembers which subscriptions were used.
        clock: Not used: the cloud's is.
    """

    provider = "azure"
    remote = True
    visibility_s = 60.0

    def __init__(self, *, state_dir: Path, clock: Clock) -> None:
        self._accounts = Remembered(
            state_dir / "azure-subscriptions.txt", current=os.environ.get("AZURE_SUBSCRIPTION_ID")
        )
        self._rest = AzureRest()

    def terms(self, candidate: Candidate, options: Mapping[str, str]) -> Terms:
        """Return what it costs at most, disk and address included."""
        chosen = self._options(options)
        spot = candidate.purchase == "spot"
        machine = spot_max_price(candidate.usd_per_hour) if spot else candidate.usd_per_hour
        return Terms(
            slack_s=BOOT_ALLOWANCE_S,
            max_usd_per_hour=machine + DISK_USD_PER_GB_HOUR * int(chosen.disk_gb) + ADDRESS_USD_PER_HOUR,
            notes=_notes(candidate),
        )

    def attempts(self, request: LaunchRequest) -> tuple[Attempt, ...]:
        """Return one attempt for each candidate, or for each of its zones."""
        chosen = self._options(request.options)
        require_ours(source=request.spec.source)
        places = [(one, zone) for one in request.candidates for zone in _zones(one, chosen)]
        return tuple(
            attempt_of(request, candidate, number=number, zone=zone, chosen=chosen)
            for number, (candidate, zone) in enumerate(places, start=request.attempt)
        )

    def ending(self, machine: Machine) -> tuple[Call, ...]:
        """Return the calls that delete it."""
        return ending_of(machine)

    def send(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once; what a machine says of its own failure is raised."""
        if call.makes:
            self._accounts.add(params["subscription"])
        reply = self._rest.send(call.service, call.operation, _with_script(params))
        fault = fault_of_machine(reply) if call.operation == "virtualMachines.get" else None
        if fault:
            raise fault
        return reply

    def missing(self) -> str:
        """Return what is missing to ask Azure."""
        if not self._accounts.names():
            return "no subscription is known: set AZURE_SUBSCRIPTION_ID"
        return self._rest.missing()

    def cloud_time(self) -> datetime | None:
        """Return Azure's time."""
        return self._rest.clock.now()

    def machines(self, regions: Sequence[str] | None) -> list[Machine]:
        """Return every machine with our tags, in every subscription that is known."""
        found = [one for account in self._accounts.names() for one in self._in_subscription(account)]
        return [one for one in found if regions is None or one.region in regions]

    def outcome(self, request: LaunchRequest) -> Outcome | None:
        """Return nothing: on Azure there is no place yet that outlives the machine."""
        return None

    def _options(self, options: Mapping[str, str]) -> AzureOptions:
        """Return the options as typed."""
        return options_of(options, subscription=self._accounts.current)

    def _in_subscription(self, subscription: str) -> list[Machine]:
        """Return the machines of a subscription; how each of them is doing is asked one by one."""
        rows = self._rest.pages("compute", "virtualMachines.listAll", {"subscription": subscription})
        ours = [str(row["id"]).split("/") for row in rows if is_ours(row)]
        seen = (self._described(subscription, group=parts[4], name=parts[8]) for parts in ours)
        return [machine_of(row, seen_at=self._now()) for row in seen if row is not None]

    def _described(self, subscription: str, *, group: str, name: str) -> dict[str, Any] | None:
        """Return a machine with its instance view; None when it went in between."""
        where = {"subscription": subscription, "group": group, "name": name, "$expand": "instanceView"}
        try:
            return self._rest.send("compute", "virtualMachines.get", where)
        except CloudFault as fault:
            if fault.kind is FaultKind.ABSENT:
                return None
            raise

    def _now(self) -> datetime:
        """Return the cloud's time; there is one, for an answer has come."""
        return self._rest.clock.now() or datetime.now(tz=UTC)


def _zones(candidate: Candidate, chosen: AzureOptions) -> list[str | None]:
    """Return the availability zones to try, as `eastus-1`; None: Azure chooses."""
    return [f"{candidate.region}-{number}" for number in chosen.zones] or [None]


def _with_script(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with the start-up script where Azure wants it, encoded as Azure wants it.

    Raises:
        UsageError: It is too long.
    """
    if "custom_data" not in params:
        return dict(params)
    data = base64.b64encode(params["custom_data"].encode()).decode()
    if len(data) > CUSTOM_DATA_BYTES:
        raise UsageError(
            f"the start-up script has {len(data)} bytes, and Azure takes {CUSTOM_DATA_BYTES}",
            hint="shorten the script's arguments",
        )
    body = params["body"]
    properties = body["properties"]
    login = {**properties["osProfile"], "customData": data}
    sent = {key: value for key, value in params.items() if key != "custom_data"}
    return {**sent, "body": {**body, "properties": {**properties, "osProfile": login}}}


def _notes(candidate: Candidate) -> tuple[str, ...]:
    """Return what the price leaves out, and what the user should know."""
    notes = [
        "no part of the Azure adapter has been run against the real cloud yet",
        "giving the machine the right to end itself needs the role Owner or User Access Administrator",
        "checkpoints and logs go with the machine: there is no storage on Azure yet",
    ]
    if has_auto_shutdown(candidate.cap_s):
        notes.append(
            "a machine that auto-shutdown ended keeps disk and address, about $0.02 an hour, until `gpuplan reap`"
        )
    else:
        notes.append(
            "caps below half an hour or above 23 hours: only the machine's own timer is armed, for Azure's "
            "auto-shutdown is a time of day"
        )
    return tuple(notes)
