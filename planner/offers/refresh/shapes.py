"""What a machine is made of, when a price list says only its name: known sizes and families."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...errors import UsageError
from ..names import Names
from ..rows import CPU, Offer, Status
from .source import Listed

__all__ = ["Shape", "Shapes", "family_of", "shapes_of"]


@dataclass(frozen=True, slots=True)
class Shape:
    """An instance type without its price."""

    accelerator: str
    devices: float
    vcpus: float | None
    memory_gib: float | None
    status: Status = "active"
    complete: bool = True


@dataclass(frozen=True)
class Shapes:
    """The instance types of one provider.

    Args:
        known: Instance type to what it is made of.
        families: Family to its accelerator, where all known sizes have the same.
        names: Spellings of accelerators.
    """

    known: Mapping[str, Shape]
    families: Mapping[str, str]
    names: Names

    def is_of_interest(self, listed: Listed) -> bool:
        """Return whether a catalog of accelerators wants to hear of a machine: it has one, or is in it already."""
        return (
            listed.is_accelerated
            or listed.instance_type in self.known
            or family_of(listed.instance_type) in self.families
        )

    def shape_of(self, listed: Listed) -> Shape | None:
        """Return what a listed machine is made of; None when its accelerator is unknown.

        The size of a new member of a known family is what the vendor lists, and its accelerator the family's.
        """
        shape = self.known.get(listed.instance_type)
        if shape is not None:
            return shape
        accelerator = self._accelerator(listed)
        if accelerator is None or not listed.devices:
            return None
        return Shape(accelerator, listed.devices, listed.vcpus, listed.memory_gib)

    def _accelerator(self, listed: Listed) -> str | None:
        """Return the accelerator that the source names, or that of the family."""
        if listed.accelerator is None:
            return self.families.get(family_of(listed.instance_type))
        try:
            return self.names.resolve(listed.accelerator)
        except UsageError:
            return None


def shapes_of(provider: str, offers: Iterable[Offer], names: Names) -> Shapes:
    """Return the machines of a provider in a catalog; rows of the past are not among them."""
    known = {
        offer.instance_type: Shape(
            offer.accelerator, offer.devices, offer.vcpus, offer.memory_gib, offer.status, offer.complete
        )
        for offer in offers
        if offer.provider == provider and offer.status != "historical" and "@" not in offer.instance_type
    }
    by_family: dict[str, set[str]] = {}
    for instance_type, shape in known.items():
        if shape.accelerator != CPU:
            by_family.setdefault(family_of(instance_type), set()).add(shape.accelerator)
    families = {
        family: next(iter(chips)) for family, chips in by_family.items() if family and len(chips) == 1
    }
    return Shapes(known, families, names)


def family_of(instance_type: str) -> str:
    """Return the family of an AWS instance type; empty for names of others, whose sizes do not say the chip.

    Example:
        >>> family_of("g6e.xlarge"), family_of("Standard_NC6s_v3")
        ('g6e', '')
    """
    family, point, size = instance_type.partition(".")
    return family if point and size and " " not in family else ""
