"""Installation report as rows: part, item, value, note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..units import GIB, MIB
from .output import Column

if TYPE_CHECKING:
    from ..doctor.report import InstallationReport

DOCTOR_COLUMNS = (
    Column(key="part", header="part"),
    Column(key="what", header="what"),
    Column(key="value", header=""),
    Column(key="note", header=""),
)

Row = dict[str, Any]


def build_doctor_rows(report: InstallationReport) -> list[Row]:
    """Build the rows of the report, in order of use in diagnosis."""
    found = report.to_json()
    return [
        *_iter_installation(found),
        *_iter_machine(found),
        *_iter_backends(found),
        *_iter_extras(found),
        *_iter_credentials(found),
        *_iter_catalog(found),
        *_iter_folders(found),
        *_iter_settings(found),
        *_iter_findings(found),
    ]


def _build_row(part: str, what: str, value: object, note: str | None = "") -> Row:
    return {"part": part, "what": what, "value": value, "note": note or ""}


def _iter_installation(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield versions."""
    host = found["host"]
    isolated = "in a virtual environment" if host["in_virtual_environment"] else ""
    yield _build_row("version", "gpuplan", found["gpuplan_version"], found["package_folder"])
    yield _build_row("version", "Python", host["python"], f"{host['implementation']} {isolated}".strip())
    for name, version in found["packages"].items():
        yield _build_row("version", name, version)


def _iter_machine(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield processor, memory, and the matching catalog entry."""
    host, driver, machine = found["host"], found["driver"], found["machine"]
    cores = f"{host['usable_cores'] or host['logical_cores']} usable cores"
    yield _build_row("machine", "system", host["system"])
    yield _build_row("machine", "processor", host["processor"], cores)
    yield _build_row("machine", "memory", f"{host['memory_bytes'] / GIB:.1f} GiB")
    yield _build_row("machine", "NVIDIA driver", driver and driver["driver"], driver and driver["name"])
    if machine is not None:
        taken = f"{machine['devices']:g}x {machine['accelerator']}"
        yield _build_row("machine", "in estimates", taken, machine["note"])


def _iter_backends(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the devices of each backend."""
    yield _build_row("backend", "KERAS_BACKEND", found["keras_backend"])
    for backend in found["backends"]:
        facts = backend["facts"]
        device = None if facts is None else f"{facts['count']}x {facts['platform']}"
        yield _build_row(
            "backend", backend["name"], device, backend["error"] if facts is None else facts["name"]
        )


def _iter_extras(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the installation state of each extra."""
    for extra in found["extras"]:
        state = "not installed" if extra["missing"] else "installed"
        yield _build_row("extra", extra["name"], state, extra["purpose"])


def _iter_credentials(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the locations of credentials."""
    for place in found["credentials"]:
        where = ", ".join(place["where"]) or "not found"
        yield _build_row("credentials", place["provider"], where, f"for {place['needed_for']}")


def _iter_catalog(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the age of prices."""
    catalog = found["catalog"]
    if catalog is None:
        yield _build_row("catalog", "folder", None, "unreadable: see the findings")
        return
    size = f"{catalog['prices']} prices, {catalog['accelerators']} accelerators"
    yield _build_row("catalog", "as of", catalog["as_of"], size)
    yield _build_row("catalog", "folder", catalog["folder"])
    yield _build_row("catalog", "refreshed prices", catalog["refreshed"])
    for group in catalog["ages"]:
        what = f"{group['provider']} {group['purchase'].replace('_', ' ')}"
        old = f"{group['over_90_days']} of {group['prices']} prices older than 90 days"
        yield _build_row("catalog", what, f"{group['oldest']} to {group['newest']}", old)


def _iter_folders(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield data folders and their sizes."""
    yield _build_row(
        "launch", "owner", found["owner"], "id of this installation, on the machines that it starts"
    )
    for folder in found["folders"]:
        held = f"{folder['files']} files, {folder['size_bytes'] / MIB:.1f} MiB"
        yield _build_row(
            "folder", folder["name"], folder["path"], held if folder["writable"] else "not writable"
        )


def _iter_settings(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the names of settings in use, without their values."""
    for name, origin in found["settings"].items():
        yield _build_row("setting", name, "set", f"in {origin}")


def _iter_findings(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield problems with their remedies."""
    for finding in found["findings"]:
        yield _build_row("finding", finding["level"], finding["text"], finding["hint"])
