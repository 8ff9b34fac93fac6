"""The figure of docs/accuracy.md and the numbers of docs/limits.md and README.md: those of the recorded scores."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import accuracy_figure
import pytest
from gpuplan.lab.score_record import load_packaged_record
from gpuplan.render.accuracy_summary import OVERVIEW, format_summary

ROOT = Path(__file__).parents[2]
SETTINGS = load_packaged_record()["settings"]
LIMITS = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
SVG = "{http://www.w3.org/2000/svg}"
# Row of the table in docs/limits.md: setting.
ROWS = {
    "the network, Keras on K80": "architecture",
    "the network, all sources": "all",
    "the publisher, chips since Pascal": "source",
    "the chip (": "accelerator",
    "each Transformer (": "transformers",
    "several devices from one": "devices",
    "the network, from its profile on T4": "from-t4",
    "inference, the network": "inference",
    "inference, the publisher": "inference-source",
}


def test_the_figure_is_drawn_from_the_record() -> None:
    """Run `python docs/_tools/accuracy_figure.py` when this fails."""
    assert accuracy_figure.PATH.read_text(encoding="utf-8") == accuracy_figure.draw(SETTINGS)


def test_the_figure_has_a_dot_per_setting_at_its_median() -> None:
    """In proportion to the distance of the axis lines, which are 10 % apart."""
    svg = ET.fromstring(accuracy_figure.draw(SETTINGS))
    lines = sorted({float(line.get("x1", "")) for line in svg.iter(f"{SVG}line")})
    dots = [float(dot.get("cx", "")) for dot in svg.iter(f"{SVG}circle")][1:]  # the first is the legend's
    shares = [0.1 * (x - lines[0]) / (lines[1] - lines[0]) for x in dots]

    assert shares == pytest.approx([SETTINGS[name]["summary"]["median_ape"] for name in OVERVIEW], abs=5e-4)


def test_the_summary_has_a_row_per_setting() -> None:
    """Its median and coverage, to a tenth of a percent."""
    rows = dict(re.findall(r"^\| ([^|]+?) \| (\d.+) \|$", format_summary(SETTINGS), re.MULTILINE))

    assert list(rows) == list(OVERVIEW.values())
    for name, label in OVERVIEW.items():
        assert f"{100 * SETTINGS[name]['summary']['median_ape']:.1f} %" in rows[label]


@pytest.mark.parametrize(("begins", "name"), ROWS.items(), ids=ROWS.values())
def test_the_table_of_limits_is_that_of_the_record(begins: str, name: str) -> None:
    """Rows, median and mean in whole percent."""
    (row,) = re.findall(
        rf"^\| {re.escape(begins)}[^|]*\| ([\d,]+) \| (\d+) % \| (\d+) % \|", LIMITS, re.MULTILINE
    )
    summary = SETTINGS[name]["summary"]
    wanted = (f"{summary['n']:,}", f"{100 * summary['median_ape']:.0f}", f"{100 * summary['mean_ape']:.0f}")

    assert row == wanted


def test_precisions_of_limits_are_those_of_the_record() -> None:
    """Mean error, largest bias and coverage with the publisher left out."""
    kinds = [SETTINGS["source"]["by_precision"][name] for name in ("float32", "mixed_float16", "tf32")]
    means = [f"{100 * kind['mean_ape']:.0f} %" for kind in kinds]
    covered = [f"{100 * kind['coverage_80']:.0f} %" for kind in kinds]
    bias = max(abs(kind["bias"]) for kind in kinds)
    text = " ".join(LIMITS.split())

    assert f"mean error is {means[0]} in float32, {means[1]} in half precision and {means[2]} in TF32" in text
    assert f"bias of at most {100 * bias:.0f} %" in text
    assert f"({covered[0]}, {covered[1]} and {covered[2]})" in text


def test_the_readme_says_what_the_record_says() -> None:
    """The numbers of its ten lines on trust."""
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    summary, chosen = SETTINGS["all"]["summary"], SETTINGS["all"]["decision"]["cheapest"]

    assert (
        f"the median error is {100 * summary['median_ape']:.0f} % and the mean {100 * summary['mean_ape']:.0f} %; "
        f"{100 * summary['coverage_80']:.0f} % of them lie in the interval" in text
    )
    assert f"on {chosen['n']} workloads" in text
    assert f"cost {100 * chosen['mean_regret']:.1f} % more" in text
