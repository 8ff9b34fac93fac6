"""Output of comparisons: break-even analysis, purchase of a machine versus rent, and sweeps."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..offers.clouds import TITLES
from ..plan.buy_or_rent import FARTHEST_MONTHS, SCHEMA
from ..plan.decision_words import DecisionWords, format_cost, name_offer
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
from .output import Column, emit_document, emit_rows, emit_text, emit_tsv, get_terminal_width

if TYPE_CHECKING:
    from ..plan.alternatives import Alternative
    from ..plan.breakeven import Breakeven
    from ..plan.buy_or_rent import BuyOrRent, MonthlyWork
    from ..plan.crossovers import Crossover
    from ..plan.sweep import SweepResult, SweepTrial


ROWS_SHOWN, MONTHS_SHOWN = 10, 36
RANGES_FROM_WIDTH = 100  # of costs; times always have theirs


def _emit_answer(
    document: dict[str, Any], screen: Callable[[], None], *, tsv: Sequence[str], rows: str, as_json: bool
) -> None:
    """Write to standard output: JSON, a screen on a terminal, or TSV of one member of the document in a pipe."""
    if as_json:
        emit_document(document)
    elif sys.stdout.isatty():
        screen()
    else:
        emit_tsv(tsv, [_flatten(row) for row in document[rows]])


def _flatten(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its intervals as numbers: the central estimate, and the ends under names of their own."""
    flat = dict(row)
    for key, value in row.items():
        if isinstance(value, dict) and "mid" in value:
            flat |= {key: value["mid"], f"{key}_low": value["low"], f"{key}_high": value["high"]}
    return flat


def _emit_screen(head: Iterable[str], columns: Sequence[Column], rows: Any, below: Iterable[str]) -> None:
    """Print the answer, a table and what is to be known of it, wrapped between words; an empty line is a gap."""
    width = get_terminal_width()

    def wrap(lines: Iterable[str]) -> str:
        wrapped = (textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) for text in lines)
        return "".join(f"{line}\n" for lines in wrapped for line in (lines or [""]))

    emit_text(wrap(head))
    emit_rows(columns, rows)
    emit_text("\n" + wrap(line for line in below if line))


_MACHINE, _TIME, _COST = (Column(key=name, header=name) for name in ("machine", "time", "cost"))
_TOTAL = Column(key="total", header="total", justify="right", dispensable=1)
_RUNS, _OWN = (
    Column(key="runs", header="runs", justify="right"),
    Column(key="own", header="hands-on", justify="right"),
)
_COLUMNS = [_RUNS, _MACHINE, _TIME, _COST, _OWN, _TOTAL]
_TSV = (
    "name", "provider", "instance_type", "accelerator", "devices", "region", "purchase", "usd_per_hour",
    "price_as_of", "sessions", "machine_h", "calendar_h", "own_h", "money_usd_low", "money_usd",
    "money_usd_high", "own_time_usd", "total_usd",
)  # fmt: skip


def emit_breakeven(result: Breakeven, *, as_json: bool) -> None:
    """Write a comparison to standard output: JSON, a table on a terminal, or TSV in a pipe."""
    document, screen = build_breakeven_json(result), partial(_emit_breakeven_screen, result)
    _emit_answer(document, screen, tsv=_TSV, rows="ways", as_json=as_json)


def _emit_breakeven_screen(result: Breakeven) -> None:
    decision, question = result.estimate.decision, result.question
    flags = " (--hour-value, --wait-value)" if decision.values else ""
    hours = f"${question.hour_value_usd:g} an hour hands-on + ${question.wait_value_usd:g} an hour of waiting"
    head = [*format_verdict(result), "", format_title(result.estimate), f"total: cost + {hours}{flags}"]
    below = [
        *(f"Needs {text}." for text in decision.needs if not result.named),
        _format_uncertainty(result),
        format_age_line(one.offer.offer for one in result.alternatives),
    ]
    _emit_screen(head, _COLUMNS, _build_runs_rows(result), below)


def build_breakeven_json(result: Breakeven) -> dict[str, Any]:
    """Return the JSON object: the answer in a sentence, then the comparison."""
    return {"verdict": " ".join(format_verdict(result)), **result.to_json()}


def format_verdict(result: Breakeven) -> list[str]:
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


