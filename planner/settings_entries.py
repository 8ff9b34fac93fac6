"""Entries of a settings file on the user's own prices, taxes and machines, and their parser.

`docs/catalog.md` has an example of each. `offers.user_prices` adds committed prices and machines to the offers;
the bill applies discount, tax and currency. Percentages and money are Decimal.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from .errors import UsageError, near_names_hint

CurrencyCode = Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]


class _Entry(BaseModel):
    """Base class of entries: frozen, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Tax(_Entry):
    """Tax on a bill, as a percentage of all items."""

    name: str = "tax"
    percent: Annotated[Decimal, Field(ge=0, lt=100)]


class ExchangeRate(_Entry):
    """Units of a currency per US dollar, with date and source."""

    per_usd: Annotated[Decimal, Field(gt=0)]
    as_of: date | None = None
    source: str = ""


class _Which(_Entry):
    """Offers selected by an entry: case-insensitive shell patterns; ``*`` is all."""

    provider: str = "*"
    instance_type: str = "*"
    accelerator: str = "*"
    region: str = "*"
    until: date | None = None  # last day of validity
    note: str = ""

    def applies_to(self, offer: Any, *, today: date) -> bool:
        """Return whether the entry selects an offer and is valid."""
        is_over = self.until is not None and today > self.until
        return not is_over and all(
            fnmatchcase(str(getattr(offer, field)).lower(), str(getattr(self, field)).lower())
            for field in ("provider", "instance_type", "accelerator", "region")
        )


class Discount(_Which):
    """Negotiated discount from the list price of the selected offers, in percent."""

    purchase: Literal["on_demand", "spot"] | None = None  # None: both
    percent: Annotated[Decimal, Field(gt=0, lt=100)]

    def applies_to(self, offer: Any, *, today: date) -> bool:
        """Return whether the discount applies to an offer and is valid."""
        return self.purchase in (None, offer.purchase) and super().applies_to(offer, today=today)


class CommittedPrice(_Which):
    """A reserved or committed price that replaces the on-demand price of the selected offers."""

    usd_per_hour: Annotated[Decimal, Field(gt=0)]


class OwnMachine(_Entry):
    """A machine owned by the user, with its running cost per hour (power, fees; not the purchase)."""

    name: Name
    accelerator: str
    devices: Annotated[float, Field(gt=0)] = 1.0
    usd_per_hour: Annotated[Decimal, Field(ge=0)]
    vcpus: Annotated[float, Field(gt=0)] | None = None
    memory_gib: Annotated[float, Field(gt=0)] | None = None
    note: str = ""


def find_discount(offer: Any, discounts: Iterable[Discount], *, today: date) -> Discount | None:
    """Return the largest valid discount for an offer (discounts are not added); None if there is none.

    No discount applies to a committed price: call this only if ``find_committed_price`` returns None.
    """
    fitting = [entry for entry in discounts if entry.applies_to(offer, today=today)]
    return max(fitting, key=lambda entry: entry.percent, default=None)


def find_committed_price(offer: Any, committed: Iterable[CommittedPrice], *, today: date) -> CommittedPrice | None:
    """Return the lowest valid committed price for an on-demand offer; None if there is none."""
    if offer.purchase != "on_demand":
        return None
    fitting = [entry for entry in committed if entry.applies_to(offer, today=today)]
    return min(fitting, key=lambda entry: entry.usd_per_hour, default=None)


# --- parser -----------------------------------------------------------------------------------------------


class _Entries(_Entry):
    """All entries of a settings file."""

    tax: Tax | None = None
    exchange_rate: dict[CurrencyCode, ExchangeRate] = Field(default_factory=dict)
    discount: tuple[Discount, ...] = ()
    committed: tuple[CommittedPrice, ...] = ()
    machine: tuple[OwnMachine, ...] = ()


def parse_entry(key: str, value: object, where: str) -> Any:
    """Parse the entries of a key of a settings file: TOML, with Decimal for floats.

    UsageError, which says `where`, if a field is missing, unknown or out of bounds.
    """
    try:
        entries = _Entries.model_validate({key: value})
    except ValidationError as error:
        raise _build_error(key, error, where) from error
    names = [machine.name for machine in entries.machine]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two machines are called `{name}` in {where}", hint="give each a unique name")
    return getattr(entries, key)


def _build_error(key: str, error: ValidationError, where: str) -> UsageError:
    """Convert the first validation error to one line with a hint."""
    detail = error.errors(include_url=False)[0]
    *entry, field = detail["loc"][1:] or (key,)
    place = f" (entry {int(entry[0]) + 1})" if entry and isinstance(entry[0], int) else ""
    kinds = get_args(_Entries.model_fields[key].annotation)
    fields = next(
        tuple(kind.model_fields) for kind in kinds if isinstance(kind, type) and issubclass(kind, _Entry)
    )
    if detail["type"] == "extra_forbidden":
        hint = near_names_hint(str(field), fields, see_all="docs/catalog.md")
        return UsageError(f"unknown field `{field}` in {where}{place}", hint=hint)
    if detail["type"] == "missing":
        return UsageError(f"`{field}` is missing in {where}{place}", hint=f"an entry has {', '.join(fields)}")
    return UsageError(
        f"`{field}` in {where}{place}: {detail['msg'].lower()}, not {detail['input']!r}",
        hint="see docs/catalog.md for an example of each",
    )
