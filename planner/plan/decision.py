"""Decision of what to take: the least total of what can be had, with its alternatives, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..offers.clouds import NOTEBOOKS, TITLES, find_tier
from ..offers.rows import CPU
from ..predict.step_time import NoPrediction
from ..units import (
    GIB,
    SECONDS_PER_HOUR,
    Interval,
    format_device,
    format_duration,
    format_duration_range,
    format_short,
)
from .estimate import Decision
from .question import PARTIAL_HINT
from .ranking import Bounds, compute_cost_bounds, compute_time_bounds, find_first
from .timeline import TRAINING

if TYPE_CHECKING:
    from ..offers.rows import Offer
    from ..workload.model import Workload
    from .cost_terms import Currency
    from .estimate import Estimate
    from .offer_estimate import OfferEstimate
    from .offer_table import OfferTable
    from .question import Question
    from .ranking import Floats, Mask, Rows


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
    return currency.format_spread(usd.low, usd.mid, usd.high) if with_range else currency.format_amount(usd.mid)


class DecisionWords(NamedTuple):
    """Formats of offers and amounts in one currency, by run or by sample."""

    offers: Sequence[OfferEstimate]
    currency: Currency
    workload: Workload

    def take(self, row: int, chance: float | None) -> str:
        """Return what to take: with its probability, if that is not sure."""
        one = self.offers[row]
        if marks := self.marks(one):
            train_s = one.device_estimate.train_time_s
            time = self.time(one) if train_s is None else f"{format_duration_range(train_s)} of training"
            return f"{one.offer.accelerator}: {marks}. If you own one: {time}."
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


SURE, LIKELY = 0.9, 0.5  # least probabilities of what is taken, and of what is taken with a warning [-]
CHEAPER_SHARE, CHEAPER_USD = 0.8, 1.0
FASTER_SHARE, FASTER_S = 0.8, 600.0
MOST_USD_PER_HOUR_SAVED = 100.0
QUANTILE = 1.2815515655446004  # of the standard normal distribution at 90 %
SAME_RATE = 0.05  # relative difference up to which a loader is as fast elsewhere [-]
OTHER_PREDICTION = "ask for another `--precision` or other accelerators; see `gpuplan accelerators`"
RANGE_OF_VALUES = (0.5, 2.0)  # plausible values of hours, relative to the stated ones [-]


def decide(offers: OfferTable, question: Question, *, workload: Workload, currency: Currency) -> Decision:
    """Return the decision on ranked offers."""
    if question.refuses(workload):
        return Decision(lines=(workload.why_partial,), hint=PARTIAL_HINT)
    # Two quiet cores were 2 to 7 times slower than their datasheet predicts (CNNs; Keras on JAX): no CPU that is
    # timed by it alone, unless that is all.
    guessed = offers.of_runs(lambda run: getattr(run.device_estimate.step_time, "basis", "") == "datasheet", bool)
    guessed &= offers.of_offers(lambda one: one.offer.accelerator == CPU, bool)
    known = offers.takable & ~guessed
    options = _Options.of(offers, question, known if known.any() else offers.takable)
    taken = options.take()
    words = DecisionWords(offers, currency, workload)
    if taken is None:
        return _explain_nothing(options, question, words)
    chance = float(options.chance[options.rows == taken][0])
    is_had = not words.marks(offers[taken])
    kept = options.rows[(options.chance >= SURE) & is_had]  # beside what is gone, nothing else is offered
    picks = Decision(
        recommended=taken,
        **_find_alternatives(options, kept, taken),
        probability=chance if question.has_limits else None,
        values=_name_values(options, kept, taken, question),
        kept=tuple(options.rows[options.chance >= min(SURE, chance)].tolist()),
    )
    needs = offers.contexts[taken].needs
    lines = (
        workload.why_partial,
        words.take(taken, None if chance >= SURE else chance),
        _explain_staying(options, kept, taken),
        _explain_guess(offers, offers.takable & guessed, taken),
        _format_alternatives(picks, offers, words),
        words.doubt(taken) if chance < SURE else "",
        words.changes(taken),
        _explain_input(offers[taken], question, workload),
        _explain_quota(offers, question, taken, words),
    )
    return replace(picks, lines=tuple(filter(None, lines)), needs=(needs,) if needs else ())


class _Options(NamedTuple):
    """Rows of offers that can be taken, with the probability that each keeps deadline and budget."""

    offers: OfferTable
    rows: Rows
    chance: Floats

    @classmethod
    def of(cls, offers: OfferTable, question: Question, takable: Mask) -> _Options:
        """Return the options among some offers."""
        import numpy as np

        rows = np.flatnonzero(takable)
        chance = np.ones(len(rows))
        if question.deadline_s is not None:
            chance = compute_chances(question.deadline_s, compute_time_bounds(offers, rows))
        if question.budget_usd is not None:
            within = compute_chances(question.budget_usd, compute_cost_bounds(offers, rows))
            chance = np.minimum(chance, within)  # a longer run is a dearer one: they fail together
        return cls(offers, rows, chance)

    def best(self, rows: Rows, totals: Floats | None = None) -> int | None:
        """Return the row of least total; equal ones by what is sure to be had, money, time and effort."""
        one = self.offers
        total = (one.total_usd if totals is None else totals).round(9)
        return find_first(rows, total, one.is_late, one.cost_usd, one.time_s, one.own_h)

    def take(self) -> int | None:
        """Return the best row that surely keeps the limits, or else the likeliest; None for none."""
        best = self.best(self.rows[self.chance >= SURE])
        if best is not None or not self.rows.size or (most := self.chance.max()) < LIKELY:
            return best
        return self.best(self.rows[self.chance == most])


def compute_chances(limit: float, bounds: Bounds) -> Floats:
    """Return the probability of at most a limit, log-normal on either side through 80 % intervals [-].

    Example:
        >>> import numpy as np
        >>> low, mid, high = np.array([8.0, 8.0]), np.array([10.0, 10.0]), np.array([15.0, 10.0])
        >>> compute_chances(15.0, Bounds(low, mid, high)).round(3).tolist()
        [0.9, 1.0]
    """
    import numpy as np

    low, mid, high = bounds
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.log(limit / mid)
        spread = np.where(limit >= mid, np.log(high / mid), np.log(mid / low)) / QUANTILE
        scores = np.where(spread > 0, distance / spread, np.where(limit >= mid, np.inf, -np.inf))
    scores = np.where(mid == 0, np.inf, scores)
    return np.array([0.5 * (1.0 + math.erf(score / math.sqrt(2.0))) for score in scores.tolist()])


def _find_alternatives(options: _Options, kept: Rows, taken: int) -> dict[str, Any]:
    """Return the best free option, the best paid one of clearly less money, and the best that ends clearly sooner.

    None is free if a free one is taken; an hour saved has a reasonable price.
    """
    time_s, cost_usd, is_free = options.offers.time_s, options.offers.cost_usd, options.offers.is_free
    saved_usd, saved_s = cost_usd[taken] - cost_usd[kept], time_s[taken] - time_s[kept]
    is_cheaper = (cost_usd[kept] <= CHEAPER_SHARE * cost_usd[taken]) & (saved_usd >= CHEAPER_USD)
    is_faster = (saved_s >= FASTER_S) & (time_s[kept] <= FASTER_SHARE * time_s[taken])
    is_worth_it = -saved_usd <= MOST_USD_PER_HOUR_SAVED * saved_s / SECONDS_PER_HOUR
    cheaper = options.best(kept[is_cheaper])
    return {
        "free": None if is_free[taken] else options.best(kept[is_free[kept]]),
        "cheaper": None if cheaper is None or is_free[cheaper] else cheaper,
        "faster": options.best(kept[is_faster & is_worth_it]),
    }


def _explain_staying(options: _Options, kept: Rows, taken: int) -> str:
    """Return that a free notebook would be ready later though it computes faster; empty where that is not why."""
    offers = options.offers
    if offers.contexts[taken].offer.provider != "local":
        return ""
    saved_s = offers.time_s[taken] - offers.time_s[kept]
    opening_s = (offers.own_h[kept] - offers.own_h[taken]) * SECONDS_PER_HOUR
    is_notebook = offers.is_free[kept] & (saved_s > 0) & (opening_s > 0)
    if not is_notebook.any() or (saved_s >= opening_s)[is_notebook].any():
        return ""
    return "A notebook takes longer to open than it saves."


def _explain_guess(offers: OfferTable, guessed: Mask, taken: int) -> str:
    """Return that this machine may do, but was not timed; empty where it is no better by its datasheet."""
    better = (guessed & (offers.total_usd < offers.total_usd[taken])).nonzero()[0]
    if not any(offers.contexts[row].offer.provider == "local" for row in better):
        return ""
    return "This machine may be enough, but was not timed: CPUs take 2 to 7 times as long as their datasheets say."


def _name_values(options: _Options, kept: Rows, taken: int, question: Question) -> str:
    """Return the values of hours as a sentence where half or double of one would change the choice; else empty."""
    offers, own_usd, wait_usd = options.offers, question.hour_value_usd, question.wait_value_usd
    for hours, usd in ((offers.own_h, own_usd), (offers.time_s / SECONDS_PER_HOUR, wait_usd)):
        for factor in RANGE_OF_VALUES:
            if options.best(kept, offers.total_usd + (factor - 1.0) * usd * hours) not in (taken, None):
                values = f"an hour of yours as ${own_usd:g} and one of waiting as ${wait_usd:g}"
                return f"Counts {values}: --hour-value, --wait-value."
    return ""


def _format_alternatives(picks: Decision, offers: OfferTable, words: DecisionWords) -> str:
    """Return the alternatives, each with its money and time, in one line."""
    parts, taken = [], picks.recommended
    for name, row in (("Free", picks.free), ("Cheaper", picks.cheaper), ("Faster", picks.faster)):
        if row is None or taken is None:
            continue
        extra = ""
        if name == "Faster" and (usd := offers.cost_usd[row] - offers.cost_usd[taken]) > 0:
            saved_h = (offers.time_s[taken] - offers.time_s[row]) / SECONDS_PER_HOUR
            extra = f" ({words.currency.format_amount(usd / saved_h)} an hour saved)"
        parts.append(f"{name}: {words.describe(row, with_cost=name != 'Free')}{extra}.")
    return " ".join(parts)


def _explain_nothing(options: _Options, question: Question, words: DecisionWords) -> Decision:
    """Return why nothing is taken, with the nearest miss in each direction."""
    offers = options.offers
    if not options.rows.size:
        why, hint = _explain_obstacle(offers, words.workload)
        return Decision(lines=(f"No: {why}.",), hint=hint)
    ends = [("fastest", offers.time_s, question.deadline_s), ("cheapest", offers.cost_usd, question.budget_usd)]
    missed: dict[int, str] = {}
    for name, column, limit in ends:
        row = find_first(options.rows, column, offers.total_usd)
        if limit is not None and row is not None:
            missed.setdefault(row, f"The {name} is {words.describe(row, with_range=True)}.")
    limits = [] if question.deadline_s is None else [f"a deadline of {format_duration(question.deadline_s)}"]
    limits += [] if question.budget_usd is None else [f"a budget of ${question.budget_usd:g}"]
    lines = (f"No: nothing is likely to keep {' and '.join(limits)}.", " ".join(missed.values()))
    return Decision(lines=lines, nearest=tuple(missed), hint="allow more time or money, or train less")


def _explain_obstacle(offers: OfferTable, workload: Workload) -> tuple[str, str | None]:
    """Return why nothing can be taken, and what helps if that is memory, a missing prediction or the quota."""
    estimates = [offers.runs[run].device_estimate for run in offers.run_of.tolist()]
    sizes = [one.memory for one in estimates if one.memory.fits is not None]
    if sizes and not any(size.fits for size in sizes):
        needed = f"it needs {sizes[0].needed_bytes / GIB:.1f} GiB a device"
        what = f"`{workload.model}` at batch size {workload.batch_size}"
        largest = max(size.largest_batch_size or 0 for size in sizes)
        ways = (
            f"on {format_device(context.offer.accelerator, context.offer.devices)}, {way.remedy}"
            for context, one in zip(offers.contexts, estimates, strict=True)
            for way in one.remedies
            if way.fits
        )
        hint = f"try `--batch-size {largest}` or less"
        if not largest:
            way = next(ways, "try `--precision bfloat16`, or devices with more memory")
            hint = f"not even one sample fits: {way}"
        return f"{what} fits on none of {len(sizes)} offers: {needed}", hint
    pairs = zip(offers.contexts, estimates, strict=True)
    fitting = [(one.offer.devices, estimate) for one, estimate in pairs if estimate.memory.fits is not False]
    steps = [estimate.step_time for _, estimate in sorted(fitting, key=lambda pair: pair[0])]
    failed = [step for step in steps if isinstance(step, NoPrediction)]
    if failed and len(failed) == len(steps):
        where = f"any of {len(steps)} offers" + (" that hold it" if len(steps) < len(offers) else "")
        return f"no step time can be predicted on {where}: {failed[0].reason}", failed[0].hint or OTHER_PREDICTION
    refused = next((one for one in offers.contexts if one.is_refused), None)
    if refused is not None:
        return "the account's quotas allow none of the offers", refused.needs
    least = min((context.offer.devices for context in offers.contexts), default=0)
    if least > 1:
        names = " or ".join(sorted({context.offer.accelerator for context in offers.contexts}))
        rented = f"{names} is rented from {least:g} up: `--devices {least:g}` plans all of them"
        return f"{workload.model} uses one device, and {rented}", None
    what = f"{workload.model} at batch {workload.batch_size}"
    return f"no offer that can be had runs {what} in a known time at a known price", None


def _explain_quota(offers: OfferTable, question: Question, taken: int, words: DecisionWords) -> str:
    """Return what would be taken if the account's quota allowed it; empty for the same."""
    if not offers.refused.any():
        return ""
    row = _Options.of(offers, question, offers.takable | offers.refused).take()
    if row is None or not offers.refused[row] or offers.total_usd[row] >= offers.total_usd[taken]:
        return ""
    return f"Ruled out by your quota: {words.describe(row)}; {offers.contexts[row].needs}"


def _explain_input(taken: OfferEstimate, question: Question, workload: Workload) -> str:
    """Return the sentence on an input pipeline that limits the devices; empty where it feeds enough."""
    able_per_s, rate, measured = taken.device_estimate.able_per_s, taken.samples_per_s, workload.input
    device = format_device(taken.offer.accelerator, taken.offer.devices)
    if question.feed is None and measured is not None and measured.kind != "arrays" and rate is not None:
        here = measured.samples_per_s
        if here is None:
            return f"Your loader could not be measured: {device} takes {rate.mid:,.0f} samples/s."
        if able_per_s is None:
            return ""
        there = "" if abs(rate.mid / here - 1) < SAME_RATE else f", about {rate.mid:,.0f} there"
        return f"Your loader feeds {here:,.0f} samples/s here{there}; {device} could take {able_per_s:,.0f}."
    if able_per_s is None or rate is None:
        return ""
    return f"The input feeds {rate.mid:,.0f} samples/s; {device} could take {able_per_s:,.0f}."
