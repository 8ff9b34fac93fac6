"""Costs and assumptions of a run besides the training hours, with the user's overrides and the range of prices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, near_names_hint
from ..limits import MAX_AMOUNT
from ..offers.clouds import OWNED
from ..records import Frozen, to_plain
from ..settings import get_today
from ..units import format_range, format_usd

if TYPE_CHECKING:
    from ..offers.costs import Costs, ProviderCost
    from ..offers.rows import Offer
    from ..settings import Settings
    from ..settings_entries import Discount, Tax


DAYS_PER_YEAR = 365.25
HOURS_PER_DAY = 24.0
HOURS_A_DAY = ("notebook_hours_a_day", "free_hours_a_day")  # keys of assumptions [h]
STALE_AFTER_DAYS = 90  # a price that is older does not decide alone [days]


def compute_price_factor(*, time_ratio: float, half_width: float, upper: bool) -> float:
    """Return the factor on the price at one end of a run's time, for a cost at the end of both ranges [-].

    `time_ratio` is the time at that end over the central estimate, `half_width` that of ln(price). The cost at
    that end, relative to the central one, is time_ratio x factor = exp(± sqrt(ln(time_ratio)^2 + half_width^2)). 1
    where the time has no lower bound.

    Example:
        >>> round(compute_price_factor(time_ratio=1.0, half_width=0.5, upper=True), 4)
        1.6487
        >>> compute_price_factor(time_ratio=2.0, half_width=0.0, upper=True)
        1.0
    """
    if half_width == 0.0 or time_ratio <= 0.0:
        return 1.0
    own = math.log(time_ratio)
    both = math.hypot(own, half_width)
    return math.exp((both if upper else -both) - own)


# Values that the user can state instead of those derived from the workload.
DIRECT_KEYS: Mapping[str, str] = {
    "dataset_gb": "data to download [GB]",
    "compile_s": "compilation [s]",
    "classes": "classes of a folder of samples that is missing",
    "validation_samples": "samples validated after every epoch",
    "checkpoint_gb": "size of a checkpoint [GB]",
    "disk_gb": "size of the rented disk [GB]",
    "chance": "chance of getting a notebook's accelerator when it is requested",
    "notebook_hours_a_day": "hours a day for which you keep a notebook open, 8 by default [h]",
    "notebook_hours_a_week": "weekly hours of a notebook with a quota [h]",
    "g_co2_per_kwh": "carbon intensity of your own electricity [g/kWh]",
    "egress_gb": "data to download from the cloud at the end [GB]",
}

# Properties of spot machines that replace the catalog's; field of `SpotTerms` by key.
SPOT_KEYS: Mapping[str, str] = {
    "spot_life_h": "up_hours",
    "spot_checkpoint_every_s": "interval_s",
    "spot_checkpoint_s": "save_s",
    "spot_restart_s": "restart_s",
}

# Properties of the machine of `--own`; argument of `build_own_machine` by key.
POWER_KEYS: Mapping[str, str] = {"power_w": "power_w", "usd_per_kwh": "usd_per_kwh"}

Bounds = tuple[float, float, float]


class Currency(Frozen):
    """Currency in which amounts are shown."""

    code: str = "USD"  # three-letter code (ISO 4217)
    per_usd: Decimal = Decimal(1)  # units of the currency per US dollar
    source: str = ""  # source and date of the exchange rate

    def of_usd(self, usd: Decimal) -> Decimal:
        """Convert an amount in US dollars exactly."""
        return usd * self.per_usd

    def format(self, text: str) -> str:
        """Return a formatted amount with its currency.

        Example:
            >>> Currency().format("1.20"), Currency(code="EUR").format("1.20")
            ('$1.20', '1.20 EUR')
        """
        return f"${text}" if self.code == "USD" else f"{text} {self.code}"

    def format_amount(self, usd: float) -> str:
        """Return an amount of US dollars in the currency.

        Example:
            >>> [Currency().format_amount(usd) for usd in (0.0, 0.004, 0.04, 8.476)]
            ['free', '< 1 cent', '$0.04', '$8.48']
        """
        if usd == 0:
            return "free"
        if 0 < usd < LEAST_USD and self.code == "USD":
            return "< 1 cent"
        return self.format(format_usd(usd * float(self.per_usd)))

    def format_spread(self, low: float, mid: float, high: float) -> str:
        """Return an amount of US dollars with its range, unless it is free, below a cent or exact.

        Example:
            >>> Currency().format_spread(5.0, 8.476, 13.2), Currency().format_spread(0.0, 0.0, 0.0)
            ('$8.48 (5.0–13)', 'free')
        """
        if high == 0:
            return "free"
        text = self.format_amount(mid)
        if low == high or mid < LEAST_USD:
            return text
        return f"{text} ({format_range(low * float(self.per_usd), high * float(self.per_usd))})"


LEAST_USD = 0.01
USD = Currency()


class CostTerms(Frozen):
    """Costs and assumptions besides the price of the machine."""

    costs: Costs | None = None  # cost rows of the catalog; None counts the training alone
    overrides: Mapping[str, float] = field(default_factory=dict)  # values stated by the user, by key
    discounts: tuple[Discount, ...] = ()  # negotiated discounts
    tax: Tax | None = None  # tax on the whole bill; None for no tax
    currency: Currency = USD  # currency in which amounts are shown
    today: date = date.min  # date on which discounts must be valid
    notebook_plans: tuple[str, ...] = ()  # plans that the user pays for anyway

    def given(self, key: str) -> float | None:
        """Return the user's value of a key, or None."""
        return self.overrides.get(key)

    def bounds(self, key: str, place: str) -> Bounds | None:
        """Return the lower bound, central value and upper bound of an assumption for a kind of host, or None."""
        row = self._row(key, place)
        if row is None:
            return None
        given = self.overrides.get(key)
        return row.bounds if given is None else (given, given, given)

    def because(self, key: str, place: str) -> str:
        """Return the value, bounds, basis and source of an assumption in a sentence."""
        if key in self.overrides:
            return f"{key} = {self.overrides[key]:g}, as given"
        row = self._row(key, place)
        if row is None:
            return ""
        low, mid, high = row.bounds
        return f"{key} = {mid:g} ({low:g} to {high:g}), {row.basis}: {row.source}"

    def provider_cost(self, provider: str) -> ProviderCost | None:
        """Return a provider's fees besides the machine, or None if unknown."""
        return None if self.costs is None else self.costs.providers.get(provider)

    def g_co2_per_kwh(self, provider: str, region: str) -> float | None:
        """Return the carbon intensity of the grid in a region, or None if unknown [g/kWh]."""
        if provider in OWNED:
            return self.overrides.get("g_co2_per_kwh")
        row = None if self.costs is None else self.costs.regions.get((provider, region))
        return None if row is None else row.g_co2_per_kwh

    def price_half_width(self, offer: Offer) -> float:
        """Return how far today's price may be from an offer's dated one: half an 80 % interval of ln(price) [-].

        It grows with the square root of the age. 0 for a price without a date (the user's own) and where it is not
        known how fast such prices move.
        """
        if self.costs is None or offer.price_as_of is None:
            return 0.0
        move = self.costs.find_move(offer.provider, offer.purchase)
        if move is None:
            return 0.0
        age_days = _count_days(offer.price_as_of, self.today)
        return float(move.log_per_sqrt_year * math.sqrt(age_days / DAYS_PER_YEAR))

    def compute_aged_share(self, offer: Offer) -> float:
        """Return how much dearer an offer may be today if its price is too old to decide alone, else 0 [-]."""
        if offer.price_as_of is None or _count_days(offer.price_as_of, self.today) <= STALE_AFTER_DAYS:
            return 0.0
        return math.expm1(self.price_half_width(offer))

    def find_discount(self, offer: Offer) -> Discount | None:
        """Return the discount on an offer's list price; None for user-supplied prices."""
        if not self.discounts:
            return None
        from ..offers.user_prices import OWN_SOURCE
        from ..settings_entries import find_discount

        if offer.price_source == OWN_SOURCE:
            return None
        return find_discount(offer, self.discounts, today=self.today)

    def to_json(self) -> dict[str, Any]:
        """Return the costs and assumptions in effect as plain JSON types."""
        tax = None if self.tax is None else {"name": self.tax.name, "percent": format(self.tax.percent, "f")}
        return {
            "currency": to_plain(self.currency),
            "tax": tax,
            "discounts": [discount.model_dump(mode="json") for discount in self.discounts],
            "given": dict(self.overrides),
            "assumptions": []
            if self.costs is None
            else [dict(vars(row)) for row in self.costs.assumptions.values() if row.key not in self.overrides],
        }

    def _row(self, key: str, place: str) -> Any:
        rows = {} if self.costs is None else self.costs.assumptions
        return rows.get((key, place)) or (None if place == "local" else rows.get((key, "any")))


