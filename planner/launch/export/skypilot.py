"""A handover as a task of SkyPilot (https://docs.skypilot.co/en/latest/reference/yaml-spec.html)."""

from __future__ import annotations

from typing import Any

from ..clouds.google.zones import machine_type, runtime_version
from .engine_names import SKYPILOT, engine_name
from .shell import fetching, installing, running
from .task import Export, Handover

__all__ = ["PROVIDERS", "skypilot"]

PROVIDERS = ("aws", "gcp", "azure", "lambda", "runpod", "vast")
IDLE_MINUTES = 5
_BY_ACCELERATOR = ("runpod", "vast")  # their machines have no names of their own in our catalog


def skypilot(handover: Handover) -> Export:
    """Return the task: that machine, this deadline, and an automatic end when nothing runs any more."""
    handover.require_source("folder", "git", "image", engine="SkyPilot")
    kind, place = handover.source
    document: dict[str, Any] = {"name": handover.name}
    if kind == "folder":
        document["workdir"] = place
    document["resources"] = _resources(handover)
    setup = [*fetching(handover), *installing(handover)]
    if setup:
        document["setup"] = "\n".join(["set -e", *setup]) + "\n"
    run = ["cd code"] if kind == "git" else []
    document["run"] = "\n".join([*run, running(handover)]) + "\n"
    name, cap = handover.name, handover.offer.cap_s
    return Export(
        document=document, apply=f"sky launch -c {name} FILE", stop=f"sky down {name}",
        stops=(
            f"the script is ended {cap} s after it began (`timeout` in `run`)",
            f"the machine is taken down {IDLE_MINUTES} minutes after nothing runs on it (`autostop`)",
        ),
        open=_open(handover),
    )  # fmt: skip


def _resources(handover: Handover) -> dict[str, Any]:
    """Return the machine."""
    offer, provider = handover.offer, handover.provider
    infra = provider if offer.region == "any" else f"{provider}/{offer.region}"
    found: dict[str, Any] = {"infra": infra, **_machine(handover)}
    if offer.purchase == "spot":
        found["use_spot"] = True
    if not offer.accelerator.startswith("TPU"):
        found["disk_size"] = handover.disk_gb
    if handover.source[0] == "image":
        found["image_id"] = f"docker:{handover.container}"
    return {**found, "autostop": {"idle_minutes": IDLE_MINUTES, "down": True}}


def _machine(handover: Handover) -> dict[str, Any]:
    """Return what SkyPilot calls the machine."""
    offer = handover.offer
    if offer.accelerator.startswith("TPU"):
        runtime = runtime_version(offer.instance_type.removeprefix("tpu-"))
        return {
            "accelerators": f"{offer.instance_type}:1",
            "accelerator_args": {"runtime_version": runtime},
        }
    if handover.provider in _BY_ACCELERATOR or ":" in offer.instance_type:
        return {"accelerators": _accelerators(handover)}
    if handover.provider != "gcp":
        return {"instance_type": offer.instance_type}
    base, _ = machine_type(offer.instance_type)
    if offer.accelerator == "CPU":
        return {"instance_type": base}
    return {"instance_type": base, "accelerators": _accelerators(handover)}


def _accelerators(handover: Handover) -> str:
    """Return name and number of the devices."""
    return f"{engine_name(handover.offer.accelerator, SKYPILOT, engine='SkyPilot')}:{handover.devices}"


def _open(handover: Handover) -> tuple[str, ...]:
    """Return what SkyPilot does not do."""
    found = [
        "autostop is a process on the machine: nothing at the cloud ends a machine whose process has died, or "
        "that was made while `sky` was killed; look with `sky status --refresh` and in the cloud's own console",
        "setup (boot, installation) is not within the deadline",
        "gpuplan's ledger does not know the machine: `gpuplan ps` and `gpuplan reap` do not see it",
        "no checkpoints are kept: what the script does not save itself is lost with the machine",
    ]
    if handover.offer.purchase == "spot":
        found.append("a spot machine that is taken back is not replaced: `sky jobs launch FILE` does that")
    return tuple(found)
