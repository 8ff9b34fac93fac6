"""Interface of price sources: their base class, the rows they yield, and the hardware that completes these.

To add a source, write a module with a subclass of `PriceSource`, and list it in
``gpuplan.offers.refresh.run``. A source only reads: the caller checks, completes and stores its
prices.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

from ..aliases import AcceleratorNames
from ..rows import CPU, Offer, OfferKey, Purchase, Status
from .http import FetchError

if TYPE_CHECKING:
    from .http import HttpClient


# Names of accelerators and machines in price lists, by list and kind.
NAMES: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    files(__package__).joinpath("names.toml").read_text(encoding="utf-8")
)
ANYWHERE = "*"  # the region of a part that covers all regions at once
LeftOutReason = Literal["unknown accelerator", "unknown machine", "no accelerator", "not for sale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPrice:
    """A price as listed by a provider, unprocessed."""

    # instance_type, region, purchase: identity of the offer
    instance_type: str
    region: str
    purchase: Purchase
    usd_per_hour: Decimal  # price of the whole machine, not checked to be positive [``currency``/h]
    currency: str = "USD"  # currency stated by the provider
    sku: str  # the provider's key of the price: SKU, meter or rate code
    url: str  # source of the price
    # accelerator, devices, vcpus, memory_gib: hardware; None if the source does not state it
    accelerator: str | None = None
    devices: float | None = None
    vcpus: float | None = None
    memory_gib: float | None = None
    is_accelerated: bool = False  # whether the source states an accelerator, known or not
    note: str = ""  # note for the user

    @property
    def key(self) -> OfferKey:
        """Instance type, region and purchase option: unique within a provider."""
        return (self.instance_type, self.region, self.purchase)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Item of a provider's list that becomes no offer."""

    # an accelerator that the catalog does not know; a machine, or a share of a GPU, whose accelerators cannot be
    # counted; a machine without an accelerator that is not in the catalog; nothing in stock
    reason: LeftOutReason
    name: str  # the provider's own name


@dataclass(frozen=True, slots=True, kw_only=True)
class PricePart:
    """A unit of acceptance: the prices of one response, or of one sequence of pages."""

    region: str  # region covered; ``*`` for all
    purchases: tuple[Purchase, ...]  # purchase options covered
    label: str  # name in messages

    def covers(self, region: str, purchase: str) -> bool:
        """Return whether a price of this region and purchase option belongs to the part."""
        return self.region in (ANYWHERE, region) and purchase in self.purchases


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRequest:
    """Inputs of the sources of a provider."""

    regions: tuple[str, ...] = ()  # regions with offers in the catalog
    environ: Mapping[str, str] = field(default_factory=dict)  # environment variables with credentials and keys
    # base URLs that replace the defaults, by source name
    endpoints: Mapping[str, str] = field(default_factory=dict)
    etags: Mapping[str, str] = field(default_factory=dict)  # ETags of what is known of a source, by URL

    def endpoint(self, source: str, default: str) -> str:
        """Return the base URL of a source: `GPUPLAN_ENDPOINT_AZURE_RETAIL` and similar, settings, or default."""
        variable = "GPUPLAN_ENDPOINT_" + source.upper().replace("-", "_")
        return (self.environ.get(variable) or self.endpoints.get(source) or default).rstrip("/")


class PriceSource:
    """Interface of a price source, made for the instance types of its provider.

    Attributes:
        name: Name in settings and messages, such as `azure-retail`.
        provider: Provider of the prices.
        label: Name of a part in messages; with `{}` for a region if each is a response of its own.
        purchases: Purchase options listed.
        is_complete: Whether the source lists everything that the provider offers, so that a missing offer is
            withdrawn.
        url: Address of the answer that was read, if it is one that may stay the same for long.
    """

    name: str
    provider: str
    label: str
    purchases: tuple[Purchase, ...] = ("on_demand", "spot")
    is_complete = True
    url = ""
    _rows: Sequence[ListedPrice | LeftOut] | None = None

    def __init__(self, specs: InstanceSpecs) -> None:
        self._specs = specs

    def missing(self, _request: RefreshRequest) -> str | None:
        """Return the missing requirement and how to meet it; None if the source is usable."""
        return None

    def parts(self, request: RefreshRequest) -> Sequence[PricePart]:
        """Return the parts that are accepted or rejected separately: one per region, or one for all regions."""
        regions = request.regions if "{}" in self.label else (ANYWHERE,)
        return [PricePart(region=one, purchases=self.purchases, label=self.label.format(one)) for one in regions]

    def read(self, part: PricePart, request: RefreshRequest, http: HttpClient) -> Iterable[ListedPrice | LeftOut]:
        """Return all prices of a part, and the items that the source omits; FetchError unless the response
        is complete and well-formed. A source with one response for all regions defines `read_all` instead.
        """
        if self._rows is None:
            self._rows = tuple(self.read_all(request, http))
        return [row for row in self._rows if isinstance(row, LeftOut) or part.region in (ANYWHERE, row.region)]

    def read_all(self, request: RefreshRequest, http: HttpClient) -> Iterable[ListedPrice | LeftOut]:
        """Return all prices of all regions, and the items that the source omits, like `read`."""
        raise NotImplementedError


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Convert errors of reading a document whose format is not the known one to FetchErrors."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise FetchError(f"unexpected format of {what}: {error!r}", kind="malformed") from error


def parse_decimal(value: object, *, what: str) -> Decimal:
    """Parse a price to Decimal; FetchError for anything but a finite number.

    Example:
        >>> parse_decimal("0.5260000000", what="price")
        Decimal('0.526')
    """
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        number = Decimal("nan")
    if isinstance(value, bool) or not number.is_finite():
        raise FetchError(f"{what} is not a number: {str(value)[:40]!r}", kind="malformed")
    normal = number.normalize()  # without trailing zeros and exponent
    return normal if int(normal.as_tuple().exponent) <= 0 else normal.quantize(Decimal(1))


def parse_float(text: object) -> float | None:
    """Parse the number at the start of a text (``61 GiB``, ``1,952 GiB``); None if there is none."""
    digits = str(text or "").split(" ")[0].replace(",", "")
    try:
        number = float(digits)
    except ValueError:
        return None
    return number if number > 0 else None


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
    """Instance types of one provider."""

    known: Mapping[str, InstanceSpec]  # hardware by instance type
    # accelerator by family, if all known sizes have the same one and no fractions of it, which price lists count
    # as one
    families: Mapping[str, str]
    names: AcceleratorNames  # accelerator names and aliases

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
