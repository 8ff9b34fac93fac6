"""Words of a decision: offers as one speaks of them, their money and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from ..units import (
    Interval,
    format_device,
    format_duration,
    format_duration_range,
    format_range,
    format_short,
    format_usd,
)
from .fitting import describe_changes
from .timeline import TRAINING

if TYPE_CHECKING:
    from ..workload.model import Workload
    from .cost_terms import Currency
    from .offer_estimate import OfferEstimate
    from .select import OfferContext


SAMPLES_PRICED = 1e6
LEAST_USD = 0.01
MOSTLY = 0.5  # share of a doubt from which one assumption is named [-]
PROVIDERS: Mapping[str, str] = {
    "aws": "AWS", "azure": "Azure", "colab": "Colab", "coreweave": "CoreWeave", "gcp": "Google Cloud",
    "kaggle": "Kaggle", "lambda": "Lambda", "nebius": "Nebius", "runpod": "RunPod", "vast": "Vast",
}  # fmt: skip
# What replaces the assumption behind a phase of a run, or measures the steps themselves.
SETTLED_BY: Mapping[str, str] = {
    "boot": "--assume boot_s=90",
    "driver and image": "--assume setup_s=120",
    "data download": "--assume download_mb_per_s=200",
    "compile": "--assume compile_s=60",
    "checkpoints": "--assume checkpoint_every_s=1800",
    TRAINING: "`gpuplan profile` there",
}


def name_machine(one: OfferEstimate) -> str:
    """Return an offer of an estimate as one speaks of it."""
    return name_offer(one.selected)


def name_offer(selected: OfferContext) -> str:
    """Return an offer as one speaks of it: `H100-SXM on Lambda`, `Kaggle 2× T4`, `this CPU`."""
    offer, limits = selected.offer, selected.limits
    device, place = format_device(offer.accelerator, offer.devices), PROVIDERS.get(offer.provider, offer.provider)
    if offer.provider == "local":
        return f"this {device}"
    if offer.provider == "own":
        return f"your {offer.instance_type}"
    if limits is not None:
        plan = limits.plan.partition("-")[2]
        return f"{place} {device}{'' if plan in ('free', 'payg') else f' ({plan})'}"
    return f"{device} on {place}{' spot' if offer.purchase == 'spot' else ''}"


def format_money(usd: float, currency: Currency) -> str:
    """Return an amount."""
    if 0 < usd < LEAST_USD and currency.code == "USD":
        return "< 1 cent"
    amount = float(currency.of_usd(Decimal(usd)))
    return currency.format(f"{amount:.2f}" if LEAST_USD <= amount < 1 else format_usd(amount))


def format_cost(usd: Interval, currency: Currency, *, with_range: bool = False) -> str:
    """Return a cost: `free`, `< 1 cent`, `$14.80 (11–19)`."""
    if usd.high == 0:
        return "free"
    text = format_money(usd.mid, currency)
    if not with_range or usd.low == usd.high or usd.mid < LEAST_USD:
        return text
    low, high = (float(currency.of_usd(Decimal(end))) for end in (usd.low, usd.high))
    return f"{text} ({format_range(low, high)})"


class DecisionWords(NamedTuple):
    """Formats of offers and amounts in one currency, by run or by sample."""

    offers: Sequence[OfferEstimate]
    currency: Currency
    workload: Workload

    def take(self, row: int, chance: float | None) -> str:
        """Return what to take: with its probability, if that is not sure."""
        one = self.offers[row]
        if one.offer.provider == "local":
            here = "Train it here" if self.workload.mode == "train" else "Run it here"
            head = here if chance is None else f"Likely ({100 * chance:.0f} %) here"
            return f"{head}: {self.time(one, with_range=True)}, {self.cost(one)}."
        head = "Take" if chance is None else f"Likely ({100 * chance:.0f} %):"
        text = self.describe(row, with_range=True)
        return f"{head} {text.replace(', ', ': ', 1) if chance is None else text}."

    def describe(self, row: int, *, with_range: bool = False, with_cost: bool = True) -> str:
        """Return name, cost and time of an offer."""
        one = self.offers[row]
        parts = (self.cost(one, with_range=with_range) if with_cost else "", self.time(one, with_range=with_range))
        return ", ".join(filter(None, (name_machine(one), *parts)))

    def usd(self, usd: float) -> str:
        """Return an amount."""
        return format_money(usd, self.currency)

    def cost(self, one: OfferEstimate, *, with_range: bool = False) -> str:
        """Return the cost of a run, or of a million samples."""
        if one.bill is None:
            each = one.usd_per_million_samples
            return "free" if not each else f"{self.usd(float(each))} per million samples"
        low, mid, high = (float(nano) * 1e-9 for nano in one.bill.nano)
        return format_cost(Interval(low=low, mid=mid, high=high), self.currency, with_range=with_range)

    def time(self, one: OfferEstimate, *, with_range: bool = False) -> str:
        """Return the time of a run with its sessions, or the samples per second."""
        run_s: Interval | None = one.run_time_s
        if run_s is None:
            rate = one.samples_per_s
            return "" if rate is None else f"{format_short(rate.mid)} samples/s"
        text = format_duration_range(run_s) if with_range else format_duration(run_s.mid)
        return text if (one.sessions or 1) == 1 else f"{text} in {one.sessions:,} sessions"

    def changes(self, row: int) -> str:
        """Return how the planned training differs from the one that was asked for; empty for not at all."""
        estimate, asked = self.offers[row].device_estimate, self.workload.batch_size
        size = estimate.run.global_batch_size
        parts = []
        if self.workload.mode == "train" and size != asked:
            parts.append(f"Global batch {size:,} instead of {asked:,}: another training.")
        changed = describe_changes(
            micro_batch_size=estimate.pass_batch_size,
            accumulation_steps=estimate.accumulation_steps,
            recomputed=estimate.recomputed,
        )
        if changed:
            parts.append(f"It {changed}.")
        return " ".join(parts)

    def doubt(self, row: int) -> str:
        """Return the assumption that makes most of the doubt about a time, and what settles it; empty for none."""
        timeline = self.offers[row].timeline
        if timeline is None:
            return ""
        spread_s = {phase.item: phase.time_s.high - phase.time_s.mid for phase in timeline.phases}
        item = max(spread_s, key=lambda name: spread_s[name])
        if item not in SETTLED_BY or spread_s[item] < MOSTLY * sum(spread_s.values()):
            return ""
        return f"Most of the doubt is the {item}: {SETTLED_BY[item]} settles it."
