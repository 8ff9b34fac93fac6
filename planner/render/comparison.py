"""Output of comparisons: break-even analysis, purchase of a machine versus rent, and sweeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..offers.clouds import TITLES
from ..plan.buy_or_rent import FARTHEST_MONTHS, SCHEMA
from ..plan.decision import DecisionWords, format_cost, name_offer
from ..units import (
    SECONDS_PER_HOUR,
    format_device,
    format_duration,
    format_duration_range,
    format_short,
    format_usd,
)
from .estimate_notes import format_age_line
from .estimate_screen import format_title
from .output import Answer, Row, Screen, get_terminal_width, make_columns, make_numbers

if TYPE_CHECKING:
    from ..plan.breakeven import Alternative, Breakeven
    from ..plan.buy_or_rent import BuyOrRent, MonthlyWork
    from ..plan.estimate import Crossover
    from ..plan.sweep import SweepResult, SweepTrial


ROWS_SHOWN, MONTHS_SHOWN = 10, 36
RANGES_FROM_WIDTH = 100  # of costs; times always have theirs


_MACHINE, _TIME, _COST = make_columns(machine="machine", time="time", cost="cost")
(_TOTAL,) = make_numbers(total="total", dispensable=1)
_COLUMNS = [*make_numbers(runs="runs"), _MACHINE, _TIME, _COST, *make_numbers(own="hands-on"), _TOTAL]
_TSV = (
    "name", "provider", "instance_type", "accelerator", "devices", "region", "purchase", "usd_per_hour",
    "price_as_of", "sessions", "machine_h", "calendar_h", "own_h", "money_usd_low", "money_usd",
    "money_usd_high", "own_time_usd", "total_usd",
)  # fmt: skip


def describe_breakeven(result: Breakeven) -> Answer:
    """Return the answer in a sentence, then the comparison."""
    document = {"verdict": " ".join(_format_verdict(result)), **result.to_json()}
    return Answer(document=document, rows="ways", tsv=_TSV, screen=partial(_build_breakeven_screen, result))


def _build_breakeven_screen(result: Breakeven) -> Screen:
    decision, question = result.estimate.decision, result.question
    flags = " (--hour-value, --wait-value)" if decision.values else ""
    hours = f"${question.hour_value_usd:g} an hour hands-on + ${question.wait_value_usd:g} an hour of waiting"
    head = [*_format_verdict(result), "", format_title(result.estimate), f"total: cost + {hours}{flags}"]
    below = [
        *(f"Needs {text}." for text in decision.needs if not result.named),
        _format_uncertainty(result),
        format_age_line((one.offer for one in result.totals[1]), result.estimate.terms),
    ]
    return head, _COLUMNS, _build_runs_rows(result), below


def _format_verdict(result: Breakeven) -> list[str]:
    """Return what to take for one run and from how many runs on something else, and the same by epochs."""
    first, names = result.totals[1][0], _name_alternatives(result.alternatives)
    words = DecisionWords([first.offer], result.estimate.terms.currency, result.estimate.workload)
    taken = words.take(0, None) if result.named else result.estimate.decision.lines[0]
    asked, turns = result.estimate.workload.total_epochs or 0, result.by_epochs or ()
    below = next((one for one in reversed(turns) if one.at <= asked), None)
    parts = [
        f"Below {below.at:,} epochs, {names[below.before]}." if below else "",
        _format_turns([one for one in turns if one.at > asked][:1], "epochs", names),
    ]
    epochs = " ".join(filter(None, parts))
    if epochs and result.runs > 1:
        epochs = f"At {result.runs:,} runs: {epochs[0].lower()}{epochs[1:]}"
    runs = _format_turns(result.by_runs[:2], "runs", names) or "The same for any number of runs."
    return list(filter(None, (result.estimate.decision.misfit, f"{taken} {runs}", epochs)))


def _format_turns(turns: Sequence[Crossover], what: str, names: dict[str, str]) -> str:
    """Return from which numbers on something else is the best; empty for none."""
    if not turns:
        return ""
    first, *others = turns
    more = "".join(f", from {one.at:,} on {names[one.to]}" for one in others)
    return f"From {first.at:,} {what} on, {names[first.to]}{more}."


def _name_alternatives(alternatives: Sequence[Alternative]) -> dict[str, str]:
    """Return each alternative as one speaks of it, with its name where others are spoken of alike."""
    spoken = {one.name: name_offer(one.offer.offer) for one in alternatives}
    count = Counter(spoken.values())
    return {name: f"{words} ({name})" if count[words] > 1 else words for name, words in spoken.items()}


def _format_uncertainty(result: Breakeven) -> str:
    """Return which notebooks may have no machine free, unless the chance is given; empty for none."""
    limited = [one.offer.selected for one in result.alternatives if one.offer.selected.limits is not None]
    if result.estimate.terms.given("chance") is not None or not limited:
        return ""
    names = sorted({TITLES.get(one.offer.provider, one.offer.provider) for one in limited})
    return f"Not counted: {' or '.join(names)} having none free (--assume chance=0.7)."


def _build_runs_rows(result: Breakeven) -> list[Row]:
    """Format the best alternatives at each number of runs."""
    names, currency = _name_alternatives(result.alternatives), result.estimate.terms.currency
    with_range, most = get_terminal_width() >= RANGES_FROM_WIDTH, min(4, ROWS_SHOWN // len(result.totals))
    return [
        {
            "runs": f"{runs:,}" if place == 0 else "",
            "machine": names[way.name],
            "time": format_duration_range(way.time_s),
            "cost": format_cost(way.money_usd, currency, with_range=with_range),
            "own": format_duration(way.offer.own_h * SECONDS_PER_HOUR),
            "total": currency.format_amount(way.total_usd),
        }
        for runs in result.totals
        for place, way in enumerate(result.list_worthwhile(runs)[:most])
    ]


_RIG_COLUMNS = [
    _MACHINE,
    *make_numbers(hours="h/week"),
    *make_numbers(price="$/h", dispensable=1),
    *make_columns(cost="a month"),
    *make_numbers(year="3 years"),
    *make_columns(months="pays off, months"),
]
_RIG_TSV = (
    "provider", "instance_type", "region", "purchase", "usd_per_hour", "speed", "hours_a_week",
    "months_to_break_even", "months_low", "months_high",
)  # fmt: skip
_RIG_TERMS = ("value_lost_per_year", "power_w", "idle_power_w", "electricity_usd_per_kwh", "hours_a_week")


def describe_rig(result: BuyOrRent) -> Answer:
    """Return the answer in a sentence, then the machine to buy and those to rent."""
    rig = {
        "accelerator": result.own.selected.offer.accelerator,
        "purchase_usd": f"{result.rig.purchase_usd:.2f}",
        **{name: getattr(result.rig, name) for name in _RIG_TERMS},
    }
    rivals = [result.rival_json(one) for one in result.rentals]
    document = {"schema": SCHEMA, "verdict": _format_rig_verdict(result), "rig": rig, "rivals": rivals}
    return Answer(document=document, rows="rivals", tsv=_RIG_TSV, screen=partial(_build_rig_screen, result))


def _build_rig_screen(result: BuyOrRent) -> Screen:
    rig, asked = result.rig, result.question
    value, power = f"{100 * rig.value_lost_per_year:.0f} % of value lost a year", f"{rig.power_w:g} W"
    hours = "" if asked is None else f", hours ${asked.hour_value_usd:g}, waits ${asked.wait_value_usd:g}"
    below = [f"Counted: {value}, {power}, ${rig.electricity_usd_per_kwh:g} a kWh{hours}."]
    rows = [_build_rig_row(result, one) for one in (result.own, *result.rentals)]
    return [_format_rig_verdict(result), ""], _RIG_COLUMNS, rows, below


def _format_rig_verdict(result: BuyOrRent) -> str:
    """Return whether to buy, compared with the best machine to rent, and after how long that pays off."""
    best, offer, rig = result.rentals[0], result.own.selected.offer, result.rig
    rent, cost = name_offer(best.selected.offer), format_cost(best.money_usd, result.currency, with_range=True)
    months, paid = _format_months(result, best), "free" if cost == "free" else f"{cost} a month"
    device = format_device(offer.accelerator, offer.devices)
    bought = f"at {rig.hours_a_week:g} h a week the {device} for {result.currency.format_amount(rig.purchase_usd)}"
    after = {"never": "never pays off", "0": "pays off at once"}.get(months, f"pays off after {months}")
    after = after.replace(" (", " months (", 1)
    if result.is_worth_buying:
        return f"Buy it: {bought} {after}, against {rent}, {paid}."
    choice = "Do not buy" if cost == "free" else "Rent"
    return f"{choice}: {rent} does the same work, {paid}; {bought} {after}."


def _build_rig_row(result: BuyOrRent, work: MonthlyWork) -> Row:
    offer, is_own, currency = work.selected.offer, work is result.own, result.currency
    with_range = get_terminal_width() >= RANGES_FROM_WIDTH
    return {
        "machine": f"yours: {format_device(offer.accelerator, offer.devices)}" if is_own else name_offer(offer),
        "hours": format_short(work.hours_a_week),
        "price": format_usd(work.money_usd.mid / work.hours * float(currency.per_usd)),
        "cost": format_cost(work.money_usd, currency, with_range=with_range),
        "year": currency.format_amount(
            result.owning_usd(MONTHS_SHOWN) if is_own else MONTHS_SHOWN * work.total_usd.mid
        ),
        "months": "" if is_own else _format_months(result, work),
    }


def _format_months(result: BuyOrRent, work: MonthlyWork) -> str:
    """Return the number of months after which buying pays off, over the range of the rent."""
    total_usd = work.total_usd
    low, mid, high = (result.find_months(usd) for usd in (total_usd.high, total_usd.mid, total_usd.low))
    if low is None or high == 0:
        return "never" if low is None else "0"
    middle = f"over {FARTHEST_MONTHS}" if mid is None else format_short(mid)
    return f"{middle} ({format_short(low)}–{'never' if high is None else format_short(high)})"


_SWEEP_COLUMNS = [*make_numbers(batch="batch"), *make_columns(precision="precision")]
_SWEEP_COLUMNS += [_MACHINE, _TIME, _COST, _TOTAL]
_SWEEP_TSV = (
    "batch_size", "global_batch_size", "precision", "provider", "instance_type", "accelerator", "devices",
    "region", "purchase", "run_time_s", "cost_usd", "memory_bytes", "basis", "limiter", "best",
)  # fmt: skip


def describe_sweep(result: SweepResult) -> Answer:
    """Return the answer in a sentence, then all points, of which a terminal shows the best of each trial."""
    document = {"verdict": " ".join(_format_sweep_verdict(result)), **result.to_json()}
    return Answer(document=document, rows="points", tsv=_SWEEP_TSV, screen=partial(_build_sweep_screen, result))


def _build_sweep_screen(result: SweepResult) -> Screen:
    trials = result.trials[:ROWS_SHOWN]
    sizes = {one.estimate.workload.batch_size for one in trials}
    below = [
        *(f"Batch {size:,} in {precision}: {reason}." for size, precision, reason in result.failed[:2]),
        "Another global batch is another training." if len(sizes) > 1 else "",
        format_age_line((one.taken for one in trials), result.context.terms),
    ]
    head = [*_format_sweep_verdict(result), "", f"{result.context.workload.model}, ordered by total"]
    return head, _SWEEP_COLUMNS, [_build_sweep_row(one) for one in trials], below


def _format_sweep_verdict(result: SweepResult) -> list[str]:
    """Return the best trial, and money and time of all."""
    best = result.trials[0]
    sentence = best.estimate.decision.lines[0]
    work = best.estimate.workload
    first = f"Batch {work.batch_size:,} in {work.precision}: {sentence[0].lower()}{sentence[1:]}"
    count, currency = len(result.trials), result.context.terms.currency
    if count == 1:
        return [first]
    money, time = format_cost(result.money_usd, currency, with_range=True), format_duration_range(result.time_s)
    return [first, f"All {count} trials, each on its best machine: {money}, {time} one after the other."]


def _build_sweep_row(trial: SweepTrial) -> Row:
    one, estimate = trial.taken, trial.estimate
    words = DecisionWords([one], estimate.terms.currency, estimate.workload)
    return {
        "batch": f"{estimate.workload.batch_size:,}",
        "precision": estimate.workload.precision,
        "machine": name_offer(one.offer),
        "time": words.time(one, with_range=True),
        "cost": words.cost(one, with_range=get_terminal_width() >= RANGES_FROM_WIDTH),
        "total": estimate.terms.currency.format_amount(one.total_usd or 0.0),
    }
