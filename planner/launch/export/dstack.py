"""Export to a task of dstack (https://dstack.ai/docs/reference/dstack.yml/task/)."""

from __future__ import annotations

from typing import Any

from ..clouds.google.zones import machine_type
from .engine_names import DSTACK, describe_shared_name, find_engine_name
from .task import (
    BY_ACCELERATOR,
    EngineDocument,
    ExportTask,
    build_fetch_commands,
    build_install_commands,
    build_run_command,
)
from .tpu_slices import require_single_host

PROVIDERS = ("aws", "gcp", "azure", "lambda", "runpod", "vast")
_BACKENDS = {"vast": "vastai"}
IDLE_S = 300


def build_dstack_task(task: ExportTask) -> EngineDocument:
    """Return the task with machine, maximum price and maximum duration."""
    task.require_source("folder", "git", "image", engine="dstack")
    require_single_host(task, engine="dstack")
    kind, place = task.source
    offer = task.offer
    document: dict[str, Any] = {"type": "task", "name": task.name}
    if kind == "image" or task.image:
        document["image"] = task.container
    else:
        document["python"] = "3.12"
    if kind == "folder":
        document |= {"files": [f"{place}:code"], "working_dir": "code"}
    commands = [*build_fetch_commands(task), *build_install_commands(task), build_run_command(task)]
    document |= {
        "commands": commands,
        "resources": _resources(task),
        "backends": [_BACKENDS.get(task.provider, task.provider)],
        **_place(task),
        "spot_policy": "spot" if offer.purchase == "spot" else "on-demand",
        "max_price": float(offer.usd_per_hour) * PRICE_ROOM,
        "max_duration": f"{offer.cap_s}s",
        "idle_duration": f"{IDLE_S}s",
        "creation_policy": "reuse-or-create",
    }
    return EngineDocument(
        document=document,
        apply="dstack apply -f FILE",
        stop=f"dstack stop {task.name}",
        stops=(
            f"dstack's server stops the run {offer.cap_s} s after its start (`max_duration`)",
            f"it releases the machine {IDLE_S // 60} minutes after that (`idle_duration`)",
            "it takes no machine over 110 % of the planned price (`max_price`)",
        ),
        open=_open(task),
    )


PRICE_ROOM = 1.1  # dstack compares with its own prices, read on another day


def _resources(task: ExportTask) -> dict[str, Any]:
    """Return the required resources."""
    disk = {"disk": f"{task.disk_gb}GB.."}
    name = task.offer.accelerator
    if name == "CPU":
        return disk
    if name.startswith("TPU"):
        return {"gpu": f"{task.offer.instance_type.removeprefix('tpu-')}:1", **disk}
    return {"gpu": f"{find_engine_name(name, DSTACK, engine='dstack')}:{task.devices}", **disk}


def _place(task: ExportTask) -> dict[str, Any]:
    """Return region and machine, where the plan has the provider's names."""
    offer = task.offer
    found: dict[str, Any] = {} if offer.region == "any" else {"regions": [offer.region]}
    if task.provider in BY_ACCELERATOR or ":" in offer.instance_type or offer.accelerator.startswith("TPU"):
        return found
    kind = machine_type(offer.instance_type)[0] if task.provider == "gcp" else offer.instance_type
    return {**found, "instance_types": [kind]}


def _open(task: ExportTask) -> tuple[str, ...]:
    """Return the limits of dstack."""
    return (
        "dstack's server enforces the limits: while it is down, nothing ends the machine",
        "the machine is not in gpuplan's ledger: `gpuplan ps` and `gpuplan reap` do not list it",
        "no checkpoints: files that the script does not save elsewhere are lost with the machine",
        *(
            describe_shared_name(task.offer.accelerator, DSTACK, engine="dstack")
            if task.provider in BY_ACCELERATOR
            else ()
        ),
    )
