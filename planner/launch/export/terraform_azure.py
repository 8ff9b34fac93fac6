"""A machine of Azure as blocks of Terraform."""

from __future__ import annotations

from typing import Any

from ..clouds.azure.caps import build_end_command, build_timer_line, has_auto_shutdown
from ..clouds.azure.options import IMAGE, UNUSABLE_PUBLIC_KEY
from ..clouds.base import compute_spot_max_price
from .machine import build_machine_script
from .task import ExportTask
from .terraform_parts import Blocks, MachineBlocks, escape_template

SUBSCRIPTION = "subscription-filled-in-by-terraform"  # stands in a script for what Terraform alone knows
MINUTE_S = 60


def build_azure_machine(task: ExportTask) -> MachineBlocks:
    """Return a machine that may delete itself, and an order to deallocate it where Azure has one."""
    in_group = {"resource_group_name": "${azurerm_resource_group.train.name}", "name": task.name}
    placed = {**in_group, "location": task.offer.region}
    address = {
        "name": "machine",
        "subnet_id": "${azurerm_subnet.train.id}",
        "private_ip_address_allocation": "Dynamic",
        "public_ip_address_id": "${azurerm_public_ip.train.id}",
    }
    network = "${azurerm_virtual_network.train.name}"
    resource: Blocks = {
        "azurerm_resource_group": {"train": {"name": task.name, "location": task.offer.region}},
        "azurerm_virtual_network": {"train": {**placed, "address_space": ["10.0.0.0/24"]}},
        "azurerm_subnet": {
            "train": {**in_group, "virtual_network_name": network, "address_prefixes": ["10.0.0.0/24"]}
        },
        # a Standard address lets nothing in unless a rule allows it
        "azurerm_public_ip": {"train": {**placed, "sku": "Standard", "allocation_method": "Static"}},
        "azurerm_network_interface": {"train": {**placed, "ip_configuration": address}},
        "azurerm_linux_virtual_machine": {"train": {**placed, **_build_machine(task)}},
        "azurerm_role_assignment": {
            "end": {
                "scope": "${azurerm_linux_virtual_machine.train.id}",
                "role_definition_name": "Virtual Machine Contributor",
                "principal_id": "${azurerm_linux_virtual_machine.train.identity[0].principal_id}",
            }
        },
    }
    stops: tuple[str, ...] = ()
    limits: tuple[str, ...] = (
        "a machine that has ended itself leaves network and address, which are billed: `terraform destroy`",
    )
    providers: tuple[str, ...] = ("azurerm",)
    if has_auto_shutdown(task.offer.cap_s):
        resource |= _build_auto_shutdown(task)
        providers = ("azurerm", "time")
        stops = (f"Azure's auto-shutdown deallocates the machine {task.offer.cap_s} s after its creation",)
    else:
        limits += (
            "Azure's auto-shutdown works from 30 minutes to 23 hours only: no cap outside the machine",
        )
    return MachineBlocks(
        providers=providers,
        settings={"features": {}},
        blocks={
            "data": {"azurerm_subscription": {"own": {}}},
            "locals": {"script": _build_script(task)},
            "resource": resource,
        },
        stops=stops,
        limits=limits,
    )


def _build_script(task: ExportTask) -> str:
    """Return the script, in which Terraform puts the subscription."""
    path = (
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{task.name}/providers/Microsoft.Compute/"
        f"virtualMachines/{task.name}"
    )
    timer, end = build_timer_line(path, after_s=task.offer.cap_s), build_end_command(path)
    script = escape_template(build_machine_script(task, timer=timer, end=end))
    return script.replace(SUBSCRIPTION, "${data.azurerm_subscription.own.subscription_id}")


def _build_machine(task: ExportTask) -> dict[str, Any]:
    offer = task.offer
    machine: dict[str, Any] = {
        "size": offer.instance_type,
        "admin_username": "gpuplan",
        "admin_ssh_key": {"username": "gpuplan", "public_key": UNUSABLE_PUBLIC_KEY},
        "network_interface_ids": ["${azurerm_network_interface.train.id}"],
        "os_disk": {
            "caching": "ReadWrite",
            "storage_account_type": "StandardSSD_LRS",
            "disk_size_gb": task.disk_gb,
        },
        "source_image_reference": dict(
            zip(("publisher", "offer", "sku", "version"), IMAGE.split(":"), strict=True)
        ),
        "custom_data": "${base64encode(local.script)}",
        "identity": {"type": "SystemAssigned"},
    }
    if offer.purchase == "spot":
        price = float(compute_spot_max_price(offer.usd_per_hour))
        machine |= {"priority": "Spot", "eviction_policy": "Delete", "max_bid_price": price}
    return machine


def _build_auto_shutdown(task: ExportTask) -> Blocks:
    """Return the order to deallocate the machine at the time of day at which its cap is over."""
    return {
        "time_offset": {
            "cap": {
                "offset_seconds": task.offer.cap_s + MINUTE_S,  # a time of day is cut to its minute
                "triggers": {"machine": "${azurerm_linux_virtual_machine.train.id}"},
            }
        },
        "azurerm_dev_test_global_vm_shutdown_schedule": {
            "cap": {
                "virtual_machine_id": "${azurerm_linux_virtual_machine.train.id}",
                "location": task.offer.region,
                "enabled": True,
                "daily_recurrence_time": '${formatdate("hhmm", time_offset.cap.rfc3339)}',
                "timezone": "UTC",
                "notification_settings": {"enabled": False},
            }
        },
    }
