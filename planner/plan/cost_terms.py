"""The terms of a run: what is charged and assumed beside the hours of training, and the user's own say in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, near_names_hint
from ..frozen import Frozen

if TYPE_CHECKING:
    from ..offers.costs import Costs, ProviderCost
    from ..offers.rows import Offer
    from ..settings import Settings
    from ..settings_own import Discount, Tax

__all__ = [
    "NO_TERMS",
    "OWNED",
    "USD",
    "Bounds",
    "CostTerms",
    "Currency",
    "build_cost_terms",
    "parse_overrides",
]

# What can be given outright in place of what is worked out from the workload.
DIRECT_KEYS: Mapping[str, str] = {
    "dataset_gb": "data to download [GB]",
    "compile_s": "compilation [s]",
    "validation_samples": "samples validated after every epoch",
    "checkpoint_gb": "size of a checkpoint [GB]",
    "disk_gb": "disk that is rented [GB]",
    "chance": "chance of getting a notebook's accelerator when it is asked for",
    "notebook_hours_a_week": "hours a week that a notebook with a quota gives you [h]",
    "g_co2_per_kwh": "carbon intensity of your own electricity [g/kWh]",
    "egress_gb": "what is downloaded from the cloud at the end [GB]",
}

OWNED = frozenset({"local", "own"})
Bounds = tuple[float, float, float]


class Currency(Frozen):
    """What money is shown in.

    Args:
        code: Three letters.
        per_usd: How much of it one US dollar buys.
        source: Who says so, and when.
    """

    code: str = "USD"
    per_usd: Decimal = Decimal(1)
    source: str = ""

    def of_usd(self, usd: Decimal) -> Decimal:
        """Return an amount of dollars in this currency, exactly."""
        return usd * self.per_usd

    def to_usd(self, amount: Decimal) -> Decimal:
        """Return an amount of this currency in dollars, to the nano-dollar."""
        return (amount / self.per_usd).quantize(Decimal("1e-9"))

    def to_json(self) -> dict[str, str]:
        """Return code, rate and source."""
        return {"code": self.code, "per_usd": format(self.per_usd, "f"), "source": self.source}


USD = Currency()


class CostTerms(Frozen):
    """What is charged and assumed beside the price of the machine.

    Args:
        costs: The rows of the catalog; None: nothing but the training is counted.
        overrides: What the user knows better, by key.
        discounts: Negotiated.
        tax: On everything; None: none.
        currency: What money is shown in.
        today: The day for which discounts are looked up.
    """

    costs: Costs | None = None
    overrides: Mapping[str, float] = field(default_factory=dict)
    discounts: tuple[Discount, ...] = ()
    tax: Tax | None = None
    currency: Currency = USD
    today: date = date.min

    def given(self, key: str) -> float | None:
        """Return what the user said of a key; None when nothing was said."""
        return self.overrides.get(key)

    def bounds(self, key: str, place: str) -> Bounds | None:
        """Return the three numbers of an assumption at a place; None when it has none there."""
        row = None if self.costs is None else self._row(key, place)
        if row is None:
            return None
        given = self.overrides.get(key)
        return row.bounds if given is None else (given, given, given)

    def because(self, key: str, place: str) -> str:
        """Return why an assumption is what it is."""
        if key in self.overrides:
            return f"{key} = {self.overrides[key]:g}, as given"
        row = None if self.costs is None else self._row(key, place)
        if row is None:
            return ""
        low, mid, high = row.bounds
        return f"{key} = {mid:g} ({low:g} to {high:g}), {row.basis}: {row.source}"

    def provider_cost(self, provider: str) -> ProviderCost | None:
        """Return what a provider charges beside the machine; None when it is unknown."""
        return None if self.costs is None else self.costs.providers.get(provider)

    def g_co2_per_kwh(self, provider: str, region: str) -> float | None:
        """Return how dirty a region's grid is; None when unknown [g/kWh]."""
        if provider in OWNED:
            return self.overrides.get("g_co2_per_kwh")
        row = None if self.costs is None else self.costs.regions.get((provider, region))
        return None if row is None else row.g_co2_per_kwh

    def find_discount(self, offer: Offer) -> Discount | None:
        """Return the discount on an offer's list price; None on a committed price or one's own machine."""
        if not self.discounts:
            return None
        from ..offers.user_prices import OWN_SOURCE
        from ..settings_own import find_discount

        if offer.price_source == OWN_SOURCE:
            return None
        return find_discount(offer, self.discounts, today=self.today)

    def to_json(self) -> dict[str, Any]:
        """Return what was assumed, as it was used."""
        tax = None if self.tax is None else {"name": self.tax.name, "percent": format(self.tax.percent, "f")}
        return {
            "currency": self.currency.to_json(),
            "tax": tax,
            "discounts": [discount.model_dump(mode="json") for discount in self.discounts],
            "given": dict(self.overrides),
            "assumptions": [] if self.costs is None else [
                dict(vars(row)) for row in self.costs.assumptions.values() if row.key not in self.overrides
            ],
        }  # fmt: skip

    def _row(self, key: str, place: str) -> Any:
        rows = {} if self.costs is None else self.costs.assumptions
        return rows.get((key, place)) or (None if place == "local" else rows.get((key, "any")))


NO_TERMS = CostTerms()


def parse_overrides(texts: Iterable[str], costs: Costs) -> dict[str, float]:
    """Return `key=value` pairs as numbers.

    Args:
        texts: As given with `--assume`.
        costs: Names the keys that there are.

    Raises:
        UsageError: No pair, a key that is unknown, or a value that is no number of at least zero.
    """
    known = sorted({key for key, _ in costs.assumptions} | set(DIRECT_KEYS))
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise UsageError(f"`--assume {text}` is no `key=value`", hint=f"keys: {', '.join(known)}")
        if key not in known:
            raise UsageError(
                f"unknown assumption `{key}` in `--assume`",
                hint=near_names_hint(key, known, see_all="gpuplan estimate MODEL --breakdown"),
            )
        found[key] = _number(value, text)
    return found


def build_cost_terms(settings: Settings, costs: Costs, *, assume: Iterable[str] = ()) -> CostTerms:
    """Return the terms that the user's settings and flags make.

    Args:
        settings: Discounts, tax, currency.
        costs: Of the catalog.
        assume: `key=value` pairs.
    """
    rate = settings.exchange_rate.get(settings.currency)
    currency = USD
    if rate is not None and settings.currency != USD.code:
        source = " of ".join(str(part) for part in (rate.source, rate.as_of) if part)
        currency = Currency(code=settings.currency, per_usd=rate.per_usd, source=source)
    return CostTerms(
        costs=costs, overrides=parse_overrides(assume, costs), discounts=settings.discount, tax=settings.tax,
        currency=currency, today=date.today(),
    )  # fmt: skip


def _number(value: str, text: str) -> float:
    """Return a number of at least zero."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not math.isfinite(number) or number < 0:
        raise UsageError(
            f"`--assume {text}`: `{value}` is no number of at least zero", hint="as in `boot_s=90`"
        )
    return number
