"""Installation report as rows: part, item, value, note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..units import GIB, MIB
from .output import Column

DOCTOR_COLUMNS = (
    Column(key="part", header="part"),
    Column(key="what", header="what"),
    Column(key="value", header=""),
    Column(key="note", header=""),
)

Row = dict[str, Any]


def build_doctor_rows(found: Mapping[str, Any]) -> list[Row]:
    """Build the rows of the report, in order of use in diagnosis.

    Args:
        found: Report of schema `gpuplan.doctor/1`.
    """
    return [
        *_iter_installation(found),
        *_iter_machine(found),
        *_iter_backends(found),
        *(
            _build_row("extra", one["name"], "not installed" if one["missing"] else "installed", one["purpose"])
            for one in found["extras"]
        ),
        *(
            _build_row(
                "credentials", one["provider"], ", ".join(one["where"]) or "not found", f"for {one['needed_for']}"
            )
            for one in found["credentials"]
        ),
        *_iter_catalog(found),
        *_iter_folders(found),
        *(_build_row("setting", name, "set", f"in {origin}") for name, origin in found["settings"].items()),
        *(_build_row("finding", one["level"], one["text"], one["hint"]) for one in found["findings"]),
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
        note = backend["error"] if facts is None else facts["name"]
        yield _build_row("backend", backend["name"], device, note)


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
    whose = "id of this installation, on the machines that it starts"
    yield _build_row("launch", "owner", found["owner"], whose)
    for folder in found["folders"]:
        held = f"{folder['files']} files, {folder['size_bytes'] / MIB:.1f} MiB"
        note = held if folder["writable"] else "not writable"
        yield _build_row("folder", folder["name"], folder["path"], note)