def _build_runs_rows(result: Breakeven) -> list[dict[str, Any]]:
    """Format the best alternatives at each number of runs."""
    names, currency = _name_alternatives(result.alternatives), result.estimate.terms.currency
    with_range, rows = get_terminal_width() >= RANGES_FROM_WIDTH, []
    for runs in result.totals:
        for place, way in enumerate(result.list_worthwhile(runs)[: min(4, ROWS_SHOWN // len(result.totals))]):
            rows.append(
                {
                    "runs": f"{runs:,}" if place == 0 else "",
                    "machine": names[way.name],
                    "time": format_duration_range(way.time_s),
                    "cost": format_cost(way.money_usd, currency, with_range=with_range),
                    "own": format_duration(way.offer.own_h * SECONDS_PER_HOUR),
                    "total": currency.format_amount(way.total_usd),
                }
            )
    return rows


_RIG_COLUMNS = [
    _MACHINE,
    Column(key="hours", header="h/week", justify="right"),
    Column(key="price", header="$/h", justify="right", dispensable=1),
    Column(key="cost", header="a month"),
    Column(key="year", header="3 years", justify="right"),
    Column(key="months", header="pays off, months"),
]
_RIG_TSV = (
    "provider", "instance_type", "region", "purchase", "usd_per_hour", "speed", "hours_a_week",
    "months_to_break_even", "months_low", "months_high",
)  # fmt: skip
_RIG_TERMS = (
    "value_lost_per_year", "power_w", "idle_power_w", "electricity_usd_per_kwh", "hours_a_week",
)  # fmt: skip


def emit_rig(result: BuyOrRent, *, as_json: bool) -> None:
    """Write the comparison to standard output: JSON, a table on a terminal, or TSV in a pipe."""
    document, screen = build_rig_json(result), partial(_emit_rig_screen, result)
    _emit_answer(document, screen, tsv=_RIG_TSV, rows="rivals", as_json=as_json)


def _emit_rig_screen(result: BuyOrRent) -> None:
    rig, asked = result.rig, result.question
    value, power = f"{100 * rig.value_lost_per_year:.0f} % of value lost a year", f"{rig.power_w:g} W"
    hours = "" if asked is None else f", hours ${asked.hour_value_usd:g}, waits ${asked.wait_value_usd:g}"
    below = [
        f"Counted: {value}, {power}, ${rig.electricity_usd_per_kwh:g} a kWh{hours}.",
        format_age_line(one.selected.offer for one in result.rentals),
    ]
    rows = [_build_rig_row(result, one) for one in (result.own, *result.rentals)]
    _emit_screen([format_rig_recommendation(result), ""], _RIG_COLUMNS, rows, below)


def build_rig_json(result: BuyOrRent) -> dict[str, Any]:
    """Return the JSON object."""
    return {
        "schema": SCHEMA,
        "verdict": format_rig_recommendation(result),
        "rig": {
            "accelerator": result.own.selected.offer.accelerator,
            "purchase_usd": f"{result.rig.purchase_usd:.2f}",
            **{name: getattr(result.rig, name) for name in _RIG_TERMS},
        },
        "rivals": [result.rival_json(one) for one in result.rentals],
    }


def format_rig_recommendation(result: BuyOrRent) -> str:
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


def _build_rig_row(result: BuyOrRent, work: MonthlyWork) -> dict[str, Any]:
    """Format the machine to buy, or one to rent."""
    offer, is_own = work.selected.offer, work is result.own
    total_usd = result.owning_usd(MONTHS_SHOWN) if is_own else MONTHS_SHOWN * work.total_usd.mid
    with_range = get_terminal_width() >= RANGES_FROM_WIDTH
    name = f"yours: {format_device(offer.accelerator, offer.devices)}" if is_own else name_offer(offer)
    return {
        "machine": name,
        "hours": format_short(work.hours_a_week),
        "price": format_usd(work.money_usd.mid / work.hours * float(result.currency.per_usd)),
        "cost": format_cost(work.money_usd, result.currency, with_range=with_range),
        "year": result.currency.format_amount(total_usd),
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


_SWEEP_COLUMNS = [
    Column(key="batch", header="batch", justify="right"),
    Column(key="precision", header="precision"),
    _MACHINE,
    _TIME,
    _COST,
    _TOTAL,
]
_SWEEP_TSV = (
    "batch_size", "global_batch_size", "precision", "provider", "instance_type", "accelerator", "devices",
    "region", "purchase", "run_time_s", "cost_usd", "memory_bytes", "basis", "limiter", "best",
)  # fmt: skip


def emit_sweep(result: SweepResult, *, as_json: bool) -> None:
    """Write a sweep to standard output: JSON, each trial on a terminal, or all points as TSV."""
    document, screen = build_sweep_json(result), partial(_emit_sweep_screen, result)
    _emit_answer(document, screen, tsv=_SWEEP_TSV, rows="points", as_json=as_json)


def _emit_sweep_screen(result: SweepResult) -> None:
    trials = result.trials[:ROWS_SHOWN]
    below = [
        *(f"Batch {size:,} in {precision}: {reason}." for size, precision, reason in result.failed[:2]),
        "Another global batch is another training." if len({one.batch_size for one in trials}) > 1 else "",
        format_age_line(one.taken.offer for one in trials),
    ]
    head = [*format_sweep_verdict(result), "", f"{result.context.workload.model}, ordered by total"]
    _emit_screen(head, _SWEEP_COLUMNS, [_build_sweep_row(one) for one in trials], below)


def build_sweep_json(result: SweepResult) -> dict[str, Any]:
    """Return the JSON object: the answer in a sentence, then all points."""
    return {"verdict": " ".join(format_sweep_verdict(result)), **result.to_json()}


def format_sweep_verdict(result: SweepResult) -> list[str]:
    """Return the best trial, and money and time of all."""
    best = result.trials[0]
    sentence = best.estimate.decision.lines[0]
    first = f"Batch {best.batch_size:,} in {best.precision}: {sentence[0].lower()}{sentence[1:]}"
    count, currency = len(result.trials), result.context.terms.currency
    if count == 1:
        return [first]
    money, time = format_cost(result.money_usd, currency, with_range=True), format_duration_range(result.time_s)
    return [first, f"All {count} trials, each on its best machine: {money}, {time} one after the other."]


def _build_sweep_row(trial: SweepTrial) -> dict[str, Any]:
    """Format a trial on the machine that is taken for it."""
    one, estimate = trial.taken, trial.estimate
    words = DecisionWords([one], estimate.terms.currency, estimate.workload)
    return {
        "batch": f"{trial.batch_size:,}",
        "precision": trial.precision,
        "machine": name_offer(one.offer),
        "time": words.time(one, with_range=True),
        "cost": words.cost(one, with_range=get_terminal_width() >= RANGES_FROM_WIDTH),
        "total": estimate.terms.currency.format_amount(one.total_usd or 0.0),
    }
