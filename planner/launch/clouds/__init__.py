"""Adapters, one package or module per provider, by name; an adapter is imported on first use."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from ...errors import UsageError, near_names_hint
from ...offers.aliases import PROVIDER_ALIASES
from ..core.clock import Clock
from ..core.cloud_adapter import Adapter

_HOME: dict[str, str] = {
    "local": ".local:LocalAdapter",
    "aws": ".aws.adapter:AwsAdapter",
    "gcp": ".google.adapter:GoogleAdapter",
    "azure": ".azure.adapter:AzureAdapter",
}
LAUNCHABLE = tuple(_HOME)


def create_adapter(provider: str, *, state_dir: Path, clock: Clock) -> Adapter:
    """Return a new adapter of a provider.

    Args:
        provider: Name of the provider in offers.
        state_dir: Folder of the adapter's state on this computer.
        clock: Clock.
    """
    if provider not in _HOME:
        hint = near_names_hint(provider, LAUNCHABLE, see_all="gpuplan launch --help", aliases=PROVIDER_ALIASES)
        raise UsageError(f"cannot launch on provider `{provider}`", hint=hint)
    module, _, name = _HOME[provider].partition(":")
    adapter: Adapter = getattr(import_module(module, __package__), name)(state_dir=state_dir, clock=clock)
    return adapter