NO_TERMS = CostTerms()


def parse_overrides(texts: Iterable[str], costs: Costs) -> dict[str, float]:
    """Parse the `key=value` pairs of `--assume`; the cost rows define the valid keys.

    Raises:
        UsageError: A text that is not a pair, an unknown key, or a value that is not a number of at least 0.
    """
    known = sorted(
        {key for key, _ in costs.assumptions} | DIRECT_KEYS.keys() | SPOT_KEYS.keys() | POWER_KEYS.keys()
    )
    found, others = take_overrides(texts, {key: key for key in known})
    for text in others:
        key, separator, _ = text.partition("=")
        if not separator:
            raise UsageError(f"`--assume {text}` is not `key=value`", hint=f"keys: {', '.join(known)}")
        raise UsageError(
            f"unknown assumption `{key}` in `--assume`",
            hint=near_names_hint(key, known, see_all="gpuplan estimate MODEL --breakdown"),
        )
    for key in HOURS_A_DAY:
        if not 0 < found.get(key, 1.0) <= HOURS_PER_DAY:
            raise UsageError(f"`--assume {key}={found[key]:g}`: a day has 24", hint=f"try `--assume {key}=8`")
    return found


def take_overrides(texts: Iterable[str], names: Mapping[str, str]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Separate the `key=value` pairs with some keys: their values under the names of these, and the other texts.

    Raises:
        UsageError: A value that is not a number of at least 0.

    Example:
        >>> take_overrides(["spot_restart_s=60", "boot_s=90"], SPOT_KEYS)
        ({'restart_s': 60.0}, ('boot_s=90',))
    """
    taken, rest = {}, []
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or key not in names:
            rest.append(text)
            continue
        with suppress(ValueError):
            taken[names[key]] = float(value)
        if not 0 <= taken.get(names[key], -1.0) <= MAX_AMOUNT:
            what = f"`{value}` is not a number from 0 to {MAX_AMOUNT:g}"
            raise UsageError(f"`--assume {text}`: {what}", hint="give e.g. `boot_s=90`")
    return taken, tuple(rest)


def build_cost_terms(settings: Settings, costs: Costs, *, assume: Iterable[str] = ()) -> CostTerms:
    """Build the cost terms from settings and flags."""
    rate = settings.exchange_rate.get(settings.currency)
    currency = USD
    if rate is not None and settings.currency != USD.code:
        source = " of ".join(str(part) for part in (rate.source, rate.as_of) if part)
        currency = Currency(code=settings.currency, per_usd=rate.per_usd, source=source)
    return CostTerms(
        costs=costs,
        overrides=parse_overrides(assume, costs),
        discounts=settings.discount,
        tax=settings.tax,
        currency=currency,
        today=get_today(),
        notebook_plans=settings.notebook_plans,
    )


@lru_cache(maxsize=1024)
def _count_days(as_of: str, today: date) -> int:
    from ..offers.price_history import compute_age_days

    return compute_age_days(as_of, today=today)
