"""Decision of what to take: the least total of what can be had, with its alternatives, in a few sentences."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..offers.rows import CPU
from ..units import SECONDS_PER_HOUR, format_device, format_duration
from .decision_words import DecisionWords
from .estimate import Decision
from .ranking import Bounds, compute_cost_bounds, compute_time_bounds, find_first

if TYPE_CHECKING:
    from ..workload.model import Workload
    from .cost_terms import Currency
    from .offer_estimate import OfferEstimate
    from .question import Question
    from .ranking import Floats, Mask, RankedOffers, Rows


SURE, LIKELY = 0.9, 0.5  # least probabilities of what is taken, and of what is taken with a warning [-]
CHEAPER_SHARE, CHEAPER_USD = 0.8, 1.0
FASTER_SHARE, FASTER_S = 0.8, 600.0
MOST_USD_PER_HOUR_SAVED = 100.0
QUANTILE = 1.2815515655446004  # of the standard normal distribution at 90 %
SAME_RATE = 0.05  # relative difference up to which a loader is as fast elsewhere [-]
RANGE_OF_VALUES = (0.5, 2.0)  # plausible values of hours, relative to the stated ones [-]


def decide(ranked: RankedOffers, question: Question, *, workload: Workload, currency: Currency) -> Decision:
    """Return the decision on ranked offers.

    Args:
        ranked: Offers in order.
        question: Deadline, budget, and values of the user's and the waiting hours.
        workload: Workload of the run.
        currency: Currency of the sentences.
    """
    if question.refuses(workload):
        return Decision(lines=(workload.why_partial,))
    options = _Options.of(ranked, question, _leave_out_guesses(ranked))
    taken = options.take()
    words = DecisionWords(ranked.offers, currency, workload)
    if taken is None:
        return _explain_nothing(ranked, options, question, words)
    chance = options.chance_of(taken)
    is_had = not words.marks(ranked.offers[taken])
    kept = options.rows[(options.chance >= SURE) & is_had]  # beside what is gone, nothing else is offered
    picks = Decision(
        recommended=taken,
        free=_find_free(options, kept, taken),
        cheaper=_find_cheaper(options, kept, taken),
        faster=_find_faster(options, kept, taken),
        probability=chance if question.has_limits else None,
        values=_name_values(options, kept, taken, question),
        kept=tuple(options.rows[options.chance >= min(SURE, chance)].tolist()),
    )
    needs = ranked.offers.contexts[taken].needs
    lines = (
        workload.why_partial,
        words.take(taken, None if chance >= SURE else chance),
        _explain_staying(options, kept, taken, words),
        _format_alternatives(picks, options, words),
        words.doubt(taken) if chance < SURE else "",
        words.changes(taken),
        _explain_input(ranked.offers[taken], question, workload),
        _explain_quota(ranked, question, options, taken, words),
    )
    return replace(picks, lines=tuple(filter(None, lines)), needs=(needs,) if needs else ())


def _leave_out_guesses(ranked: RankedOffers) -> Mask:
    """Return a mask of the offers to choose from: no CPU timed by its datasheet alone, unless that is all.

    Two quiet cores were 2 to 7 times slower than so predicted (CNNs; Keras on JAX).
    """
    import numpy as np

    offers = ranked.offers
    bases = (getattr(run.device_estimate.step_time, "basis", "") for run in offers.runs)
    guessed = np.array([basis == "datasheet" for basis in bases], dtype=bool)[offers.run_of]
    cpus = np.array([context.offer.accelerator == CPU for context in offers.contexts], dtype=bool)
    known = ranked.takable & ~(guessed & cpus)
    return known if known.any() else ranked.takable


class _Options(NamedTuple):
    """Offers that can be taken, with the probability that each keeps deadline and budget."""

    rows: Rows
    chance: Floats
    time_s: Floats
    cost_usd: Floats
    total_usd: Floats
    own_h: Floats
    late: Mask
    is_free: Mask

    @classmethod
    def of(cls, ranked: RankedOffers, question: Question, takable: Mask) -> _Options:
        """Return the options among some offers; columns besides `rows` and `chance` are of all offers."""
        import numpy as np

        offers, rows = ranked.offers, np.flatnonzero(takable)
        if offers.total_usd is None:
            raise ValueError("the offers are not ranked")
        chance = np.ones(len(rows))
        if question.deadline_s is not None:
            chance = compute_chances(question.deadline_s, compute_time_bounds(ranked, rows))
        if question.budget_usd is not None:
            within = compute_chances(question.budget_usd, compute_cost_bounds(ranked, rows))
            chance = np.minimum(chance, within)  # a longer run is a dearer one: they fail together
        columns = (ranked.time_s, ranked.cost_usd, offers.total_usd, offers.own_h, offers.is_late, offers.is_free)
        return cls(rows, chance, *columns)

    def best(self, rows: Rows, totals: Floats | None = None) -> int | None:
        """Return the row of least total; equal ones by what is sure to be had, money, time and effort."""
        total = (self.total_usd if totals is None else totals).round(9)
        return find_first(rows, total, self.late, self.cost_usd, self.time_s, self.own_h)

    def take(self) -> int | None:
        """Return the best row that surely keeps the limits, or else the likeliest; None for none."""
        best = self.best(self.rows[self.chance >= SURE])
        if best is not None or not self.rows.size or (most := self.chance.max()) < LIKELY:
            return best
        return self.best(self.rows[self.chance == most])

    def chance_of(self, row: int) -> float:
        """Return the probability that an option keeps deadline and budget."""
        return float(self.chance[self.rows == row][0])


def compute_chances(limit: float, bounds: Bounds) -> Floats:
    """Return the probability of at most a limit, log-normal on either side through 80 % intervals [-].

    Args:
        limit: Longest time or highest cost.
        bounds: 10 %, 50 % and 90 % quantiles.

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


