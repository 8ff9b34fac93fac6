"""Hardware of instance types whose price list gives only their name: known types and families."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..aliases import AcceleratorNames
from ..rows import CPU, Offer, Status
from .source import LeftOut, ListedPrice


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """Hardware of an instance type."""

    accelerator: str
    devices: float
    vcpus: float | None
    memory_gib: float | None
    status: Status = "active"
    complete: bool = True


@dataclass(frozen=True)
class InstanceSpecs:
    """Instance types of one provider.

    Args:
        known: Hardware by instance type.
        families: Accelerator by family, if all known sizes have the same one and no fractions of it, which price
            lists count as one.
        names: Accelerator names and aliases.
    """

    known: Mapping[str, InstanceSpec]
    families: Mapping[str, str]
    names: AcceleratorNames

    def find_instance_spec(self, listed: ListedPrice) -> InstanceSpec | LeftOut:
        """Return the hardware of a listed machine, or why the catalog leaves it out.

        A new member of a known family has the size listed by the provider and the family's accelerator.
        """
        name, family = listed.instance_type, parse_family(listed.instance_type)
        if name in self.known:
            return self.known[name]
        if not listed.is_accelerated and family not in self.families:
            return LeftOut(reason="no accelerator", name=name)
        stated = listed.accelerator
        accelerator = self.families.get(family) if stated is None else self.names.find(stated)
        if accelerator is None and stated is not None:
            return LeftOut(reason="unknown accelerator", name=stated)
        if accelerator is None or not listed.devices:
            return LeftOut(reason="unknown machine", name=name)
        return InstanceSpec(accelerator, listed.devices, listed.vcpus, listed.memory_gib)


def build_instance_specs(provider: str, offers: Iterable[Offer], names: AcceleratorNames) -> InstanceSpecs:
    """Build the instance types of a provider from catalog offers; historical rows are excluded."""
    known = {
        offer.instance_type: InstanceSpec(
            offer.accelerator, offer.devices, offer.vcpus, offer.memory_gib, offer.status, offer.complete
        )
        for offer in offers
        if offer.provider == provider and offer.status != "historical" and "@" not in offer.instance_type
    }
    by_family: dict[str, set[tuple[str, bool]]] = {}
    for instance_type, shape in known.items():
        if shape.accelerator != CPU:
            kind = (shape.accelerator, shape.devices >= 1)
            by_family.setdefault(parse_family(instance_type), set()).add(kind)
    families = {
        family: accelerator
        for family, kinds in by_family.items()
        if family
        for accelerator, is_whole in kinds
        if is_whole and len(kinds) == 1
    }
    return InstanceSpecs(known, families, names)


def parse_family(instance_type: str) -> str:
    """Return the family of an AWS instance type; empty for other providers' names, which do not identify the
    chip.

    Example:
        >>> parse_family("g6e.xlarge"), parse_family("Standard_NC6s_v3")
        ('g6e', '')
    """
    family, point, size = instance_type.partition(".")
    return family if point and size and " " not in family else ""
