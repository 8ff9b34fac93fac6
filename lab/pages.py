"""Documentation pages generated from accuracy scores: step times of all settings, and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuplan.render.accuracy import GROUPS, format_percent, format_signed_percent
from gpuplan.render.output import UNKNOWN, Column
from gpuplan.units import GIB

from .summary import format_summary

Scores = Mapping[str, Any]

TITLE = """\
# How far off the predictions are

Errors on published measurements that the fit had not seen.
"""

PREFACE = """\
## All settings

This page is generated; do not edit it.

```sh
python -m lab accuracy --output profiles/accuracy.json             # compute every setting and record it
python -m lab accuracy --recorded --markdown > docs/accuracy.md    # this page, from the record
python -m lab.figure                                               # its figure, from the record
```

An error is |predicted / measured - 1|. *Median*, *mean* and *p90* are over rows; *by source* is the mean of
the sources' mean errors, each counting once, so that no source dominates. *Bias* is the geometric mean of
predicted / measured, minus 1. *|log|* is |log(predicted / measured)|, which weights factors of 1/2 and 2 equally
(median, mean). *In 80 %* is the share of rows inside their 80 % prediction interval, which is computed from the
residuals of the other groups only, scaled by features of the step (`planner/predict/intervals.py`).
Tables by *stack* group runs by what launches the kernels, by *network* by the kind of network. The rules of thumb
each have one constant, fitted on the same rows as the model: FLOPs over peak, bytes over bandwidth, and the larger
of the two.
For several devices the rule is perfect scaling: a step takes as long as on one. *Pool* is the number of all rows
and of their sources: the held-out rows are taken from it, and the others are used for the fit.
"""

CHOICES = """\
## Cost of choosing by the predictions

These are the workloads above that one source measured on three or more accelerators, with the same network,
batch size, precision, stack and number of devices (TF32 counts as float32, CPUs are excluded). *Lost* is the
regret: the excess of the machine chosen by prediction over the best one, by the measured times, in dollars for
the cheapest and in hours for the fastest. *Right* is the share of workloads where the choice was the best. Where
the rules of thumb lose nothing either, one machine was much cheaper than all others. *Rank* is Spearman's
correlation of predicted and measured times.
"""

PRICES = """\
## Prices

