"""Permissions and network access of a plan's machines, and consent to machines without an external cap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib import import_module

from ...errors import NoAnswerError
from ..core.cloud_adapter import Adapter
from ..core.launch_plan import LaunchPlan
from ..core.request import LaunchRequest

__all__ = ["describe_exposure", "require_outer_cap"]


_OPTIONS = {
    "aws": "..clouds.aws.options:AwsOptions",
    "gcp": "..clouds.google.options:GoogleOptions",
    "azure": "..clouds.azure.options:AzureOptions",
}
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


HOURS_PER_DAY = 24


def require_outer_cap(plan: LaunchPlan, adapter: Adapter) -> None:
    """Raise NoAnswerError when an attempt has no cap at its provider and the user did not consent.

    Args:
        plan: The plan.
        adapter: Adapter of its provider.
    """
    if not adapter.remote or plan.request.guest_cap_only:
        return
    for attempt in plan.attempts:
        if any(layer.where == "cloud" for layer in attempt.layers):
            continue
        one = attempt.candidate
        terms = adapter.compute_cost_bounds(one, plan.request.options)
        hour = terms.max_usd_per_hour
        raise NoAnswerError(
            f"no layer outside the machine ends the {one.instance_type} in {attempt.zone or one.region}: if it "
            f"hangs before its own timer is set, it costs ${hour:.2f} an hour, ${hour * HOURS_PER_DAY:.2f} a day, "
            "until `gpuplan reap` or `stop`",
            hint=f"{terms.outer_cap or 'choose another offer'}; or consent: `--guest-cap-only`",
        )
