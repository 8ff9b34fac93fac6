"""What the shell offers after TAB: names of the packaged catalog, no network."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["accelerators", "providers", "regions"]


def accelerators(incomplete: str) -> list[str]:
    """Return the accelerators whose name begins so."""
    from ..offers.load import load_catalog

    return _beginning(incomplete, load_catalog().accelerators)


def providers(incomplete: str) -> list[str]:
    """Return the providers whose name begins so."""
    from ..offers.load import load_catalog

    return _beginning(incomplete, load_catalog().providers)


def regions(incomplete: str) -> list[str]:
    """Return the regions whose name begins so."""
    from ..offers.load import load_catalog

    return _beginning(incomplete, (region for _, region in load_catalog().costs.regions))


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    """Return the names that begin so, each once, in order."""
    return sorted({name for name in names if name.startswith(incomplete)})
