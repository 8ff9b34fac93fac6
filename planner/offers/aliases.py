"""Accelerator names: aliases, ambiguous names and their canonical spelling."""

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
    """Names of accelerators: canonical names, aliases and ambiguous names.

    Args:
        canonical: Names of the catalog rows; ``CPU`` is always included.
        aliases: Alias to canonical name; ``X-*`` matches any number (the size of a TPU slice).
        ambiguous: Ambiguous name to its possible canonical names.
    """

    canonical: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    ambiguous: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def _exact(self) -> dict[str, str]:
        """Canonical names by normalized spelling; canonical names take precedence over aliases."""
        aliases = {_normalize_name(alias): name for alias, name in self.aliases.items()}
        return aliases | {_normalize_name(name): name for name in (*self.canonical, CPU)}

    @cached_property
    def _several(self) -> dict[str, tuple[str, ...]]:
        """Candidates of ambiguous names by normalized spelling."""
        return {_normalize_name(name): candidates for name, candidates in self.ambiguous.items()}

    def find(self, name: str) -> str | None:
        """Return the canonical name; None if the name is unknown or ambiguous."""
        return next((self._exact[key] for key in _list_keys(name) if key in self._exact), None)

    def resolve(self, name: str) -> str:
        """Return the canonical name.

        UsageError if the name is unknown (listing similar names) or ambiguous (listing all meanings).

        Example:
            >>> aliases = {"V100-SXM2-16GB": "V100-16GB", "v3-*": "TPU-v3"}
            >>> names = AcceleratorNames(("V100-16GB", "TPU-v3"), aliases)
            >>> names.resolve("Tesla V100-SXM2-16GB"), names.resolve("v3-8"), names.resolve("tpu v3")
            ('V100-16GB', 'TPU-v3', 'TPU-v3')
        """
        found = self.find(name)
        if found is not None:
            return found
        for key in _list_keys(name):
            if key in self._several:
                choices = ", ".join(f"`{candidate}`" for candidate in self._several[key])
                raise UsageError(f"accelerator `{name}` is ambiguous", hint=f"choose one of {choices}")
        known = (*self.canonical, CPU, *(alias for alias in self.aliases if not alias.endswith("*")))
        raise UsageError(
            f"unknown accelerator `{name}` ({len(self.canonical)} accelerators in the catalog)",
            hint=near_names_hint(name, known, see_all=_SEE_ALL),
        )


def _list_keys(name: str) -> list[str]:
    """Return the normalized spellings under which a name may be known: its own, and that of any slice size."""
    slice_name = re.fullmatch(r"(.+)-\d+", name.strip())
    return [_normalize_name(name), *([_normalize_name(slice_name.group(1) + "-*")] if slice_name else [])]


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
