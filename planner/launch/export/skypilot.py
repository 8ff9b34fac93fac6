"""Export to a task of SkyPilot (https://docs.skypilot.co/en/latest/reference/yaml-spec.html), and its launch."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import GpuplanError, UsageError
from ..clouds.google.zones import machine_type, runtime_version
from .joined_hosts import build_join_commands, describe_joining, require_gpu_hosts
from .skypilot_names import describe_ambiguity, find_skypilot_name
from .task import (
    BY_ACCELERATOR,
    EngineDocument,
    ExportTask,
    build_fetch_commands,
    build_install_commands,
    build_run_command,
)


def require_sky() -> str:
    """Return the path of the program; raise UsageError without one."""
    found = shutil.which("sky")
    if found is None:
        raise UsageError(
            "`--via skypilot`: no program `sky` on the PATH",
            hint="`pip install skypilot`, or `gpuplan export PLAN --to skypilot` for another computer",
        )
    return found


def launch_with_sky(task: Mapping[str, Any], file: Path) -> None:
    """Start a task with SkyPilot.

    Args:
        task: Result of `export_offer`.
        file: Path of the task's file.

    Raises:
        GpuplanError: SkyPilot failed.
    """
    done = subprocess.run([require_sky(), "launch", "-y", "-c", task["name"], str(file)], check=False)
    if done.returncode:
        raise GpuplanError(
            f"`sky launch` failed with exit code {done.returncode}: a machine may exist",
            hint=f"check with `sky status --refresh`, end it with `{task['stop']}`",
        )


PROVIDERS = ("aws", "gcp", "azure", "lambda", "runpod", "vast")
IDLE_MINUTES = 5
# docs.skypilot.co/en/latest/running-jobs/distributed-jobs.html
JOIN = build_join_commands(
    first='"$(echo "$SKYPILOT_NODE_IPS" | head -n1)"',
    hosts='"$SKYPILOT_NUM_NODES"',
    index='"$SKYPILOT_NODE_RANK"',
)


def build_skypilot_task(task: ExportTask) -> EngineDocument:
    """Return the task with machine, deadline and automatic stop when idle."""
    task.require_source("folder", "git", "image", engine="SkyPilot")
    require_gpu_hosts(task, engine="SkyPilot")
    kind, place = task.source
    document: dict[str, Any] = {"name": task.name}
    if task.hosts > 1:
        document["num_nodes"] = task.hosts
    if kind == "folder":
        document["workdir"] = place
    document["resources"] = _resources(task)
    setup = [*build_fetch_commands(task), *build_install_commands(task)]
    if setup:
        document["setup"] = "\n".join(["set -e", *setup]) + "\n"
    run = [*(JOIN if task.hosts > 1 else ()), *(["cd code"] if kind == "git" else [])]
    document["run"] = "\n".join([*run, build_run_command(task)]) + "\n"
    name, cap = task.name, task.offer.cap_s
    return EngineDocument(
        document=document,
        apply=f"sky launch -c {name} FILE",
        stop=f"sky down {name}",
        stops=(
            f"the script is stopped {cap} s after its start (`timeout` in `run`)",
            f"the machine is terminated after {IDLE_MINUTES} idle minutes (`autostop`)",
        ),
        open=_open(task),
    )


def _resources(task: ExportTask) -> dict[str, Any]:
    """Return the machine."""
    offer, provider = task.offer, task.provider
    infra = provider if offer.region == "any" else f"{provider}/{offer.region}"
    found: dict[str, Any] = {"infra": infra, **_machine(task)}
    if offer.purchase == "spot":
        found["use_spot"] = True
    if not offer.accelerator.startswith("TPU"):
        found["disk_size"] = task.disk_gb
    if task.source[0] == "image":
        found["image_id"] = f"docker:{task.container}"
    return {**found, "autostop": {"idle_minutes": IDLE_MINUTES, "down": True}}


def _machine(task: ExportTask) -> dict[str, Any]:
    """Return SkyPilot's names of the machine."""
    offer = task.offer
    if offer.accelerator.startswith("TPU"):
        runtime = runtime_version(offer.instance_type.removeprefix("tpu-"))
        return {
            "accelerators": f"{offer.instance_type}:1",
            "accelerator_args": {"runtime_version": runtime},
        }
    if task.provider in BY_ACCELERATOR or ":" in offer.instance_type:
        return {"accelerators": _accelerators(task)}
    if task.provider != "gcp":
        return {"instance_type": offer.instance_type}
    base, _ = machine_type(offer.instance_type)
    if offer.accelerator == "CPU":
        return {"instance_type": base}
    return {"instance_type": base, "accelerators": _accelerators(task)}


def _accelerators(task: ExportTask) -> str:
    """Return name and count of the devices."""
    offer = task.offer
    return f"{find_skypilot_name(task.provider, offer.instance_type, offer.accelerator)}:{task.devices}"


def _open(task: ExportTask) -> tuple[str, ...]:
    """Return the limits of SkyPilot."""
    found = [
        "autostop is a process on the machine: nothing at the cloud ends a machine whose process has died, or "
        "that was created while `sky` was killed; check with `sky status --refresh` and in the cloud's console",
        "setup (boot, installation) is not within the deadline",
        "the machine is not in gpuplan's ledger: `gpuplan ps` and `gpuplan reap` do not list it",
        "no checkpoints: files that the script does not save elsewhere are lost with the machine",
        *describe_joining(task),
        *describe_ambiguity(task.provider, task.offer.accelerator),
    ]
    if task.offer.purchase == "spot":
        found.append("a preempted spot machine is not replaced; `sky jobs launch FILE` does that")
    return tuple(found)
