"""Options of a launch on Azure: `--option NAME=VALUE`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ....errors import UsageError
from ..base import require_disk_size, require_known_options, require_narrow_network

# Ubuntu with NVIDIA's driver and CUDA: https://learn.microsoft.com/azure/virtual-machines/azure-hpc-vm-images
IMAGE = "microsoft-dsvm:ubuntu-hpc:2204:latest"
# Azure requires a key for Linux machines. This one has no known private key: its point is the first SHA-256 of
# "gpuplan: nobody's key N" that lies on the curve.
UNUSABLE_PUBLIC_KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEuhoKbu9WB3FgD9fec3LuwZ6XeqNLGPrgzZJ4K2mN4G nobody"
)
PARTS_OF_AN_IMAGE = 4
SUBSCRIPTION = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureOptions:
    """Options and their defaults.

    Args:
        subscription: Subscription that pays; default `AZURE_SUBSCRIPTION_ID`.
        zones: Availability zones to try in turn, by number: `123`; empty: Azure chooses.
        image: `PUBLISHER:OFFER:SKU:VERSION`, or the id of a custom image.
        disk_gb: Size of the disk [GB].
        ssh_from: Addresses that may reach port 22 (CIDR); empty: no open port.
        ssh_key: Public key of the user `gpuplan`; empty: no login.
    """

    subscription: str
    zones: str = ""
    image: str = IMAGE
    disk_gb: str = "100"
    ssh_from: str = ""
    ssh_key: str = ""


def parse_options(options: Mapping[str, str], *, subscription: str | None) -> AzureOptions:
    """Return validated options.

    Args:
        options: Options as typed.
        subscription: Subscription of the environment.

    Raises:
        UsageError: An option is unknown, malformed, or lacks another; or the subscription is missing.
    """
    require_known_options(options, [field.name for field in fields(AzureOptions)], provider="azure")
    payer = options.get("subscription") or subscription or ""
    if not SUBSCRIPTION.fullmatch(payer):
        raise UsageError(
            f"`{payer}` is not the id of a subscription"
            if payer
            else "no subscription is given to pay for the machine",
            hint="`-O subscription=ID`, or set AZURE_SUBSCRIPTION_ID (`az account show --query id`)",
        )
    chosen = AzureOptions(**{**options, "subscription": payer.lower()})
    _require_readable(chosen)
    return chosen


def _require_readable(chosen: AzureOptions) -> None:
    """Raise UsageError for a malformed option, or one that lacks another."""
    require_disk_size(chosen.disk_gb)
    if not set(chosen.zones) <= set("123"):
        raise UsageError(f"`--option zones={chosen.zones}`: Azure has the zones 1, 2 and 3", hint="try 123")
    parts = chosen.image.split(":")
    if not chosen.image.startswith("/subscriptions/") and len(parts) != PARTS_OF_AN_IMAGE:
        raise UsageError(
            f"`--option image={chosen.image}` is neither PUBLISHER:OFFER:SKU:VERSION nor an image's id",
            hint=f"the default is {IMAGE}",
        )
    if chosen.ssh_key and not chosen.ssh_key.startswith(("ssh-rsa ", "ssh-ed25519 ")):
        raise UsageError(
            "`--option ssh_key` is not a public key", hint='try `-O ssh_key="$(cat ~/.ssh/id_ed25519.pub)"`'
        )
    if chosen.ssh_from:
        if not chosen.ssh_key:
            raise UsageError("`--option ssh_from` needs `--option ssh_key` too", hint="add `-O ssh_key=…`")
        require_narrow_network(chosen.ssh_from, option="ssh_from")
