"""Permissions and network access of a plan's machines, shown before confirmation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib import import_module

from ..core.request import LaunchRequest

__all__ = ["describe_exposure"]

_OPTIONS = {
    "aws": "..clouds.aws.options:AwsOptions", "gcp": "..clouds.google.options:GoogleOptions",
    "azure": "..clouds.azure.options:AzureOptions",
}  # fmt: skip
_PAYERS = ("project", "subscription")


def describe_exposure(request: LaunchRequest, details: Mapping[str, str]) -> dict[str, str]:
    """Return account, image, bucket, open ports and identity of a request's machines; empty for this computer.

    Args:
        request: Request with the provider's options.
        details: Details of the first attempt: they name the account where no option does.
    """
    if request.provider not in _OPTIONS:
        return {}
    chosen = {**_defaults(request.provider), **request.options}
    is_slice = request.candidates[0].instance_type.startswith("tpu-")
    container = request.spec.source.startswith("image:")
    found = {
        "account": next((details[name] for name in _PAYERS if name in details), "that of the credentials"),
        "image": "the slice's own"
        if is_slice
        else chosen["image"] + (" (runs a container)" if container else ""),
        "bucket": chosen.get("bucket") or "none",
        "open ports": _ports(chosen),
        "identity": _identity(request.provider, chosen),
    }
    if chosen.get("scheduler_role"):
        found["ended by"] = chosen["scheduler_role"]
    return found


def _defaults(provider: str) -> dict[str, str]:
    """Return the defaults of a provider's options as text."""
    module, _, name = _OPTIONS[provider].partition(":")
    options = getattr(import_module(module, __package__), name)
    return {one.name: str(one.default) for one in fields(options) if one.default is not MISSING}


def _ports(chosen: Mapping[str, str]) -> str:
    """Describe the open ports."""
    if "ssh_from" in chosen:
        return f"22 from {chosen['ssh_from']}" if chosen["ssh_from"] else "none"
    return f"those of the network `{chosen['network']}`; none is added"


def _identity(provider: str, chosen: Mapping[str, str]) -> str:
    """Describe the machine's identity."""
    if provider == "azure":
        return "its own, with rights on itself only"
    return chosen.get("profile") or chosen.get("service_account") or "none"
