"""Documentation pages generated from accuracy scores: step times of all settings, and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuplan.render.accuracy import format_percent, format_signed_percent
from gpuplan.render.output import Column
from gpuplan.units import GIB

from .summary import TITLE, format_choice, format_classes, format_expectations, format_summary, format_uses

Scores = Mapping[str, Any]

SOURCES = """\
## Where the rest is

Errors by publisher, chip, precision, software, kind of network and model, with bias and the simple rules beside
them, in each setting, with its protocol: [`profiles/accuracy.json`](../profiles/accuracy.json). `gpuplan accuracy`
prints them, and `gpuplan accuracy my_measurements.csv` computes the same for your own measurements. In a clone,
this page is made by:

```sh
python -m lab accuracy --output profiles/accuracy.json             # compute every setting and record it: an hour
python -m lab accuracy --recorded --markdown > docs/accuracy.md    # this page, from the records
python -m lab.figure                                               # its figure
```
"""


def format_accuracy_page(settings: Mapping[str, Scores]) -> str:
    """Format the scores as a Markdown page for readers of predictions, deterministically."""
    return "\n".join(
        [
            TITLE,
            format_expectations(settings),
            format_uses(settings),
            format_classes(settings),
            format_choice(settings["all"]),
            format_summary(settings),
            SOURCES,
        ]
    )


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
        f"{summary['beyond_margin']} of them need more than the margin of 1.2 allows for. Every step is in "
        "[`profiles/memory.json`](../profiles/memory.json)."
    )


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
