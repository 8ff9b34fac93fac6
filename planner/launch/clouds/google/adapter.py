"""Adapter of Google Cloud: GPU machines and TPU slices, and their current prices.

Google prices parts (cores, memory, GPUs, chips); `offers.refresh` computes machines from them. A machine with a
part without exactly one price has no live price.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.api_call import Call, CloudError, ErrorKind
from ...core.clock import Clock
from ...core.cloud_adapter import (
    CloudMachine,
    Leftover,
    Listing,
    LivePrice,
    MachineRef,
    RunOutcome,
    collect_leftovers,
    collect_machines,
)
from ...core.launch_plan import Attempt, CostBounds
from ...core.ledger import KnownAccounts
from ...core.request import LaunchCandidate, LaunchRequest
from ..base import CloudBase, find_exact_price, none_if_absent, read_price_list
from .calls import (
    CLIENT_METHODS,
    GoogleAccess,
    GoogleClients,
    GoogleRest,
    parse_operation_error,
    parse_tpu_state_error,
)
from .compute import (
    ENDED_WITHIN_S,
    SERVICE,
    SLACK_S,
    build_compute_attempt,
    build_compute_end_calls,
    parse_compute_machine,
)
from .options import (
    STORAGE,
    GoogleOptions,
    build_archive_query,
    build_folder_address,
    list_zones,
    parse_archive,
    parse_options,
    parse_region,
    require_launchable,
)
from .tpu import QUEUED, build_tpu_attempt, build_tpu_end_calls, is_tpu, parse_tpu_machine
from .tpu import SERVICE as TPU_SERVICE

if TYPE_CHECKING:
    from ....offers.refresh.gcp import GcpBilling


Ask = Callable[[str, str, Mapping[str, Any]], dict[str, Any]]
UNREACHABLE = "UNREACHABLE"


@dataclass
class Inventory:
    """Inventory of projects and buckets.

    Args:
        ask: Sends a call: service, operation, parameters.
        now: The cloud's time.
        regions: Regions to include; None: all.
        unreachable: Zones that did not answer.
    """

    ask: Ask
    now: Callable[[], datetime]
    regions: Sequence[str] | None
    unreachable: dict[str, CloudError] = field(default_factory=dict)

    def machines(self, projects: Iterable[str]) -> Listing:
        """Return the machines and slices of projects; each API of each project may fail separately."""
        asked: dict[str, Callable[[], Iterable[CloudMachine]]] = {}
        for project in projects:
            asked[f"Compute Engine in {project}"] = partial(self._instances, project)
            asked[f"Cloud TPU in {project}"] = partial(self._slices, project)
        found = collect_machines(
            asked, lambda place: (one for one in asked[place]() if one.run and self._is_here(one.region))
        )
        return replace(found, failed={**found.failed, **self.unreachable})

    def archives(self, buckets: Iterable[str]) -> tuple[list[Leftover], dict[str, CloudError]]:
        """Return uploaded archives in buckets, and the buckets that failed."""

        def ask(bucket: str) -> Iterator[Leftover]:
            pages = self._pages(STORAGE, "objects.list", build_archive_query(bucket))
            rows = (parse_archive(row) for page in pages for row in page.get("items", []))
            return (row for row in rows if row is not None)

        return collect_leftovers(buckets, ask)

    def _is_here(self, region: str) -> bool:
        """Whether a region is requested."""
        return self.regions is None or region in self.regions

    def _instances(self, project: str) -> Iterator[CloudMachine]:
        """Yield the GPU machines of a project."""
        params = {"project": project, "filter": "labels.gpuplan-run:*"}
        for page in self._pages(SERVICE, "instances.aggregatedList", params):
            self._note_unreachable(page.get("unreachables", []))
            for place, scope in page.get("items", {}).items():
                if scope.get("warning", {}).get("code") == UNREACHABLE:
                    self._note_unreachable([place])
                for row in scope.get("instances", []):
                    yield parse_compute_machine(row, project=project, seen_at=self.now())

    def _slices(self, project: str) -> Iterator[CloudMachine]:
        """Yield the TPU slices of a project; none where the API is not enabled."""
        try:
            for page in self._pages(TPU_SERVICE, f"{QUEUED}.list", {"parent": f"projects/{project}/locations/-"}):
                self._note_unreachable(page.get("unreachable", []))
                for row in page.get("queuedResources", []):
                    yield parse_tpu_machine(row, project=project, seen_at=self.now())
        except CloudError as fault:
            if not _is_disabled(fault):
                raise

    def _note_unreachable(self, places: Iterable[str]) -> None:
        """Record zones that did not answer: their content is unknown."""
        for place in places:
            zone = place.rpartition("/")[2]
            if self._is_here(parse_region(zone)):
                self.unreachable[zone] = CloudError(ErrorKind.UNKNOWN, UNREACHABLE, f"{zone} did not answer")

    def _pages(self, service: str, operation: str, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield all pages of a list; raise CloudError when they repeat."""
        tokens = [""]
        while True:
            page = {"pageToken": tokens[-1]} if tokens[-1] else {}
            reply = self.ask(service, operation, {**params, **page})
            yield reply
            token = str(reply.get("nextPageToken") or "")
            if not token:
                return
            if token in tokens:
                raise CloudError(ErrorKind.UNKNOWN, "EndlessPages", f"the pages of {operation} repeat")
            tokens.append(token)


