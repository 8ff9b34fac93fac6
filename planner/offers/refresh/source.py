"""Interface of price sources: the protocol, the rows they yield, and their errors.

To add a source, write a module with a class that has ``name``, ``provider``, ``missing``, ``parts`` and
``read``, and list it in ``gpuplan.offers.refresh.jobs.build_sources``. A source only reads: the caller checks,
completes and stores its prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Literal, Protocol

from ..rows import Purchase
from .errors import FetchError

if TYPE_CHECKING:
    from .http import HttpClient

ANYWHERE = "*"  # the region of a part that covers all regions at once
LeftOutReason = Literal["unknown accelerator", "unknown machine", "no accelerator", "not for sale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPrice:
    """A price as listed by a provider, unprocessed.

    Args:
        instance_type, region, purchase: Identity of the offer.
        usd_per_hour: Price of the whole machine, not checked to be positive [``currency``/h].
        currency: Currency stated by the provider.
        sku: The provider's key of the price: SKU, meter or rate code.
        url: Source of the price.
        accelerator, devices, vcpus, memory_gib: Hardware; None if the source does not state it.
        is_accelerated: Whether the source states an accelerator, known or not.
        note: Note for the user.
    """

    instance_type: str
    region: str
    purchase: Purchase
    usd_per_hour: Decimal
    currency: str = "USD"
    sku: str
    url: str
    accelerator: str | None = None
    devices: float | None = None
    vcpus: float | None = None
    memory_gib: float | None = None
    is_accelerated: bool = False
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Instance type, region and purchase option: unique within a provider."""
        return (self.instance_type, self.region, self.purchase)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Item of a provider's list that becomes no offer.

    Args:
        reason: An accelerator that the catalog does not know; a machine, or a share of a GPU, whose accelerators
            cannot be counted; a machine without an accelerator that is not in the catalog; nothing in stock.
        name: The provider's own name.
    """

    reason: LeftOutReason
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PricePart:
    """A unit of acceptance: the prices of one response, or of one sequence of pages.

    Args:
        region: Region covered; ``*`` for all.
        purchases: Purchase options covered.
        label: Name in messages.
    """

    region: str
    purchases: tuple[Purchase, ...]
    label: str

    def covers(self, region: str, purchase: str) -> bool:
        """Return whether a price of this region and purchase option belongs to the part."""
        return self.region in (ANYWHERE, region) and purchase in self.purchases


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRequest:
    """A refresh as requested by the user.

    Args:
        regions: Regions to refresh; empty for the source's default.
        known_regions: Regions with offers in the catalog, meant by ``--region all``.
        environ: Environment variables with credentials and keys.
        endpoints: Base URLs that replace the defaults, by source name.
    """

    regions: tuple[str, ...] = ()
    known_regions: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    endpoints: Mapping[str, str] = field(default_factory=dict)

    def endpoint(self, source: str, default: str) -> str:
        """Return the base URL of a source: from `GPUPLAN_ENDPOINT_AWS_BULK` and similar, settings, or
        default.
        """
        variable = "GPUPLAN_ENDPOINT_" + source.upper().replace("-", "_")
        return (self.environ.get(variable) or self.endpoints.get(source) or default).rstrip("/")

    @property
    def wanted_regions(self) -> tuple[str, ...]:
        """The requested regions; ``all`` means every region of the catalog."""
        return self.known_regions if self.regions == ("all",) else self.regions

    def build_parts(self, label: str, *purchases: Purchase) -> list[PricePart]:
        """Return the parts of a source with one response for all regions: one, or one per requested region."""
        if not self.regions or self.regions == ("all",):
            return [PricePart(region=ANYWHERE, purchases=purchases, label=label)]
        return [PricePart(region=r, purchases=purchases, label=f"{label} {r}") for r in self.regions]


class PriceSource(Protocol):
    """Interface of a price source."""

    @property
    def name(self) -> str:
        """Name in settings and messages, such as `aws-bulk`."""

    @property
    def provider(self) -> str:
        """Provider of the prices."""

    @property
    def is_complete(self) -> bool:
        """Whether the source lists everything that the provider offers, so that a missing offer is withdrawn."""

    def missing(self, request: RefreshRequest) -> str | None:
        """Return the missing requirement and how to meet it; None if the source is usable."""

    def parts(self, request: RefreshRequest) -> Sequence[PricePart]:
        """Return the parts that are accepted or rejected separately."""

    def read(
        self, part: PricePart, request: RefreshRequest, http: HttpClient
    ) -> Iterable[ListedPrice | LeftOut]:
        """Return all prices of a part, and the items that the source omits; FetchError unless the response
        is complete and well-formed.
        """


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
    return _normalize(number)


def parse_float(text: object) -> float | None:
    """Parse the number at the start of a text (``61 GiB``, ``1,952 GiB``); None if there is none."""
    digits = str(text or "").split(" ")[0].replace(",", "")
    try:
        number = float(digits)
    except ValueError:
        return None
    return number if number > 0 else None


def _normalize(number: Decimal) -> Decimal:
    """Return a number without trailing zeros and exponent."""
    normal = number.normalize()
    return normal if int(normal.as_tuple().exponent) <= 0 else normal.quantize(Decimal(1))