def _find_free(options: _Options, kept: Rows, taken: int) -> int | None:
    """Return the best free option, unless a free one is taken."""
    return None if options.is_free[taken] else options.best(kept[options.is_free[kept]])


def _find_cheaper(options: _Options, kept: Rows, taken: int) -> int | None:
    """Return the best option of clearly less money; None if it is free."""
    usd, cost = options.cost_usd[taken], options.cost_usd[kept]
    best = options.best(kept[(cost <= CHEAPER_SHARE * usd) & (usd - cost >= CHEAPER_USD)])
    return None if best is None or options.is_free[best] else best


def _find_faster(options: _Options, kept: Rows, taken: int) -> int | None:
    """Return the best option that ends clearly sooner, at a reasonable price of an hour saved."""
    saved_s = options.time_s[taken] - options.time_s[kept]
    extra = options.cost_usd[kept] - options.cost_usd[taken]
    is_faster = (saved_s >= FASTER_S) & (options.time_s[kept] <= FASTER_SHARE * options.time_s[taken])
    return options.best(kept[is_faster & (extra <= MOST_USD_PER_HOUR_SAVED * saved_s / SECONDS_PER_HOUR)])


def _explain_staying(options: _Options, kept: Rows, taken: int, words: DecisionWords) -> str:
    """Return that a free notebook would be ready later though it computes faster; empty where that is not why."""
    if words.offers[taken].offer.provider != "local":
        return ""
    saved_s = options.time_s[taken] - options.time_s[kept]
    opening_s = (options.own_h[kept] - options.own_h[taken]) * SECONDS_PER_HOUR
    is_notebook = options.is_free[kept] & (saved_s > 0) & (opening_s > 0)
    if not is_notebook.any() or (saved_s >= opening_s)[is_notebook].any():
        return ""
    return "A notebook takes longer to open than it saves."


