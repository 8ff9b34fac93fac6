"""Installation report as rows: part, item, value, note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..units import GIB, MIB
from .output import make_columns

DOCTOR_COLUMNS = make_columns(part="part", what="what", value="", note="")


def build_doctor_rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Build the rows of a report of schema `gpuplan.doctor/1`, in order of use in diagnosis."""
    parts = (_iter_installation, _iter_catalog, _iter_rest)
    keys = [column.key for column in DOCTOR_COLUMNS]
    return [dict(zip(keys, (*row[:3], row[3] or ""), strict=True)) for part in parts for row in part(found)]


_Rows = Iterator[tuple[str, str, object, str | None]]


def _iter_installation(found: Mapping[str, Any]) -> _Rows:
    """Yield versions, processor, memory, the matching catalog entry, each backend, extras and credentials."""
    host, driver, machine = found["host"], found["driver"], found["machine"]
    isolated = "in a virtual environment" if host["in_virtual_environment"] else ""
    yield "version", "gpuplan", found["gpuplan_version"], found["package_folder"]
    yield "version", "Python", host["python"], f"{host['implementation']} {isolated}".strip()
    for name, version in found["packages"].items():
        yield "version", name, version, ""
    cores = f"{host['usable_cores'] or host['logical_cores']} usable cores"
    yield "machine", "system", host["system"], ""
    yield "machine", "processor", host["processor"], cores
    yield "machine", "memory", f"{host['memory_bytes'] / GIB:.1f} GiB", ""
    yield "machine", "NVIDIA driver", driver and driver["driver"], driver and driver["name"]
    if machine is not None:
        yield "machine", "in estimates", f"{machine['devices']:g}x {machine['accelerator']}", machine["note"]
    yield "backend", "KERAS_BACKEND", found["keras_backend"], ""
    for backend in found["backends"]:
        facts = backend["facts"]
        device = None if facts is None else f"{facts['count']}x {facts['platform']}"
        yield "backend", backend["name"], device, backend["error"] if facts is None else facts["name"]
    for one in found["extras"]:
        yield "extra", one["name"], "not installed" if one["missing"] else "installed", one["purpose"]
    for one in found["credentials"]:
        yield "credentials", one["provider"], ", ".join(one["where"]) or "not found", f"for {one['needed_for']}"


def _iter_catalog(found: Mapping[str, Any]) -> _Rows:
    """Yield the age of prices."""
    catalog = found["catalog"]
    if catalog is None:
        yield "catalog", "folder", None, "unreadable: see the findings"
        return
    size = f"{catalog['prices']} prices, {catalog['accelerators']} accelerators"
    yield "catalog", "as of", catalog["as_of"], size
    yield "catalog", "folder", catalog["folder"], ""
    yield "catalog", "refreshed prices", catalog["refreshed"], ""
    for group in catalog["ages"]:
        what = f"{group['provider']} {group['purchase'].replace('_', ' ')}"
        old = f"{group['over_90_days']} of {group['prices']} prices older than 90 days"
        yield "catalog", what, f"{group['oldest']} to {group['newest']}", old


def _iter_rest(found: Mapping[str, Any]) -> _Rows:
    """Yield data folders and their sizes, settings and findings."""
    yield "launch", "owner", found["owner"], "id of this installation, on the machines that it starts"
    for folder in found["folders"]:
        held = f"{folder['files']} files, {folder['size_bytes'] / MIB:.1f} MiB"
        yield "folder", folder["name"], folder["path"], held if folder["writable"] else "not writable"
    for name, origin in found["settings"].items():
        yield "setting", name, "set", f"in {origin}"
    for one in found["findings"]:
        yield "finding", one["level"], one["text"], one["hint"]
