"""Screen of an estimate: the decision, the workload, at most ten offers, and what is to be known of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ..offers.clouds import OWNED
from ..plan.memory import memory_note
from ..plan.offer_table import OfferTable
from ..units import format_count, format_device
from .estimate_notes import format_age_line, format_explanation
from .offer_columns import BY_NAME
from .output import Column, clip, emit_rows, emit_text

if TYPE_CHECKING:
    from ..plan.estimate import Estimate
    from ..workload.model import Workload

ROWS_SHOWN = 10
PHASES_SHOWN = 4
WIDE = 100  # width from which a table has its regions [characters]
SCRIPT_ENDINGS = (".py", ".ipynb", ".keras", ".h5", ".json")
WORTH_A_CHANGE_S = 600.0
LARGE_SHARE = 0.05  # of the bytes of a step, from which what is not modelled is told [-]
LITTLE_DATA_BYTES = 1e9  # a quarter of a minute's download
DOWNLOAD = "Plus the download of your data: about 1 min per 5 GB (--assume dataset_gb=5)."
MARKS = {"recommended": "take", "free": "free", "cheaper": "cheaper", "faster": "faster"}


def emit_screen(estimate: Estimate, *, show_all: bool, explain: bool, width: int) -> None:
    """Write an estimate to a terminal of a width [characters], as `emit_estimate` says."""
    bought = () if estimate.budget_epochs is None else (estimate.budget_epochs.sentence,)
    said = filter(None, (estimate.decision.misfit, *estimate.decision.lines, *bought))
    decided = [line for text in said for line in wrap(text, width)]
    emit_text("\n".join([*decided, "", *_wrap_title(format_title(estimate), width), ""]))
    shown = list(range(len(estimate.offers))) if show_all else select_shown_offers(estimate)
    columns = pick_columns(estimate, width, by_instance=show_all)
    emit_rows(columns, build_cells(estimate, shown, [column.key for column in columns]))
    hidden = len(estimate.offers) - len(shown)
    more = [f"and {hidden:,} more offer{'' if hidden == 1 else 's'}: --all"] if hidden else []
    below = [line for text in list_notes(estimate, shown) for line in wrap(text, width)]
    if explain:
        below += ["", *(line for text in format_explanation(estimate, shown) for line in wrap(text, width))]
    emit_text("\n".join([*more, *below, ""]))


def select_shown_offers(estimate: Estimate) -> list[int]:
    """Return the positions of the offers shown: the picked ones, then others by total or as sorted, ten together.

    The user's own machine and the best offer of each accelerator that was asked for have a row, though they are
    more; then follow the best offers of other accelerators, or of other numbers of those that were asked for, that
    no other beats in money, time and effort.
    """
    bought = () if estimate.budget_epochs is None else (estimate.budget_epochs.offer,)
    picked = list(dict.fromkeys([*estimate.decision.roles(), *estimate.decision.nearest, *bought]))
    ranks = _rank_by_total(estimate)
    best: dict[tuple[str, bool], int] = {}
    for index in ranks:
        offer = estimate.offers[index].offer
        best.setdefault((offer.accelerator, offer.provider == "local"), index)
    seen = {estimate.offers[index].offer.accelerator for index in picked}
    here = [index for (_, own), index in best.items() if own and index not in picked]
    named = [index for index in best.values() if estimate.options["accelerators"] and index not in picked]
    pool = ranks
    if estimate.undominated and estimate.options["sort"] == "cost":
        pool = [index for index in ranks if index in estimate.undominated]
    kinds, sizes = dict[str, int](), dict[tuple[str, float], int]()
    for index in pool:
        offer = estimate.offers[index].offer
        kinds.setdefault(offer.accelerator, index)
        sizes.setdefault((offer.accelerator, offer.devices), index)
    others = [index for name, index in kinds.items() if name not in seen]
    more = [index for index in sizes.values() if named and index not in picked]
    wanted = dict.fromkeys([*here, *named, *others, *more])
    room = max(ROWS_SHOWN - len(picked), len({*here, *named}))
    return [*picked, *sorted([*wanted][:room], key=ranks.index)]


def _rank_by_total(estimate: Estimate) -> list[int]:
    """Return what can be taken, by its total or as was asked for, then the best of each kind of machine."""
    order: Sequence[int] = estimate.takable
    if estimate.options["sort"] == "cost" and isinstance(estimate.offers, OfferTable):
        order = sorted(order, key=estimate.offers.total_usd.__getitem__)
    return list(dict.fromkeys([*order, *estimate.best_per_devices()]))


def pick_columns(estimate: Estimate, width: int, *, by_instance: bool = False) -> list[Column]:
    """Return the columns for a width [characters]: time and cost of the run, or of samples without a length.

    Instance type and region stand for the machine with `by_instance`.
    """
    is_known, is_served = estimate.workload.steps is not None, estimate.has_serving
    has_latency = is_served and any(one.serving and one.serving.latency_s for one in estimate.offers)
    has_layout = estimate.options.get("fit") or estimate.options.get("shard", "none") != "none"
    wanted: list[tuple[bool, str, int]] = [
        (True, "mark", 0),
        (not by_instance, "machine", 0),
        (by_instance, "accelerator", 0),
        (by_instance, "instance_type", 0),
        (by_instance or width >= WIDE, "region", 0 if by_instance else 1),
        (by_instance and width >= WIDE, "purchase", 2),
        (bool(has_layout), "layout", 4),
        (has_latency, "latency_s", 0),
        (is_served or not is_known, "samples_per_s", 0),
        (is_served or not is_known, "usd_per_million_samples", 0),
        (is_known and (not is_served or width >= WIDE), "run_time_s", 0),
        (is_known and (not is_served or width >= WIDE), "cost_usd", 0),
        (estimate.options["sort"] == "co2", "co2_kg", 0),
        (True, "usd_per_hour", 3),
    ]
    numbers = {column.name for column in BY_NAME.values() if column.is_number} - {"run_time_s", "cost_usd"}
    return [
        Column(
            key=key,
            header=BY_NAME[key].header,
            justify="right" if key in numbers else "left",
            format=partial(clip, width=32) if key in ("machine", "instance_type") else None,
            dispensable=dispensable,
        )
        for is_shown, key, dispensable in wanted
        if is_shown
    ]


def build_cells(estimate: Estimate, shown: Sequence[int], names: Sequence[str]) -> list[dict[str, str]]:
    """Return the texts of some columns for some offers, with the marks of the picked ones."""
    marks = {index: MARKS[roles[0]] for index, roles in estimate.decision.roles().items()}
    columns, currency = [BY_NAME[name] for name in names], estimate.terms.currency
    rows = []
    for index in shown:
        one = estimate.offers[index]
        mark = marks.get(index) or ("no quota" if one.selected.is_refused else "")
        if one.offer.provider == "local" and mark in ("", "take"):
            mark = "here"
        entry = {**one.to_json(), "mark": mark}
        rows.append({column.name: column.describe(entry, currency) for column in columns})
    return rows


def list_notes(estimate: Estimate, shown: Sequence[int]) -> list[str]:
    """Return what is needed to get the recommended offer, what is not counted and matters, and ages of prices."""
    takable, taken = set(estimate.takable), estimate.decision.recommended
    rows = [] if taken is None else [taken, *(index for index in shown if index != taken and index in takable)]
    notes = (
        " ".join(f"Needs {need}." for need in estimate.decision.needs),
        " ".join(filter(None, _list_uncounted(estimate))),
        _format_improvements(estimate),
        estimate.decision.measuring,
        format_age_line((estimate.offers[index] for index in rows), estimate.terms),
    )
    return list(filter(None, notes))


def _list_uncounted(estimate: Estimate) -> Iterator[str]:
    """Yield what the time of the recommended offer does not count, or counts at a value that decides."""
    row = estimate.decision.recommended
    if estimate.unmatched:
        yield f"No offer of {', '.join(estimate.unmatched)}."
    if row is None:
        return
    one = estimate.offers[row]
    if starved := one.market.starved(one.selected, one.device_estimate):
        yield f"{starved[0].upper()}{starved[1:]}."
    is_away = one.offer.provider not in OWNED and estimate.terms.given("dataset_gb") is None
    if is_away and not _has_little_data(estimate.workload):
        yield DOWNLOAD
    if note := memory_note(one.device_estimate.memory, ()):
        yield f"{format_device(one.offer.accelerator, one.offer.devices)}: {note}."
    share = sum(unmodelled.bytes_share for unmodelled in estimate.workload.unmodelled)
    if share >= LARGE_SHARE:
        yield f"Not modelled: {100 * share:.0f} % of the bytes of a step."
    yield estimate.decision.values


def _has_little_data(workload: Workload) -> bool:
    """Return whether every `fit()` is given arrays in memory, of less than a gigabyte together."""
    sizes_bytes = (one.memory.input_bytes / one.batch_size * (one.samples or math.inf) for one in workload.phases)
    in_memory = all(one.input is not None and one.input.kind == "arrays" for one in workload.phases)
    return in_memory and sum(sizes_bytes) < LITTLE_DATA_BYTES


def _format_improvements(estimate: Estimate) -> str:
    """Return what would make a run of ten minutes and more faster on the recommended machine."""
    row, found = estimate.decision.recommended, estimate.decision.improvements
    run_time_s = None if row is None else estimate.offers[row].run_time_s
    if not found or (run_time_s is not None and run_time_s.mid < WORTH_A_CHANGE_S):
        return ""
    return f"Would help: {' · '.join(one.describe() for one in found)}."


def format_title(estimate: Estimate) -> str:
    """Describe the workload in one line."""
    workload = estimate.workload
    name = PurePath(workload.model).name if workload.model.endswith(SCRIPT_ENDINGS) else workload.model
    parts = [
        name,
        f"{format_count(workload.parameters)} parameters",
        f"batch {workload.batch_size}",
        _format_length_of(estimate),
        workload.precision,
        *([f"{workload.quantization} weights"] if workload.quantization else []),
        *([f"{workload.tokens_per_sample:,} tokens a sample"] if workload.tokens_per_sample else []),
    ]
    return " · ".join(parts)


def _format_length_of(estimate: Estimate) -> str:
    """Describe the length of the run."""
    workload = estimate.workload
    if phases := format_phases(estimate.phases_json()):
        return phases
    if workload.steps is None:
        return "run length unknown"
    if workload.samples is None or workload.epochs is None:
        return f"{workload.steps:,} steps"
    if workload.mode == "infer" and workload.epochs == 1:
        return f"{workload.samples:,} predictions"
    return f"{_count(workload.epochs, 'epoch')} of {workload.samples:,} samples"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_phases(phases: Sequence[Mapping[str, Any]]) -> str:
    """Describe the entries of `phases[]`; empty for a single call of `fit()` and nothing else.

    Example:
        >>> format_phases([{"epochs": 50, "steps": 10, "times": 10, "parameters": 8, "trainable_parameters": 8}])
        '10 times 50 epochs'
    """
    if len(phases) < 2:
        return "; ".join(
            f"{_format_length(one) if one['times'] > 1 else 'one fit()'}{_format_passes(one)}"
            for one in phases
            if one["times"] > 1 or one.get("passes")
        )
    texts = [
        f"phase {number}: {_format_length(one)}, {_format_trained(one)}{_format_passes(one)}"
        for number, one in enumerate(phases[:PHASES_SHOWN], start=1)
    ]
    texts += [f"and {len(phases) - PHASES_SHOWN} more"] if len(phases) > PHASES_SHOWN else []
    return "; ".join(texts)


def _format_length(phase: Mapping[str, Any]) -> str:
    epochs, times = phase["epochs"], phase["times"]
    number, noun = (epochs, "epoch") if epochs is not None else (phase["steps"], "step")
    length = "unknown length" if number is None else _count(number, noun)
    return f"{times:,} times {length}" if times > 1 else length


def _format_passes(phase: Mapping[str, Any]) -> str:
    return "".join(
        f", then {one['kind']}() of {one['samples']:,} samples"
        + (f" {one['calls']:,} times" if one["calls"] > 1 else "")
        for one in phase.get("passes") or ()
    )


def _format_trained(phase: Mapping[str, Any]) -> str:
    trained, whole = phase["trainable_parameters"], phase["parameters"]
    if trained == whole:
        return "all parameters trained"
    return f"{format_count(trained)} of {format_count(whole)} parameters trained"


def wrap(text: str, width: int) -> list[str]:
    """Wrap a paragraph at spaces; words are never broken."""
    return textwrap.wrap(text, min(width, WIDE), break_long_words=False, break_on_hyphens=False) or [""]


def _wrap_title(title: str, width: int) -> list[str]:
    """Wrap a title between its parts; a part that is too long for a line is wrapped at spaces."""
    separator, unbroken = " · ", "\u00a0"
    parts = (part.replace(" ", unbroken) for part in title.split(separator))
    lines = wrap(f"{unbroken}· ".join(parts), width)
    return [piece for line in lines for piece in wrap(line.replace(unbroken, " "), width)]
