"""Resources with our labels in projects and buckets: machines, slices, uploaded archives.

A project, API or zone that does not answer is named and does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from ...core.api_call import CloudError, ErrorKind
from ...core.cloud_adapter import CloudMachine, Leftover, Listing, collect_leftovers, collect_machines
from .compute import SERVICE, parse_compute_machine
from .tpu import QUEUED, parse_tpu_machine
from .tpu import SERVICE as TPU_SERVICE
from .upload import SERVICE as STORAGE
from .upload import build_archive_query, parse_archive
from .zones import parse_region

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
            for page in self._pages(
                TPU_SERVICE, f"{QUEUED}.list", {"parent": f"projects/{project}/locations/-"}
            ):
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
    return (
        "accessnotconfigured" in text or "service_disabled" in text or "has not been used in project" in text
    )
