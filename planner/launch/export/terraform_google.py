"""A machine of Compute Engine as blocks of Terraform."""

from __future__ import annotations

from typing import Any

from ..clouds.google.compute import TIMER_AFTER_S
from ..clouds.google.options import IMAGE
from ..clouds.google.zones import list_zones, machine_type
from .machine import build_machine_script, build_power_off_timer
from .task import ExportTask
from .terraform_parts import MANAGED_BY, MachineBlocks, escape_template


def build_google_machine(task: ExportTask) -> MachineBlocks:
    """Return a machine that Compute Engine deletes when its cap is over."""
    offer = task.offer
    kind, attached = machine_type(offer.instance_type)
    spot = offer.purchase == "spot"
    machine: dict[str, Any] = {
        "name": task.name,
        "zone": "${var.zone}",
        "machine_type": kind,
        "labels": MANAGED_BY,
        "boot_disk": {"auto_delete": True, "initialize_params": {"image": IMAGE, "size": task.disk_gb}},
        "network_interface": {"network": "default", "access_config": {}},
        "scheduling": {
            "provisioning_model": "SPOT" if spot else "STANDARD",
            "preemptible": spot,
            "automatic_restart": False,
            "on_host_maintenance": "TERMINATE",
            "max_run_duration": {"seconds": offer.cap_s},
            "instance_termination_action": "DELETE",
        },
        "metadata": {
            "block-project-ssh-keys": "TRUE",
            "install-nvidia-driver": "True",
            "startup-script": escape_template(
                build_machine_script(task, timer=build_power_off_timer(task, later_s=TIMER_AFTER_S))
            ),
        },
    }
    if attached:
        machine["guest_accelerator"] = [{"type": attached[0], "count": attached[1]}]
    zones = list_zones(offer.region)
    zone = {"type": "string", "default": zones[0], "description": f"One of {', '.join(zones)}"}
    return MachineBlocks(
        providers=("google",),
        settings={"region": offer.region},
        blocks={"variable": {"zone": zone}, "resource": {"google_compute_instance": {"train": machine}}},
        stops=(f"Compute Engine deletes the machine {offer.cap_s} s after its start (`max_run_duration`)",),
        limits=("a machine that has powered itself off keeps its disk, which is still billed",),
    )
