"""Words of a decision: offers as one speaks of them, their money and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..offers.clouds import NOTEBOOKS, TITLES, find_tier
from ..units import GIB, Interval, format_device, format_duration, format_duration_range, format_short
from .timeline import TRAINING

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..workload.model import Workload
    from .cost_terms import Currency
    from .estimate import Estimate
    from .offer_estimate import OfferEstimate


NAMED_BY = ("provider", "instance_type", "accelerator", "devices", "purchase")
MOSTLY = 0.5  # share of a doubt from which one assumption is named [-]
PAID_PLANS = ("pro-plus", "pro")
# What replaces the assumption behind a phase of a run, or measures the steps themselves.
SETTLED_BY: Mapping[str, str] = {
    "boot": "--assume boot_s=90",
    "driver and image": "--assume setup_s=120",
    "data download": "--assume download_mb_per_s=200",
    "compile": "--assume compile_s=60",
    "checkpoints": "--assume checkpoint_every_s=1800",
    TRAINING: "`gpuplan profile` there",
}


def name_machine(*, provider: str, instance_type: str, accelerator: str, devices: float, purchase: str) -> str:
    """Return an offer as one speaks of it.

    Example:
        >>> t4 = {"accelerator": "T4", "devices": 1.0, "purchase": "spot"}
        >>> name_machine(provider="aws", instance_type="g4dn.xlarge", **t4)
        'T4 on AWS spot'
        >>> name_machine(provider="colab", instance_type="colab-pro-plus-t4", **t4)
        'Colab T4 (pro-plus)'
    """
    device, place = format_device(accelerator, devices), TITLES.get(provider, provider)
    if provider == "local":
        return f"this {device}"
    if provider == "own":
        return f"your {instance_type}"
    if provider in NOTEBOOKS:
        plan = next((f" ({plan})" for plan in PAID_PLANS if instance_type.startswith(f"{provider}-{plan}-")), "")
        return f"{place} {device}{plan}"
    tier = find_tier(instance_type)
    return " ".join(filter(None, (device, "on", place, tier, "spot" if purchase == "spot" else "")))


def describe_misfit(estimate: Estimate) -> str:
    """Return that a training fits on none of the devices as it is, and at which batch it does; else empty."""
    workload = estimate.workload
    devices = [estimate.offers[index] for index in estimate.best_per_devices()]
    known = [one for one in devices if one.device_estimate.memory.fits is not None]
    if workload.mode != "train" or not known or any(one.device_estimate.memory.fits for one in known):
        return ""
    largest = max(known, key=lambda one: one.device_estimate.memory.available_bytes or 0)
    memory, kinds = largest.device_estimate.memory, {one.offer.accelerator for one in known}
    where = f"a {largest.offer.accelerator}" if len(kinds) == 1 else f"any of {len(kinds)} accelerators"
    most = "" if len(kinds) == 1 else f" of a {largest.offer.accelerator}"
    needed, available = memory.needed_bytes / GIB, (memory.available_bytes or 0) / GIB
    fitting = f"; batch {memory.largest_batch_size:,} does" if memory.largest_batch_size else ""
    return (
        f"Batch {workload.batch_size:,} does not fit {where}: "
        f"it needs {needed:,.1f} of {available:,.1f} GiB{most}{fitting}."
    )


def name_offer(offer: Offer) -> str:
    """Return an offer of the catalog as one speaks of it."""
    return name_machine(**{key: getattr(offer, key) for key in NAMED_BY})


def format_cost(usd: Interval, currency: Currency, *, with_range: bool = False) -> str:
    """Return a cost: `free`, `< 1 cent`, `$14.80 (11–19)`."""
    if usd.high == 0 or not with_range:
        return "free" if usd.high == 0 else currency.format_amount(usd.mid)
    return currency.format_spread(usd.low, usd.mid, usd.high)


class DecisionWords(NamedTuple):
    """Formats of offers and amounts in one currency, by run or by sample."""

    offers: Sequence[OfferEstimate]
    currency: Currency
    workload: Workload

    def take(self, row: int, chance: float | None) -> str:
        """Return what to take: with its probability, if that is not sure."""
        one = self.offers[row]
        if marks := self.marks(one):
            return f"{one.offer.accelerator}: {marks}. If you own one: {self._training(one)}."
        if one.offer.provider == "local":
            here = "Train it here" if self.workload.mode == "train" else "Run it here"
            head = here if chance is None else f"Likely ({100 * chance:.0f} %) here"
            return f"{head}: {self.time(one, with_range=True)}, {self.cost(one)}."
        head = "Take" if chance is None else f"Likely ({100 * chance:.0f} %):"
        text = self.describe(row, with_range=True)
        return f"{head} {text.replace(', ', ': ', 1) if chance is None else text}."

    def marks(self, one: OfferEstimate) -> str:
        """Return why an offer that was asked for by name cannot be had or used as it is; empty for no reason."""
        ended = "it can no longer be rented" if one.selected.availability == "retired" else ""
        if one.device_estimate.runs is not False:
            return ended
        return ", and ".join(filter(None, (ended, one.device_estimate.compatibility.partition(":")[0])))

    def _training(self, one: OfferEstimate) -> str:
        """Return the time of the training alone, or the samples per second."""
        train_s = one.device_estimate.train_time_s
        return self.time(one) if train_s is None else f"{format_duration_range(train_s)} of training"

    def describe(self, row: int, *, with_range: bool = False, with_cost: bool = True) -> str:
        """Return name, cost and time of an offer."""
        one = self.offers[row]
        parts = (self.cost(one, with_range=with_range) if with_cost else "", self.time(one, with_range=with_range))
        return ", ".join(filter(None, (name_offer(one.offer), *parts)))

    def cost(self, one: OfferEstimate, *, with_range: bool = False) -> str:
        """Return the cost of a run, or of a million samples."""
        if one.bill is None:
            each = one.usd_per_million_samples
            return "free" if not each else f"{self.currency.format_amount(float(each))} per million samples"
        return format_cost(one.bill.usd, self.currency, with_range=with_range)

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
        if estimate.changes:
            parts.append(f"It {estimate.changes}.")
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
