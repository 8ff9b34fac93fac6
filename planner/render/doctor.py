"""An installation's report as rows: part, what, value, note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..units import GIB, MIB
from .output import Column

if TYPE_CHECKING:
    from ..doctor.report import Doctor

__all__ = ["DOCTOR_COLUMNS", "doctor_rows"]

DOCTOR_COLUMNS = (
    Column(key="part", header="part"),
    Column(key="what", header="what"),
    Column(key="value", header=""),
    Column(key="note", header=""),
)

Row = dict[str, Any]


def doctor_rows(report: Doctor) -> list[Row]:
    """Return the report in the order in which a helper reads it."""
    found = report.to_json()
    return [
        *_installation(found), *_machine(found), *_backends(found), *_extras(found), *_credentials(found),
        *_catalog(found), *_folders(found), *_settings(found), *_findings(found),
    ]  # fmt: skip


def _row(part: str, what: str, value: object, note: str | None = "") -> Row:
    return {"part": part, "what": what, "value": value, "note": note or ""}


def _installation(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield versions."""
    host = found["host"]
    isolated = "in a virtual environment" if host["in_virtual_environment"] else ""
    yield _row("version", "gpuplan", found["gpuplan_version"], found["package_folder"])
    yield _row("version", "Python", host["python"], f"{host['implementation']} {isolated}".strip())
    for name, version in found["packages"].items():
        yield _row("version", name, version)


def _machine(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield processor, memory, and what the machine counts as."""
    host, driver, machine = found["host"], found["driver"], found["machine"]
    cores = f"{host['usable_cores'] or host['logical_cores']} usable cores"
    yield _row("machine", "system", host["system"])
    yield _row("machine", "processor", host["processor"], cores)
    yield _row("machine", "memory", f"{host['memory_bytes'] / GIB:.1f} GiB")
    yield _row("machine", "NVIDIA driver", driver and driver["driver"], driver and driver["name"])
    if machine is not None:
        taken = f"{machine['devices']:g}x {machine['accelerator']}"
        yield _row("machine", "in estimates", taken, machine["note"])


def _backends(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield what each backend computes on."""
    yield _row("backend", "KERAS_BACKEND", found["keras_backend"])
    for backend in found["backends"]:
        facts = backend["facts"]
        device = None if facts is None else f"{facts['count']}x {facts['platform']}"
        yield _row("backend", backend["name"], device, backend["error"] if facts is None else facts["name"])


def _extras(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield which extras are installed."""
    for extra in found["extras"]:
        state = "not installed" if extra["missing"] else "installed"
        yield _row("extra", extra["name"], state, extra["purpose"])


def _credentials(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield where credentials were found."""
    for place in found["credentials"]:
        where = ", ".join(place["where"]) or "not found"
        yield _row("credentials", place["provider"], where, f"for {place['needed_for']}")


def _catalog(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield how old prices are."""
    catalog = found["catalog"]
    if catalog is None:
        yield _row("catalog", "folder", None, "cannot be read: see the findings")
        return
    size = f"{catalog['prices']} prices, {catalog['accelerators']} accelerators"
    yield _row("catalog", "as of", catalog["as_of"], size)
    yield _row("catalog", "folder", catalog["folder"])
    yield _row("catalog", "refreshed prices", catalog["refreshed"])
    for group in catalog["ages"]:
        what = f"{group['provider']} {group['purchase'].replace('_', ' ')}"
        old = f"{group['over_90_days']} of {group['prices']} prices older than 90 days"
        yield _row("catalog", what, f"{group['oldest']} to {group['newest']}", old)


def _folders(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield where things are kept."""
    for folder in found["folders"]:
        held = f"{folder['files']} files, {folder['size_bytes'] / MIB:.1f} MiB"
        yield _row("folder", folder["name"], folder["path"], held if folder["writable"] else "not writable")


def _settings(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield which settings are set; never to what."""
    for name, origin in found["settings"].items():
        yield _row("setting", name, "set", f"in {origin}")


def _findings(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield what is worth mending."""
    for finding in found["findings"]:
        yield _row("finding", finding["level"], finding["text"], finding["hint"])
