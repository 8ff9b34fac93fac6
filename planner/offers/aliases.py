"""Accelerator names: their spellings, and the families that a short name stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

from ..errors import UsageError, near_names_hint
from .rows import CPU

_SEE_ALL = "gpuplan accelerators"
_VENDORS = ("nvidia", "tesla", "geforce", "quadro", "amd", "instinct", "google", "cloud", "aws")
# Parts of a canonical name that tell variants of one chip apart: memory size, form factor, dies on a board.
_VARIANT = re.compile(r"(-(\d+GB|PCIe|SXM\d*|NVL|board))+$")


@cache
def get_chip_name(accelerator: str) -> str:
    """Return the chip of an accelerator: its canonical name without memory size and form factor.

    Example:
        >>> get_chip_name("V100-SXM3-32GB"), get_chip_name("TPU-v3"), get_chip_name("TPU-v5e")
        ('V100', 'TPU-v3', 'TPU-v5e')
    """
    return _VARIANT.sub("", accelerator)


@dataclass(frozen=True)
class AcceleratorNames:
    """Names of accelerators: canonical names, aliases and families.

    Args:
        canonical: Names of the catalog rows; ``CPU`` is always included.
        aliases: Alias to canonical name; ``X-*`` matches any number (the size of a TPU slice).
        families: Name of several rows (`A100`) to their canonical names.
    """

    canonical: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    families: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def _known(self) -> dict[str, tuple[str, ...]]:
        """Canonical names by normalized spelling; a row takes precedence over an alias, that over a family."""
        aliases = {_normalize_name(alias): (name,) for alias, name in self.aliases.items()}
        families = {_normalize_name(name): names for name, names in self.families.items()}
        return families | aliases | {_normalize_name(name): (name,) for name in (*self.canonical, CPU)}

    def find(self, name: str) -> str | None:
        """Return the canonical name; None if the name is unknown or that of several rows."""
        found = self._find_all(name)
        return found[0] if len(found) == 1 else None

    def _find_all(self, name: str) -> tuple[str, ...]:
        return next((self._known[key] for key in _list_keys(name) if key in self._known), ())

    def resolve(self, name: str) -> str:
        """Return the canonical name.

        UsageError if the name is unknown (listing similar names) or that of several rows (listing them).

        Example:
            >>> aliases = {"V100-SXM2-16GB": "V100-16GB", "v3-*": "TPU-v3"}
            >>> names = AcceleratorNames(("V100-16GB", "TPU-v3"), aliases)
            >>> names.resolve("Tesla V100-SXM2-16GB"), names.resolve("v3-8"), names.resolve("tpu v3")
            ('V100-16GB', 'TPU-v3', 'TPU-v3')
        """
        found = self.resolve_all(name)
        if len(found) == 1:
            return found[0]
        choices = ", ".join(f"`{candidate}`" for candidate in found)
        raise UsageError(
            f"`{name}` names {len(found)} accelerators, and one is needed", hint=f"choose one of {choices}"
        )

    def resolve_all(self, name: str) -> tuple[str, ...]:
        """Return the canonical names of an accelerator or of a family.

        UsageError if the name is unknown (listing similar names).

        Example:
            >>> families = {"A100": ("A100-40GB", "A100-80GB")}
            >>> names = AcceleratorNames(("A100-40GB", "A100-80GB", "RTX3090"), {}, families)
            >>> names.resolve_all("a100"), names.resolve_all("A100 80"), names.resolve_all("3090")
            (('A100-40GB', 'A100-80GB'), ('A100-80GB',), ('RTX3090',))
        """
        found = self._find_all(name)
        if found:
            return found
        known = (*self.canonical, CPU, *self.families)
        aliases = {alias.lower(): meant for alias, meant in self.aliases.items() if not alias.endswith("*")}
        hint = near_names_hint(name, known, see_all=_SEE_ALL, aliases=aliases)
        raise UsageError(f"unknown accelerator `{name}`", hint=hint)


def _list_keys(name: str) -> list[str]:
    """Return the normalized spellings under which a name may be known, as far as people shorten it.

    They are its own, that of any slice size, a number without `RTX`, and a memory size without `GB`.
    """
    slice_name = re.fullmatch(r"(.+)-\d+", name.strip())
    key = _normalize_name(name)
    slices = [_normalize_name(slice_name[1] + "-*")] if slice_name else []
    return [key, *slices, f"rtx{key}", f"{key}gb"]


def _normalize_name(name: str) -> str:
    """Normalize a name for comparison: lower case without vendor prefix, blanks, hyphens and underscores.

    Example:
        >>> _normalize_name("NVIDIA GeForce RTX 3090") == _normalize_name("RTX-3090") == _normalize_name("rtx3090")
        True
    """
    words = [word for word in re.split(r"[\s_\-]+", name.strip().lower()) if word]
    while len(words) > 1 and words[0] in _VENDORS:
        words = words[1:]
    return "".join(words)