def _is_disabled(fault: CloudError) -> bool:
    """Whether an API is not enabled in the project."""
    text = str(fault).lower()
    return "accessnotconfigured" in text or "service_disabled" in text or "has not been used in project" in text


# Upper bounds, not prices: about twice what a balanced disk and an address usually cost.
DISK_USD_PER_GB_HOUR = Decimal("0.0003")
ADDRESS_USD_PER_HOUR = Decimal("0.01")


class GoogleAdapter(CloudBase):
    """Rents from Google Cloud.

    Args:
        state_dir: Folder with the lists of used projects and buckets.
        clock: Clock of price readings; everything else uses the cloud's clock.
    """

    provider = "gcp"

    def __init__(self, *, state_dir: Path, clock: Clock) -> None:
        self._reading_clock = clock
        self._project = os.environ.get("GOOGLE_CLOUD_PROJECT") or os.environ.get("CLOUDSDK_CORE_PROJECT")
        self._projects = KnownAccounts(state_dir / "gcp-projects.txt", current=self._project)
        self._buckets = KnownAccounts(state_dir / "gcp-buckets.txt", current=None)
        self._access = GoogleAccess()
        self._clock = self._access.clock
        self._rest, self._clients = GoogleRest(self._access), GoogleClients(self._access)

    def compute_cost_bounds(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> CostBounds:
        """Return the maximum cost, disk and address included."""
        chosen = parse_options(options, project=self._project)
        tpu = is_tpu(candidate.instance_type)
        disk = Decimal(0) if tpu else DISK_USD_PER_GB_HOUR * chosen.disk_gb
        address = ADDRESS_USD_PER_HOUR if chosen.external_ip else Decimal(0)
        return CostBounds(
            slack_s=ENDED_WITHIN_S if tpu else SLACK_S,
            max_usd_per_hour=candidate.usd_per_hour + disk + address,
            notes=_notes(candidate, chosen),
        )

    def build_attempts(self, request: LaunchRequest) -> tuple[Attempt, ...]:
        """Return the calls for every zone of every candidate."""
        chosen = parse_options(request.options, project=self._project)
        require_launchable(owner=request.owner, source=request.spec.source, bucket=chosen.bucket)
        places = [(one, zone) for one in request.candidates for zone in _zones(one, chosen)]
        return tuple(
            (build_tpu_attempt if is_tpu(candidate.instance_type) else build_compute_attempt)(
                request, candidate, number, zone, chosen
            )
            for number, (candidate, zone) in enumerate(places, start=request.attempt)
        )

    def build_end_calls(self, machine: MachineRef) -> tuple[Call, ...]:
        """Return the call that deletes a machine or slice."""
        return (
            build_tpu_end_calls(machine) if machine.details["kind"] == "tpu" else build_compute_end_calls(machine)
        )

    def send(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once; raise the failure that an operation or a slice reports."""
        if call.makes == "machine":
            self._projects.add(params.get("project") or str(params["parent"]).split("/")[1])
        elif call.makes == "resource":
            self._buckets.add(build_folder_address(params))
        reply = self._ask(call.service, call.operation, params)
        fault = parse_operation_error(reply)
        if call.operation == "zoneOperations.list":
            fault = next(filter(None, map(parse_operation_error, reply.get("items", []))), None)
        elif call.operation == f"{QUEUED}.get":
            fault = parse_tpu_state_error(reply)
        if fault:
            raise fault
        return reply

    def missing(self) -> str:
        """Return the reason why Google Cloud cannot be queried; empty if it can."""
        if not self._projects.names():
            return "no known project: set GOOGLE_CLOUD_PROJECT"
        return self._access.missing()

    def look(self, machine: MachineRef) -> CloudMachine | None:
        """Return a machine or a slice by its identity; None when Google does not know it."""
        project = machine.details["project"]
        params: dict[str, Any] = {"name": machine.id}
        if machine.details["kind"] == "tpu":
            service, operation, parse = TPU_SERVICE, f"{QUEUED}.get", parse_tpu_machine
        else:
            service, operation, parse = SERVICE, "instances.get", parse_compute_machine
            params = {"project": project, "zone": machine.zone, "instance": machine.id}
        row = none_if_absent(lambda: self._ask(service, operation, params))
        return None if row is None else parse(row, project=project, seen_at=self._now())

    def machines(self, regions: Sequence[str] | None) -> Listing:
        """Return all machines and slices with our labels in all known projects."""
        return self._inventory(regions).machines(self._projects.names())

    def leftovers(self, regions: Sequence[str] | None) -> tuple[list[Leftover], dict[str, CloudError]]:
        """Return uploaded archives in used buckets; all other resources are deleted with their machine."""
        return self._inventory(regions).archives(self._buckets.names())

    def live_price(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> LivePrice:
        """Return the price of an offer, computed from current SKUs without the API keys of price refreshes."""
        from ....offers.refresh.gcp import KEY_VARIABLES
        from ....offers.refresh.source import PricePart, RefreshRequest

        region = candidate.region
        part = PricePart(region=region, purchases=("on_demand", "spot"), label=f"gcp {region}")
        environ = {name: text for name, text in os.environ.items() if name not in KEY_VARIABLES}
        rows = read_price_list(
            lambda http: self._prices.read(part, RefreshRequest(environ=environ), http), name="CloudBillingCatalog"
        )
        now = self._reading_clock.now()
        return find_exact_price(candidate, rows, name="the Cloud Billing Catalog", read_at=now)

    def outcome(self, request: LaunchRequest) -> RunOutcome | None:
        """Return the result that the supervisor stored in the bucket, or None."""
        chosen = parse_options(request.options, project=self._project)
        if not chosen.bucket:
            return None
        bucket, _, folder = chosen.bucket.removeprefix("gs://").partition("/")
        path = "/".join(filter(None, (folder, request.run, "outcome.json"))).replace("/", "%2F")
        params = {"bucket": bucket, "object": path, "alt": "media"}
        reply = none_if_absent(lambda: self._ask(STORAGE, "objects.get", params))
        return None if reply is None else RunOutcome.model_validate(reply)

    def _ask(self, service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once: through Google's client, or over HTTPS."""
        via = self._clients if f"{service}.{operation}" in CLIENT_METHODS else self._rest
        return via.send(service, operation, params)

    def _inventory(self, regions: Sequence[str] | None) -> Inventory:
        """Return the inventory of regions."""
        return Inventory(self._ask, self._now, regions)

    @cached_property
    def _prices(self) -> GcpBilling:
        """Price source with the parts of all machines of the packaged catalog."""
        from ....offers.catalog import load_catalog
        from ....offers.refresh.gcp import GcpBilling
        from ....offers.refresh.instance_types import build_instance_specs

        catalog = load_catalog()
        return GcpBilling(build_instance_specs("gcp", catalog.offers, catalog.names))


def _zones(candidate: LaunchCandidate, chosen: GoogleOptions) -> tuple[str, ...]:
    """Return the zones to try for a candidate."""
    wanted = tuple(zone for zone in chosen.zones if parse_region(zone) == candidate.region)
    return wanted or list_zones(candidate.region)


def _notes(candidate: LaunchCandidate, chosen: GoogleOptions) -> tuple[str, ...]:
    """Return the price's exclusions and other notes."""
    notes = ["the Google adapter has not been run against the real cloud yet"]
    if chosen.network == "default":
        notes.append("the network `default` opens port 22 to the internet; no firewall rule is added or changed")
    if not chosen.bucket:
        notes.append("without `-O bucket=gs://…` checkpoints and logs are lost with the machine")
    if is_tpu(candidate.instance_type):
        notes.append("the cap of a TPU starts when it is active; waiting for it is free")
        if candidate.purchase == "on_demand":
            notes.append("an on-demand TPU is requested as FLEX_START; the price is that of the on-demand SKU")
        if not chosen.service_account:
            notes.append("without a `-O service_account=…` that may delete it, a TPU runs until its cap")
    elif not chosen.service_account:
        notes.append(
            "without a `-O service_account=…` that may delete it, a machine powers off after the run, "
            "and its disk costs money until `gpuplan stop`"
        )
    return tuple(notes)
