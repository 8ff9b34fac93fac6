"""The figure of docs/accuracy.md: that of the recorded scores."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from gpuplan.plan.accuracy import load_packaged_record

from lab import figure
from lab.summary import OVERVIEW, format_summary

ROOT = Path(__file__).parents[2]
SETTINGS = load_packaged_record()["settings"]
SVG = "{http://www.w3.org/2000/svg}"


def test_the_figure_is_drawn_from_the_record() -> None:
    """Run `python -m lab.figure` when this fails."""
    assert figure.PATH.read_text(encoding="utf-8") == figure.draw(SETTINGS)


def test_the_figure_has_a_dot_per_setting_at_its_median() -> None:
    """In proportion to the distance of the axis lines, which are 10 % apart."""
    svg = ET.fromstring(figure.draw(SETTINGS))
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
