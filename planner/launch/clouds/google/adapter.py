"""Adapter of Google Cloud: GPU machines and TPU slices, and their current prices.

Google prices parts (cores, memory, GPUs, chips); `offers.refresh` computes machines from them. A machine with a
part without exactly one price has no live price.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....errors import UsageError
from ...core.api_call import Call, CloudError, ErrorKind, build_call
from ...core.clock import Clock
from ...core.cloud_adapter import CloudMachine, Leftover, LivePrice, MachineRef
from ...core.launch_plan import Attempt
from ...core.ledger import KnownAccounts
from ...core.request import LaunchCandidate, LaunchRequest
from ...core.startup import build_archive_name
from ..base import CONSOLE_BYTES, CloudBase, Draft, Failed, Questions, is_in, none_if_absent, read_price_list
from .attempt import (
    ENDED_WITHIN_S,
    QUEUED,
    SERVICE,
    SLACK_S,
    TPU_SERVICE,
    build_compute_attempt,
    build_tpu_attempt,
    is_tpu,
    parse_compute_machine,
    parse_tpu_machine,
)
from .calls import GoogleAccess, parse_operation_error, parse_tpu_state_error
from .options import (
    LABEL,
    STORAGE,
    GoogleOptions,
    find_object,
    list_zones,
    parse_archive,
    parse_region,
    read_options,
)

if TYPE_CHECKING:
    from ....offers.refresh.gcp import GcpBilling


UNREACHABLE = "UNREACHABLE"
_DISABLED = ("accessnotconfigured", "service_disabled", "has not been used in project")


class GoogleAdapter(CloudBase[GoogleOptions]):
    """Rents from Google Cloud; `state_dir` has the lists of used projects and buckets, `clock` dates prices."""

    provider, title = "gcp", "Google Cloud"
    sources = ("git", "gs", "image", "folder")
    bucket_options = "-O bucket=gs://NAME -O service_account=EMAIL"
    options_type = GoogleOptions
    slack_s = SLACK_S
    limits_spot_price = False
    # Upper bounds, not prices: about twice what a balanced disk and an address usually cost.
    disk_usd_per_gb_hour = Decimal("0.0003")
    address_usd_per_hour = Decimal("0.01")

    def __init__(self, *, state_dir: Path, clock: Clock) -> None:
        self._reading_clock = clock
        self._project = os.environ.get("GOOGLE_CLOUD_PROJECT") or os.environ.get("CLOUDSDK_CORE_PROJECT")
        self._projects = KnownAccounts(state_dir / "gcp-projects.txt", current=self._project)
        self._buckets = KnownAccounts(state_dir / "gcp-buckets.txt", current=None)
        self._access = GoogleAccess()
        self._ask, self._clock = self._access.send, self._access.clock

    def read_options(self, options: Mapping[str, str]) -> GoogleOptions:
        return read_options(options, project=self._project or "")

    def find_slack_s(self, candidate: LaunchCandidate) -> float:
        """Return the time from the cap to the latest end of billing; the cap of a slice starts with it [s]."""
        return ENDED_WITHIN_S if is_tpu(candidate.instance_type) else self.slack_s

    def compute_kept_usd_per_hour(self, candidate: LaunchCandidate, chosen: GoogleOptions) -> Decimal:
        """Return the maximum price of disk and address; a slice has no disk [USD/h]."""
        disk = Decimal(0) if is_tpu(candidate.instance_type) else int(chosen.disk_gb) * self.disk_usd_per_gb_hour
        return disk + (self.address_usd_per_hour if chosen.has_address else 0)

    def describe_limits(self, candidate: LaunchCandidate, chosen: GoogleOptions) -> tuple[str, ...]:
        tpu, deletes = is_tpu(candidate.instance_type), bool(chosen.service_account)
        open_network, flexible = chosen.network == "default", tpu and candidate.purchase == "on_demand"
        notes = {
            "the Google adapter has not been run against the real cloud yet": True,
            "the network `default` opens port 22 to the internet; "
            "no firewall rule is added or changed": open_network,
            "without `-O bucket=gs://…` checkpoints and logs are lost with the machine": not chosen.bucket,
            "the cap of a TPU starts when it is active; waiting for it is free": tpu,
            "an on-demand TPU is requested as FLEX_START; the price is that of the on-demand SKU": flexible,
            "without a `-O service_account=…` that may delete it, a TPU runs until its cap": tpu and not deletes,
            "without a `-O service_account=…` that may delete it, a machine powers off after the run, "
            "and its disk costs money until `gpuplan stop`": not (tpu or deletes),
        }
        return tuple(note for note, holds in notes.items() if holds)

    def list_zones(self, candidate: LaunchCandidate, chosen: GoogleOptions) -> Sequence[str | None]:
        """Return the chosen zones in the candidate's region, else all of its zones."""
        wanted = [zone for zone in chosen.zones.split(",") if parse_region(zone) == candidate.region]
        return wanted or list_zones(candidate.region)

    def pick_image(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> str:
        """Return the image of a machine; empty for a slice, whose runtime is its own."""
        return "" if is_tpu(candidate.instance_type) else super().pick_image(candidate, options)

    def build_attempt(self, draft: Draft[GoogleOptions]) -> Attempt:
        if not LABEL.fullmatch(draft.request.owner):
            raise UsageError(
                f"the owner `{draft.request.owner}` is not a valid label on Google Cloud",
                hint="set `GPUPLAN_OWNER` to lower case letters, digits and hyphens, 63 at most",
            )
        build = build_tpu_attempt if is_tpu(draft.candidate.instance_type) else build_compute_attempt
        return build(draft)

    def build_end_calls(self, machine: MachineRef) -> tuple[Call, ...]:
        if machine.details["kind"] == "tpu":  # with its queued resource, in any state
            service, operation, params = TPU_SERVICE, f"{QUEUED}.delete", {"name": machine.id, "force": "true"}
        else:
            service, operation, params = SERVICE, "instances.delete", _identify(machine)
        return (build_call("end", service, operation, params, region=machine.region),)

    def exchange(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once; its project or bucket is recorded before."""
        if call.makes == "machine":
            self._projects.add(params.get("project") or str(params["parent"]).split("/")[1])
        elif call.makes == "resource":
            self._buckets.add(f"gs://{params['bucket']}/{params['body']['name']}".rpartition("/")[0])
        return self._ask(call.service, call.operation, params)

    def find_fault(self, call: Call, reply: Mapping[str, Any]) -> CloudError | None:
        """Return the failure that an operation or a slice reports."""
        if call.operation == "zoneOperations.list":
            return next(filter(None, map(parse_operation_error, reply.get("items", []))), None)
        if call.operation == f"{QUEUED}.get":
            return parse_tpu_state_error(reply)
        return parse_operation_error(reply)

    def missing(self) -> str:
        if not self._projects.names():
            return "no known project: set GOOGLE_CLOUD_PROJECT"
        return self._access.missing()

    def look(self, machine: MachineRef) -> CloudMachine | None:
        if machine.details["kind"] == "tpu":
            parse, ask = parse_tpu_machine, partial(self._ask, TPU_SERVICE, f"{QUEUED}.get", {"name": machine.id})
        else:
            parse, ask = parse_compute_machine, partial(self._ask, SERVICE, "instances.get", _identify(machine))
        row = none_if_absent(ask)
        return None if row is None else parse(row, project=machine.details["project"], seen_at=self._now())

    def console(self, machine: MachineRef) -> str:
        """Return the end of a machine's serial port; a slice has none."""
        if machine.details["kind"] == "tpu":
            return ""
        params = {**_identify(machine), "start": str(-CONSOLE_BYTES)}
        return str(self._ask(SERVICE, "instances.getSerialPortOutput", params).get("contents", ""))

    def ask_machines(self, regions: Sequence[str] | None, failed: Failed) -> Questions[CloudMachine]:
        """Return how to list machines and slices; each API of each project may fail separately."""
        asked: Questions[CloudMachine] = {}
        for project in self._projects.names():
            note = partial(_note_unreachable, regions=regions, failed=failed)
            asked[f"Compute Engine in {project}"] = partial(self._instances, project, note)
            asked[f"Cloud TPU in {project}"] = partial(self._slices, project, note)
        return asked

    def ask_leftovers(self, regions: Sequence[str] | None, failed: Failed) -> Questions[Leftover]:
        """Return how to list uploaded archives; all other resources are deleted with their machine."""
        return {bucket: partial(self._archives, bucket) for bucket in self._buckets.names()}

    def live_price(self, candidate: LaunchCandidate, options: Mapping[str, str]) -> LivePrice:
        """Return the price of an offer, computed from current SKUs without the API keys of price refreshes."""
        from ....offers.refresh.gcp import KEY_VARIABLES
        from ....offers.refresh.source import PricePart, RefreshRequest

        region = candidate.region
        part = PricePart(region=region, purchases=("on_demand", "spot"), label=f"gcp {region}")
        environ = {name: text for name, text in os.environ.items() if name not in KEY_VARIABLES}
        return read_price_list(
            lambda http: self._prices.read(part, RefreshRequest(environ=environ), http),
            candidate,
            code="CloudBillingCatalog",
            name="the Cloud Billing Catalog",
            read_at=self._reading_clock.now(),
        )

    def read_outcome(self, request: LaunchRequest, chosen: GoogleOptions) -> bytes:
        bucket, name = find_object(chosen.bucket, f"{request.run}/outcome.json")
        params = {"bucket": bucket, "object": name.replace("/", "%2F"), "alt": "media"}
        return json.dumps(self._ask(STORAGE, "objects.get", params)).encode()

    def _instances(self, project: str, note: Callable[[Iterable[str]], None]) -> Iterator[CloudMachine]:
        params = {"project": project, "filter": "labels.gpuplan-run:*"}
        for page in self._pages(SERVICE, "instances.aggregatedList", params):
            note(page.get("unreachables", []))
            for place, scope in page.get("items", {}).items():
                if scope.get("warning", {}).get("code") == UNREACHABLE:
                    note([place])
                for row in scope.get("instances", []):
                    yield parse_compute_machine(row, project=project, seen_at=self._now())

    def _slices(self, project: str, note: Callable[[Iterable[str]], None]) -> Iterator[CloudMachine]:
        """Yield the TPU slices of a project; none where the API is not enabled."""
        try:
            for page in self._pages(TPU_SERVICE, f"{QUEUED}.list", {"parent": f"projects/{project}/locations/-"}):
                note(page.get("unreachable", []))
                for row in page.get("queuedResources", []):
                    yield parse_tpu_machine(row, project=project, seen_at=self._now())
        except CloudError as fault:
            if not any(part in str(fault).lower() for part in _DISABLED):
                raise

    def _archives(self, address: str) -> Iterator[Leftover]:
        bucket, names = find_object(address, build_archive_name("*"))
        params = {"bucket": bucket, "matchGlob": names}
        for page in self._pages(STORAGE, "objects.list", params):
            yield from filter(None, map(parse_archive, page.get("items", [])))

    def _pages(self, service: str, operation: str, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield all pages of a list; raise CloudError when they repeat."""
        tokens = [""]
        while True:
            page = {"pageToken": tokens[-1]} if tokens[-1] else {}
            reply = self._ask(service, operation, {**params, **page})
            yield reply
            token = str(reply.get("nextPageToken") or "")
            if not token:
                return
            if token in tokens:
                raise CloudError(ErrorKind.UNKNOWN, "EndlessPages", f"the pages of {operation} repeat")
            tokens.append(token)

    @cached_property
    def _prices(self) -> GcpBilling:
        """Price source with the parts of all machines of the packaged catalog."""
        from ....offers.catalog import load_catalog
        from ....offers.refresh.gcp import GcpBilling
        from ....offers.refresh.source import build_instance_specs

        catalog = load_catalog()
        return GcpBilling(build_instance_specs("gcp", catalog.offers, catalog.names))


def _identify(machine: MachineRef) -> dict[str, Any]:
    """Return the parameters of a GPU machine by its numeric id, never of another of the same name."""
    return {"project": machine.details["project"], "zone": machine.zone, "instance": machine.id}


def _note_unreachable(places: Iterable[str], *, regions: Sequence[str] | None, failed: Failed) -> None:
    """Record zones that did not answer: their content is unknown."""
    for place in places:
        zone = place.rpartition("/")[2]
        if is_in(parse_region(zone), regions):
            failed[zone] = CloudError(ErrorKind.UNKNOWN, UNREACHABLE, f"{zone} did not answer")
