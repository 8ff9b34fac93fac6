"""`python -m lab accuracy --memory`: the record at once, the page that is made of it, and that both still hold."""

from __future__ import annotations

import csv
from collections.abc import Callable
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from lab.memory_accuracy import compare_with_xla, find_memory_regressions, load_recorded_memory

Run = Callable[..., Any]
ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- python -m lab accuracy --memory --recorded --markdown -->\n", "<!-- end -->"


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """The packaged record."""
    return load_recorded_memory()


def test_the_record_as_rows(lab: Run, record: dict[str, Any]) -> None:
    """A line for every step, limit and run."""
    header, *lines = lab("accuracy", "--memory", "--recorded").out.splitlines()
    assert header.startswith("evidence\tmodel\tbatch_size\tprecision\taccelerator\tstated_bytes\tpredicted_bytes")
    assert len(lines) == sum(record[name]["summary"]["n"] for name in ("xla", "limits", "ran"))


def test_the_page_holds_what_is_recorded(lab: Run) -> None:
    """Between its marks docs/memory.md is generated: `python -m lab accuracy --memory --recorded --markdown`."""
    page = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
    made = page.partition(BEGIN)[2].partition(END)[0]
    assert made == lab("accuracy", "--memory", "--recorded", "--markdown").out


def test_what_was_promised_holds(record: dict[str, Any]) -> None:
    """Median error <= 10 % on 15 models or more, none beyond the margin, nine verdicts of ten right."""
    xla = record["xla"]["summary"]
    assert (xla["models"] >= 15, xla["median_ape"] <= 0.10, xla["beyond_margin"]) == (True, True, 0)
    for name in ("limits", "ran"):
        assert record[name]["summary"]["right"] >= 0.9 * record[name]["summary"]["n"]


def test_every_step_that_xla_stated_is_in_the_record(record: dict[str, Any]) -> None:
    """profiles/xla_memory.csv, row by row; summaries follow from the rows."""
    csv_rows = csv.DictReader((resources.files("gpuplan.profiles") / "xla_memory.csv").read_text().splitlines())
    stated = [
        int(row["argument_bytes"]) + int(row["temp_bytes"]) + int(row["output_bytes"]) - int(row["alias_bytes"])
        for row in csv_rows
    ]
    rows = record["xla"]["rows"]
    assert [row["stated_bytes"] for row in rows] == stated
    for row in rows:
        assert row["error"] == pytest.approx(row["predicted_bytes"] / row["stated_bytes"] - 1.0, abs=1e-4)
    assert record["limits"]["summary"]["right"] == sum(row["right"] for row in record["limits"]["rows"])


@pytest.mark.parametrize("name", ["mlp", "cifar_cnn"])
def test_the_tracer_still_gives_what_is_recorded(name: str, record: dict[str, Any]) -> None:
    """Two small steps, traced now: within 2 % of the record, which other versions of Keras or JAX may move."""
    rows = csv.DictReader((resources.files("gpuplan.profiles") / "xla_memory.csv").read_text().splitlines())
    (now,) = compare_with_xla(lambda _: None, rows=[row for row in rows if row["model"].endswith(f":{name}")])
    (then,) = (row for row in record["xla"]["rows"] if row["model"].endswith(f":{name}"))
    assert now.predicted_bytes == pytest.approx(then["predicted_bytes"], rel=0.02)


def test_what_got_worse_is_named(record: dict[str, Any]) -> None:
    """The same is no worse; a larger error, a step beyond the margin and a wrong verdict are."""
    worse = deepcopy(record)
    worse["xla"]["summary"]["median_ape"] += 0.02
    worse["xla"]["summary"]["beyond_margin"] += 1
    worse["limits"]["summary"]["right"] -= 1

    assert find_memory_regressions(record, record) == []
    assert [line.split(":")[0] for line in find_memory_regressions(record, worse)] == ["xla", "xla", "limits"]
    assert find_memory_regressions(worse, record) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--memory", "--setting", "source"), "`--memory` scores no step times"),
        (("--memory", "--json"), "`--memory` scores no step times"),
        (("--memory", "--recorded", "--check"), "`--recorded` computes nothing, so `--check` has no effect"),
    ],
)
def test_contradictions_are_usage_errors(lab: Run, arguments: tuple[str, ...], says: str) -> None:
    """Exit 2 and one line, before anything is computed."""
    done = lab("accuracy", *arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
