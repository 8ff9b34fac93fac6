"""Adapters, one package or module per provider, by name; an adapter is imported on first use."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from ...errors import UsageError, near_names_hint
from ...offers.clouds import CLOUDS, PROVIDER_ALIASES
from ..core.clock import Clock
from ..core.cloud_adapter import Adapter

LAUNCHABLE = tuple(cloud.name for cloud in CLOUDS if cloud.adapter)


def create_adapter(provider: str, *, state_dir: Path, clock: Clock) -> Adapter:
    """Return a new adapter of a provider, by its name in offers; `state_dir` keeps its state on this computer."""
    home = next((cloud.adapter for cloud in CLOUDS if cloud.name == provider), "")
    if not home:
        hint = near_names_hint(provider, LAUNCHABLE, see_all="gpuplan launch --help", aliases=PROVIDER_ALIASES)
        raise UsageError(f"cannot launch on provider `{provider}`", hint=hint)
    module, _, name = home.partition(":")
    adapter: Adapter = getattr(import_module(module, __package__), name)(state_dir=state_dir, clock=clock)
    return adapter
