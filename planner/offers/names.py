"""What people call an accelerator, and which row of the catalog they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ..errors import UsageError, near_names_hint
from .rows import CPU

__all__ = ["Names"]

_SEE_ALL = "gpuplan accelerators"
_VENDORS = ("nvidia", "tesla", "geforce", "quadro", "amd", "instinct", "google", "cloud", "aws")


@dataclass(frozen=True)
class Names:
    """The names of accelerators: canonical ones, other spellings, and names with several meanings.

    Args:
        canonical: The names of the rows; ``CPU`` always belongs to them.
        aliases: Other spelling to canonical name; ``X-*`` stands for any number (the size of a TPU slice).
        ambiguous: Name to the canonical names that answer to it.
    """

    canonical: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    ambiguous: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def _exact(self) -> dict[str, str]:
        """What is compared to canonical name; a canonical name wins over an alias."""
        aliases = {_key(alias): name for alias, name in self.aliases.items()}
        return aliases | {_key(name): name for name in (*self.canonical, CPU)}

    @cached_property
    def _several(self) -> dict[str, tuple[str, ...]]:
        """What is compared to all names that answer to it."""
        return {_key(name): candidates for name, candidates in self.ambiguous.items()}

    def resolve(self, name: str) -> str:
        """Return the canonical name.

        UsageError when the name is unknown (with near names) or has several meanings (with all of them).

        Example:
            >>> names = Names(("V100-16GB", "TPU-v3"), {"V100-SXM2-16GB": "V100-16GB", "v3-*": "TPU-v3"})
            >>> names.resolve("Tesla V100-SXM2-16GB"), names.resolve("v3-8"), names.resolve("tpu v3")
            ('V100-16GB', 'TPU-v3', 'TPU-v3')
        """
        slice_name = re.fullmatch(r"(.+)-\d+", name.strip())
        keys = [_key(name), *([_key(slice_name.group(1) + "-*")] if slice_name else [])]
        for key in keys:
            if key in self._exact:
                return self._exact[key]
        for key in keys:
            if key in self._several:
                raise _ambiguous(name, self._several[key])
        known = (*self.canonical, CPU, *(alias for alias in self.aliases if not alias.endswith("*")))
        raise UsageError(
            f"unknown accelerator `{name}` ({len(self.canonical)} accelerators in the catalog)",
            hint=near_names_hint(name, known, see_all=_SEE_ALL),
        )


def _ambiguous(name: str, candidates: tuple[str, ...]) -> UsageError:
    """Return the error for a name with several meanings."""
    choices = ", ".join(f"`{candidate}`" for candidate in candidates)
    return UsageError(f"accelerator `{name}` means {len(candidates)} things", hint=f"choose one of {choices}")


def _key(name: str) -> str:
    """Return what is compared: no case, no vendor's name in front, no blanks, hyphens or underscores.

    Example:
        >>> _key("NVIDIA GeForce RTX 3090") == _key("RTX-3090") == _key("rtx3090")
        True
    """
    words = [word for word in re.split(r"[\s_\-]+", name.strip().lower()) if word]
    while len(words) > 1 and words[0] in _VENDORS:
        words = words[1:]
    return "".join(words)