def _name_values(options: _Options, kept: Rows, taken: int, question: Question) -> str:
    """Return the values of hours as a sentence where half or double of one would change the choice; else empty."""
    wall_h = options.time_s / SECONDS_PER_HOUR
    for hours, usd in ((options.own_h, question.hour_value_usd), (wall_h, question.wait_value_usd)):
        for factor in RANGE_OF_VALUES:
            if options.best(kept, options.total_usd + (factor - 1.0) * usd * hours) not in (taken, None):
                own, wait = f"${question.hour_value_usd:g}", f"${question.wait_value_usd:g}"
                return (
                    f"Counts an hour of yours as {own} and one of waiting as {wait}: --hour-value, --wait-value."
                )
    return ""


def _format_alternatives(picks: Decision, options: _Options, words: DecisionWords) -> str:
    """Return the alternatives, each with its money and time, in one line."""
    parts = []
    for name, row in (("Free", picks.free), ("Cheaper", picks.cheaper), ("Faster", picks.faster)):
        if row is None or picks.recommended is None:
            continue
        extra = ""
        if name == "Faster":
            usd = options.cost_usd[row] - options.cost_usd[picks.recommended]
            saved_h = (options.time_s[picks.recommended] - options.time_s[row]) / SECONDS_PER_HOUR
            extra = f" ({words.currency.format_amount(usd / saved_h)} an hour saved)" if usd > 0 else ""
        parts.append(f"{name}: {words.describe(row, with_cost=name != 'Free')}{extra}.")
    return " ".join(parts)


def _explain_nothing(
    ranked: RankedOffers, options: _Options, question: Question, words: DecisionWords
) -> Decision:
    """Return why nothing is taken, with the nearest miss in each direction."""
    if not options.rows.size:
        return Decision(lines=(_name_obstacle(ranked, words.workload),))
    ends = [("fastest", options.time_s, question.deadline_s), ("cheapest", options.cost_usd, question.budget_usd)]
    missed: dict[int, str] = {}
    for name, column, limit in ends:
        row = find_first(options.rows, column, options.total_usd)
        if limit is not None and row is not None:
            missed.setdefault(row, f"The {name} is {words.describe(row, with_range=True)}.")
    lines = (f"No: nothing is likely to keep {format_limits(question)}.", " ".join(missed.values()))
    return Decision(lines=lines, nearest=tuple(missed))


def _name_obstacle(ranked: RankedOffers, workload: Workload) -> str:
    """Return why nothing can be taken, for a model with the devices and prices of the offers."""
    contexts = ranked.offers.contexts
    least = min((context.offer.devices for context in contexts), default=0)
    if least > 1:
        names = " or ".join(sorted({context.offer.accelerator for context in contexts}))
        return (
            f"No: {workload.model} uses one device, and {names} is rented from {least:g} up: "
            f"`--devices {least:g}` plans all of them."
        )
    what = f"{workload.model} at batch {workload.batch_size}"
    return f"No: no offer that can be had runs {what} in a known time at a known price."


def _explain_quota(
    ranked: RankedOffers, question: Question, options: _Options, taken: int, words: DecisionWords
) -> str:
    """Return what would be taken if the account's quota allowed it; empty for the same."""
    if not ranked.refused.any():
        return ""
    row = _Options.of(ranked, question, ranked.takable | ranked.refused).take()
    if (
        row is None
        or row == taken
        or not ranked.refused[row]
        or options.total_usd[row] >= options.total_usd[taken]
    ):
        return ""
    return f"Ruled out by your quota: {words.describe(row)}; {ranked.offers.contexts[row].needs}"


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


def format_limits(question: Question) -> str:
    """Return deadline and budget as words: `a deadline of 2.0 h and a budget of $5`."""
    limits = []
    if question.deadline_s is not None:
        limits.append(f"a deadline of {format_duration(question.deadline_s)}")
    if question.budget_usd is not None:
        limits.append(f"a budget of ${question.budget_usd:g}")
    return " and ".join(limits)
