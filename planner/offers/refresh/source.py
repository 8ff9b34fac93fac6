"""What a source of prices is: a Protocol, the row that it yields, and how it fails.

To add a source, write a module with a class that has ``name``, ``provider``, ``missing``, ``parts`` and ``read``,
and list it in ``registry``. A source only reads: guards, machine sizes and files are the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Literal, Protocol

from ...errors import GpuplanError
from ..rows import Purchase

if TYPE_CHECKING:
    from .http import Http

__all__ = [
    "ANYWHERE", "FetchError", "Kind", "Listed", "Part", "PriceSource", "Request", "decimal_of", "float_of",
]  # fmt: skip

ANYWHERE = "*"  # the region of a part that covers all regions at once
Kind = Literal[
    "unreachable",
    "throttled",
    "server",
    "credentials",
    "not found",
    "malformed",
    "truncated",
    "disordered",
    "slow",
    "refused",
]
RETRIED: frozenset[Kind] = frozenset({"unreachable", "throttled", "server", "truncated", "malformed", "slow"})


class FetchError(GpuplanError):
    """A vendor did not give a whole, well-formed answer.

    Args:
        message: One line: what, where.
        kind: What went wrong; some kinds are worth another try.
        retry_after_s: How long the vendor asked to wait [s]; None when it did not say.
    """

    def __init__(
        self, message: str, *, kind: Kind, retry_after_s: float | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind: Kind = kind
        self.retry_after_s = retry_after_s

    @property
    def is_worth_retrying(self) -> bool:
        """Whether the same question may get an answer later."""
        return self.kind in RETRIED


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A price as a vendor lists it, before anything is made of it.

    Args:
        instance_type, region, purchase: Which offer it is.
        usd_per_hour: Price of the whole machine; whether it is above 0 is for the guards [``currency``/h].
        currency: As the vendor says.
        sku: The vendor's own key of the price: SKU, meter or rate code.
        url: Where it was read.
        accelerator, devices, vcpus, memory_gib: Where the source says so; None: it does not.
        is_accelerated: Whether the source says that there is an accelerator, known or not.
        note: What a reader must know.
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
class Part:
    """What is accepted or refused as a whole: the prices of one answer, or of one walk over pages.

    Args:
        region: Which region it is about; ``*``: all of them.
        purchases: Which purchase options it is about.
        label: What a person calls it.
    """

    region: str
    purchases: tuple[Purchase, ...]
    label: str

    def covers(self, region: str, purchase: str) -> bool:
        """Return whether a price of this region and purchase option belongs to the part."""
        return self.region in (ANYWHERE, region) and purchase in self.purchases


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asks to have refreshed.

    Args:
        regions: Only these; empty: what the source reads unasked.
        known_regions: Where the catalog has offers of the provider; what ``--region all`` means.
        environ: Environment variables (credentials and keys are found there).
        endpoints: Other addresses than the vendors' own, by source name.
    """

    regions: tuple[str, ...] = ()
    known_regions: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    endpoints: Mapping[str, str] = field(default_factory=dict)

    def endpoint(self, source: str, default: str) -> str:
        """Return where a source is asked: `GPUPLAN_ENDPOINT_AWS_BULK`, the settings, or the vendor's own."""
        variable = "GPUPLAN_ENDPOINT_" + source.upper().replace("-", "_")
        return (self.environ.get(variable) or self.endpoints.get(source) or default).rstrip("/")

    @property
    def wanted_regions(self) -> tuple[str, ...]:
        """The regions that were asked for; ``all`` means every region of the catalog."""
        return self.known_regions if self.regions == ("all",) else self.regions

    def parts_of(self, label: str, *purchases: Purchase) -> list[Part]:
        """Return the parts of a source whose one answer covers all regions: one, or one a region asked for."""
        if not self.regions or self.regions == ("all",):
            return [Part(region=ANYWHERE, purchases=purchases, label=label)]
        return [Part(region=r, purchases=purchases, label=f"{label} {r}") for r in self.regions]


class PriceSource(Protocol):
    """One way in which a vendor tells prices."""

    @property
    def name(self) -> str:
        """What settings and messages call it: `aws-bulk`."""

    @property
    def provider(self) -> str:
        """Whose prices these are."""

    def missing(self, request: Request) -> str | None:
        """Return what is needed and not there, as the way to get it; None when the source can be read."""

    def parts(self, request: Request) -> Sequence[Part]:
        """Return what can be refused or accepted apart."""

    def read(self, part: Part, request: Request, http: Http) -> Iterable[Listed]:
        """Return all prices of a part; FetchError unless the answer was whole and well-formed."""


def decimal_of(value: object, *, what: str) -> Decimal:
    """Return a price as Decimal; FetchError for anything that is no finite number.

    Example:
        >>> decimal_of("0.5260000000", what="price")
        Decimal('0.526')
    """
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        number = Decimal("nan")
    if isinstance(value, bool) or not number.is_finite():
        raise FetchError(f"{what} is not a number: {str(value)[:40]!r}", kind="malformed")
    return _plain(number)


def float_of(text: object) -> float | None:
    """Return the number at the beginning of a text (``61 GiB``, ``1,952 GiB``); None when there is none."""
    digits = str(text or "").split(" ")[0].replace(",", "")
    try:
        number = float(digits)
    except ValueError:
        return None
    return number if number > 0 else None


def _plain(number: Decimal) -> Decimal:
    """Return a number without trailing zeros and without an exponent."""
    normal = number.normalize()
    return normal if int(normal.as_tuple().exponent) <= 0 else normal.quantize(Decimal(1))
