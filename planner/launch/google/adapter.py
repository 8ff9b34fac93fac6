"""Google Cloud behind the protocol: GPU machines and TPU slices."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from ..adapter import Machine, Outcome
from ..blueprint import Attempt, Terms
from ..calls import Call
from ..clock import Clock
from ..faults import CloudFault, FaultKind
from ..remembered import Remembered
from ..request import Candidate, LaunchRequest
from .compute import ENDED_WITHIN_S, SERVICE, compute_attempt, compute_ending, compute_machine
from .faults import fault_of_operation, fault_of_tpu_state
from .options import GoogleOptions, options_of, require_ours
from .places import region_of, zones_of
from .rest import GoogleRest
from .tpu import QUEUED, is_tpu, tpu_attempt, tpu_ending, tpu_machine
from .tpu import SERVICE as TPU_SERVICE

__all__ = ["GoogleAdapter"]

# Upper bounds, not prices: about twice what a balanced disk and an address usually cost.
DISK_USD_PER_GB_HOUR = Decimal("0.0003")
ADDRESS_USD_PER_HOUR = Decimal("0.01")


class GoogleAdapter:
    """Runs on Google Cloud.

    Args:
        state_dir: Where it remembers which projects were used.
        clock: Not used: the cloud's is.
    """

    provider = "gcp"
    remote = True
    visibility_s = 60.0

    def __init__(self, *, state_dir: Path, clock: Clock) -> None:
        self._project = os.environ.get("GOOGLE_CLOUD_PROJECT") or os.environ.get("CLOUDSDK_CORE_PROJECT")
        self._projects = Remembered(state_dir / "gcp-projects.txt", current=self._project)
        self._rest = GoogleRest()

    def terms(self, candidate: Candidate, options: Mapping[str, str]) -> Terms:
        """Return what it costs at most."""
        chosen = options_of(options, project=self._project)
        disk = Decimal(0) if is_tpu(candidate.instance_type) else DISK_USD_PER_GB_HOUR * chosen.disk_gb
        address = ADDRESS_USD_PER_HOUR if chosen.external_ip else Decimal(0)
        return Terms(
            slack_s=ENDED_WITHIN_S, max_usd_per_hour=candidate.usd_per_hour + disk + address,
            notes=_notes(candidate, chosen),
        )  # fmt: skip

    def attempts(self, request: LaunchRequest) -> tuple[Attempt, ...]:
        """Return the calls for every zone of every candidate."""
        chosen = options_of(request.options, project=self._project)
        require_ours(owner=request.owner, source=request.spec.source, bucket=chosen.bucket)
        places = [(one, zone) for one in request.candidates for zone in _zones(one, chosen)]
        return tuple(
            (tpu_attempt if is_tpu(candidate.instance_type) else compute_attempt)(
                request, candidate, number, zone, chosen
            )
            for number, (candidate, zone) in enumerate(places, start=request.attempt)
        )

    def ending(self, machine: Machine) -> tuple[Call, ...]:
        """Return the call that deletes it."""
        return tpu_ending(machine) if machine.details["kind"] == "tpu" else compute_ending(machine)

    def send(self, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send one call once; what an operation or a slice says of its own failure is raised."""
        if call.makes == "machine":
            self._projects.add(params.get("project") or str(params["parent"]).split("/")[1])
        reply = self._rest.send(call.service, call.operation, params)
        fault = None
        if call.operation == "zoneOperations.list":
            fault = next(filter(None, map(fault_of_operation, reply.get("items", []))), None)
        elif call.operation == f"{QUEUED}.get":
            fault = fault_of_tpu_state(reply)
        if fault:
            raise fault
        return reply

    def missing(self) -> str:
        """Return what is missing to ask Google Cloud."""
        if not self._projects.names():
            return "no project is known: set GOOGLE_CLOUD_PROJECT"
        return self._rest.missing()

    def cloud_time(self) -> datetime | None:
        """Return Google's time."""
        return self._rest.clock.now()

    def machines(self, regions: Sequence[str] | None) -> list[Machine]:
        """Return every machine and slice with our labels, in every project that is known."""
        found = [one for project in self._projects.names() for one in self._in_project(project)]
        return [one for one in found if regions is None or one.region in regions]

    def outcome(self, request: LaunchRequest) -> Outcome | None:
        """Return what the supervisor left in the bucket."""
        chosen = options_of(request.options, project=self._project)
        if not chosen.bucket:
            return None
        bucket, _, folder = chosen.bucket.removeprefix("gs://").partition("/")
        path = "/".join(filter(None, (folder, request.run, "outcome.json"))).replace("/", "%2F")
        try:
            reply = self._rest.send(
                "storage.v1", "objects.get", {"bucket": bucket, "object": path, "alt": "media"}
            )
        except CloudFault as fault:
            if fault.kind is FaultKind.ABSENT:
                return None
            raise
        return Outcome.model_validate(reply)

    def _in_project(self, project: str) -> Iterator[Machine]:
        """Yield the machines and slices of a project."""
        for page in self._pages(
            SERVICE, "instances.aggregatedList", {"project": project, "filter": "labels.gpuplan-run:*"}
        ):
            for place, scope in page.get("items", {}).items():
                _require_whole(place, scope)
                for row in scope.get("instances", []):
                    yield compute_machine(row, project=project, seen_at=self._now())
        try:
            pages = list(
                self._pages(TPU_SERVICE, f"{QUEUED}.list", {"parent": f"projects/{project}/locations/-"})
            )
        except CloudFault as fault:
            if _is_disabled(fault):
                return  # an interface that is switched off has nothing
            raise
        for page in pages:
            for row in page.get("queuedResources", []):
                machine = tpu_machine(row, project=project, seen_at=self._now())
                if machine is not None:
                    yield machine

    def _pages(self, service: str, operation: str, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield all pages of a list."""
        token: str | None = ""
        while token is not None:
            reply = self._rest.send(service, operation, {**params, **({"pageToken": token} if token else {})})
            yield reply
            token = reply.get("nextPageToken") or None

    def _now(self) -> datetime:
        """Return the cloud's time; there is one, for an answer has come."""
        return self._rest.clock.now() or datetime.now(tz=UTC)


def _zones(candidate: Candidate, chosen: GoogleOptions) -> tuple[str, ...]:
    """Return the zones to try for a candidate."""
    wanted = tuple(zone for zone in chosen.zones if region_of(zone) == candidate.region)
    return wanted or zones_of(candidate.region)


def _require_whole(place: str, scope: Mapping[str, Any]) -> None:
    """Raise CloudFault when a zone did not answer: what is in it is unknown, not absent."""
    code = scope.get("warning", {}).get("code")
    if code == "UNREACHABLE":
        raise CloudFault(FaultKind.UNKNOWN, code, f"{place} did not answer")


def _is_disabled(fault: CloudFault) -> bool:
    """Whether an interface is not switched on in the project."""
    text = str(fault).lower()
    return (
        "accessnotconfigured" in text or "service_disabled" in text or "has not been used in project" in text
    )


def _notes(candidate: Candidate, chosen: GoogleOptions) -> tuple[str, ...]:
    """Return what the price leaves out, and what the user should know."""
    notes = ["no part of the Google adapter has been run against the real cloud yet"]
    if chosen.network == "default":
        notes.append(
            "the network `default` of a project lets anybody knock at port 22; no rule is added or changed"
        )
    if not chosen.bucket:
        notes.append("without `-O bucket=gs://…` checkpoints and logs go with the machine")
    if is_tpu(candidate.instance_type):
        notes.append("the cap of a TPU counts from when it is active; waiting for it costs nothing")
        if not chosen.service_account:
            notes.append(
                "without `-O service_account=…` that may delete it, a TPU that is done waits for its cap"
            )
    elif not chosen.service_account:
        notes.append(
            "without `-O service_account=…` that may delete it, a machine that is done switches itself off, "
            "and its disk is paid for until `gpuplan stop`"
        )
    return tuple(notes)
