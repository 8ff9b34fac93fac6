"""Accelerator names: their spellings, the families that a short name stands for, and the names in kinetic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

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
    """Names of accelerators: canonical names, aliases and families."""

    canonical: tuple[str, ...]  # names of the catalog rows; ``CPU`` is always included
    # alias to canonical name; ``X-*`` matches any number (the size of a TPU slice)
    aliases: Mapping[str, str] = field(default_factory=dict)
    # name of several rows (`A100`) to their canonical names
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
        """Return the rows of a name as far as people shorten it.

        They are those of its normalized spelling, of any slice size, of a number without `RTX`, or of a memory
        size without `GB`.
        """
        slice_name, key = re.fullmatch(r"(.+)-\d+", name.strip()), _normalize_name(name)
        slices = [_normalize_name(slice_name[1] + "-*")] if slice_name else []
        keys = (key, *slices, f"rtx{key}", f"{key}gb")
        return next((self._known[key] for key in keys if key in self._known), ())

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


# Accelerators that names of kinetic without a type stand for (the Keras team's launcher on Google Cloud).
KINETIC_USUAL = {"gpu": "l4", "tpu": "v5litepod"}


@cache
def read_kinetic_table() -> Mapping[str, Mapping[str, Any]]:
    """Return kind, names and sizes of each accelerator that kinetic starts."""
    import tomllib

    table = tomllib.loads(files("gpuplan.offers").joinpath("kinetic.toml").read_text(encoding="utf-8"))
    return {name: {"kind": kind, **row} for kind, rows in table.items() for name, row in rows.items()}


@cache
def _list_kinetic_names() -> Mapping[str, tuple[str, int]]:
    """Return accelerator and number of devices by name, without the prefix of its kind."""
    found: dict[str, tuple[str, int]] = {}
    for accelerator, row in read_kinetic_table().items():
        for size, form in row["sizes"].items():
            machine = accelerator, int(size)
            found.setdefault(f"{row['kind']}:{size}", machine)
            for name in row["names"]:
                spellings = (f"{name}-{size}", f"{name}-{form}") if row["kind"] == "tpu" else (f"{name}x{size}",)
                found |= dict.fromkeys(spellings, machine)
        found |= {name: (accelerator, row.get("default", 1)) for name in row["names"]}
    return found | {kind: found[name] for kind, name in KINETIC_USUAL.items()}


def parse_kinetic_name(text: str) -> tuple[str, int] | None:
    """Return accelerator and number of devices of a name; None for a CPU, and for no name of this version.

    Example:
        >>> parse_kinetic_name("tpu-v5e-8"), parse_kinetic_name("gpu:a100x4:spot"), parse_kinetic_name("cpu")
        (('TPU-v5e', 8), ('A100-40GB', 4), None)
    """
    names, name = _list_kinetic_names(), text.strip().lower().removesuffix(":spot")
    kind = next((one for one in KINETIC_USUAL if name.startswith((f"{one}-", f"{one}:"))), "")
    return names.get(f"{kind}:{name[4:]}") or names.get(name[4:] if kind else name)


def find_kinetic_name(*, accelerator: str, devices: float, instance_type: str) -> str:
    """Return kinetic's name of a machine of Google Cloud; empty for one that it does not start.

    Example:
        >>> find_kinetic_name(accelerator="T4", devices=2, instance_type="n1-standard-8+2xT4")
        'gpu-t4x2'
        >>> find_kinetic_name(accelerator="L4", devices=1, instance_type="g2-standard-8")
        ''
    """
    row, size = read_kinetic_table().get(accelerator), f"{devices:g}"
    if row is None or size not in row["sizes"]:
        return ""
    if row["kind"] == "tpu":
        return f"tpu-{row['names'][0]}-{size}"
    is_started = instance_type.partition("+")[0] == row["sizes"][size]
    return f"gpu-{row['names'][0]}{'' if size == '1' else f'x{size}'}" if is_started else ""