Price per hour of the cheapest complete machine with that many devices, on demand, in the whole catalog,
including marketplaces and hosted notebooks. *At clouds* includes only AWS, Azure and Google Cloud. Available
offers take precedence over those being withdrawn (`legacy`), and these over discontinued ones (`retired`): a chip
that is no longer offered has its last listed price.
"""


def format_accuracy_page(settings: Mapping[str, Scores]) -> str:
    """Format the scores of all settings as a Markdown page, deterministically."""
    parts = [
        TITLE,
        format_summary(settings),
        PREFACE,
        _format_table(_HEAD, [_format_setting(name, s) for name, s in settings.items()]),
        "\n".join(f"- **{name}**: {s['title']}. {s['protocol']}" for name, s in settings.items()) + "\n",
        CHOICES,
        _format_table(_CHOICE_HEAD, [cells for name, s in settings.items() for cells in _iter_choices(name, s)]),
        PRICES,
        _format_table(
            _PRICE_HEAD, [_format_price(name, price) for name, price in _collect_prices(settings).items()]
        ),
        *(part for name, scores in settings.items() for part in _iter_setting_parts(name, scores)),
    ]
    return "\n".join(parts)


_SCORES = ("median", "mean", "p90", "bias", "in 80 %", "|log|")
_HEAD = ("setting", "rows", "pool (sources)", "by source", *_SCORES)
_CHOICE_HEAD = (
    "setting", "by", "priced", "lost $ mean", "median", "p90", "right", "at clouds: lost $", "right",
    "workloads", "lost hours mean", "p90", "right", "rank",
)  # fmt: skip
_PRICE_HEAD = (
    "accelerator",
    "devices",
    "$/h",
    "machine",
    "state",
    "as of",
    "at clouds: $/h",
    "machine",
    "state",
    "as of",
)


def _format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    escaped = [name.replace("|", "\\|") for name in head]
    lines = [escaped, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def _format_scores(summary: Scores) -> list[str]:
    return [
        *(format_percent(summary[key]) for key in ("median_ape", "mean_ape", "p90_ape")),
        format_signed_percent(summary["bias"]),
        format_percent(summary["coverage_80"]),
        f"{summary['median_log_ratio']:.3f}, {summary['mean_log_ratio']:.3f}",
    ]


def _format_setting(name: str, scores: Scores) -> list[str]:
    pool, sources = scores["pool"], scores["over_sources"]
    by_source = f"{format_percent(sources['mean_ape'])} ({sources['n']})"
    return [
        name,
        str(scores["n"]),
        f"{pool['n']} ({pool['sources']})",
        by_source,
        *_format_scores(scores["summary"]),
    ]


def _iter_choices(name: str, scores: Scores) -> Iterator[list[str]]:
    if scores["decision"]["fastest"] is None:
        return
    yield [name, "gpuplan", *_format_decision(scores["decision"])]
    for rule, decision in scores["rules_decision"].items():
        yield ["", rule, *_format_decision(decision)]


def _format_decision(decision: Scores) -> list[str]:
    rank = decision["rank_correlation"]
    return [
        *_format_regret(decision["cheapest"], ("n", "mean_regret", "median_regret", "p90_regret", "top1")),
        *_format_regret(decision["cheapest_at_clouds"], ("mean_regret", "top1")),
        *_format_regret(decision["fastest"], ("n", "mean_regret", "p90_regret", "top1")),
        UNKNOWN if rank is None else f"{rank:.3f}",
    ]


def _format_regret(summary: Scores | None, keys: Sequence[str]) -> list[str]:
    if summary is None:
        return [UNKNOWN] * len(keys)
    return [str(summary[key]) if key == "n" else format_percent(summary[key]) for key in keys]


def _collect_prices(settings: Mapping[str, Scores]) -> dict[str, Scores]:
    """Collect the prices of all settings; a machine has the same price in each."""
    return dict(sorted({name: p for s in settings.values() for name, p in s["prices"].items()}.items()))


def _format_price(name: str, price: Scores) -> list[str]:
    return [*name.rsplit(" x ", 1), *_format_offer(price["anybody"]), *_format_offer(price["clouds"])]


def _format_offer(offer: Scores | None) -> list[str]:
    if offer is None:
        return [UNKNOWN] * 4
    machine = f"{offer['provider']} {offer['instance_type']}"
    return [offer["usd_per_hour"], machine, offer["status"], offer["price_as_of"] or UNKNOWN]


def _iter_setting_parts(name: str, scores: Scores) -> Iterator[str]:
    yield f"## {scores['title']}\n"
    yield f"{scores['protocol']}\n"
    yield f"```sh\npython -m lab accuracy --setting {name}\n```\n"
    for key, title in (*((f"by_{group}", group) for group in GROUPS), ("rules_of_thumb", "rule of thumb")):
        if len(scores[key]) > 1:
            rows = [[group, str(s["n"]), *_format_scores(s)] for group, s in scores[key].items()]
            yield _format_table((title, "rows", *_SCORES), rows)


Board = Mapping[str, Any]


def build_memory_columns() -> tuple[Column, ...]:
    """Return the columns of the table."""
    return (
        Column(key="evidence", header="EVIDENCE"),
        Column(key="model", header="MODEL"),
        Column(key="batch_size", header="BATCH", justify="right"),
        Column(key="precision", header="PRECISION"),
        Column(key="accelerator", header="ACCELERATOR"),
        Column(key="stated_bytes", header="STATED GIB", justify="right", format=_format_gib),
        Column(key="predicted_bytes", header="PREDICTED GIB", justify="right", format=_format_gib),
        Column(key="error", header="ERROR", justify="right", format=format_signed_percent),
        Column(key="needed_share", header="OF MEMORY", justify="right", format=format_percent),
        Column(key="ran", header="RAN"),
        Column(key="verdict", header="VERDICT"),
        Column(key="right", header="RIGHT"),
        Column(key="source", header="SOURCE", terminal=False),
    )


def build_memory_rows(board: Board) -> list[dict[str, Any]]:
    """Return every row of all three kinds of evidence."""
    return [{"evidence": name, **row} for name, evidence in board.items() for row in evidence["rows"]]


def format_memory_page(board: Board) -> str:
    """Format the generated part of the page on memory."""
    return (
        "\n".join(
            [*_iter_xla_lines(board["xla"]), *_iter_limit_lines(board["limits"]), *_iter_ran_lines(board["ran"])]
        )
        + "\n"
    )


def _iter_xla_lines(xla: Board) -> Iterator[str]:
    summary = xla["summary"]
    yield (
        f"{summary['n']} steps of {summary['models']} models compared with XLA: **median error "
        f"{format_percent(summary['median_ape'])}**, mean {format_percent(summary['mean_ape'])}, from "
        f"{format_signed_percent(summary['lowest'])} to {format_signed_percent(summary['highest'])}; "
        f"{summary['beyond_margin']} of them need more than the margin of 1.2 allows for."
    )
    yield from ("", "| model | batch | precision | target | XLA, GiB | predicted, GiB | error |")
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in sorted(xla["rows"], key=lambda row: row["error"]):
        cells = (row["model"], row["batch_size"], row["precision"], row["accelerator"])
        sizes = (
            _format_gib(row["stated_bytes"]),
            _format_gib(row["predicted_bytes"]),
            format_signed_percent(row["error"]),
        )
        yield f"| {' | '.join(map(str, (*cells, *sizes)))} |"


def _iter_limit_lines(limits: Board) -> Iterator[str]:
    summary = limits["summary"]
    missing = summary["n"] - summary["ran"], summary["right"] - summary["ran_right"]
    yield from (
        "",
        f"Published limits: **{summary['right']} of {summary['n']} verdicts are right "
        f"({summary['right'] / summary['n']:.0%})**, {summary['ran_right']} of {summary['ran']} batches that ran, "
        f"{missing[1]} of {missing[0]} that did not.",
        "",
    )
    yield from ("| accelerator | verdicts | right |", "| --- | --- | --- |")
    for name, count in limits["by_accelerator"].items():
        yield f"| {name} | {count['n']} | {count['right']} |"
    wrong = [row for row in limits["rows"] if not row["right"]]
    yield from ("", *(f"Wrong: {_format_verdict(row)}." for row in wrong))


def _iter_ran_lines(ran: Board) -> Iterator[str]:
    summary = ran["summary"]
    shares: Sequence[float] = [row["needed_share"] for row in ran["rows"]]
    yield from (
        "",
        f"What other publishers ran: **{summary['right']} of {summary['n']} are predicted to fit**, at "
        f"{min(shares):.0%} to {max(shares):.0%} of what can be used.",
    )


def _format_verdict(row: Mapping[str, Any]) -> str:
    did = "ran" if row["ran"] else "did not run"
    return f"`{row['model']}` at {row['batch_size']} on {row['accelerator']}, which {did}: {row['verdict']}"


def _format_gib(size: float) -> str:
    """Format bytes as GiB."""
    return f"{size / GIB:.2f}"
