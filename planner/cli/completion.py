"""Shell completion from the packaged catalog, without network access."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["accelerators", "providers", "regions"]


def accelerators(incomplete: str) -> list[str]:
    """Return the accelerators whose name starts with the given text."""
    from ..offers.catalog import load_catalog

    return _match_prefix(incomplete, load_catalog().accelerators)


def providers(incomplete: str) -> list[str]:
    """Return the providers whose name starts with the given text."""
    from ..offers.catalog import load_catalog

    return _match_prefix(incomplete, load_catalog().providers)


def regions(incomplete: str) -> list[str]:
    """Return the regions whose name starts with the given text."""
    from ..offers.catalog import load_catalog

    return _match_prefix(incomplete, (region for _, region in load_catalog().costs.regions))


def _match_prefix(incomplete: str, names: Iterable[str]) -> list[str]:
    """Return the distinct names that start with the given text, sorted."""
    return sorted({name for name in names if name.startswith(incomplete)})
