"""The numbers of docs/limits.md and README.md: those of the recorded scores."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gpuplan.plan.accuracy import load_packaged_record

ROOT = Path(__file__).parents[2]
SETTINGS = load_packaged_record()["settings"]
LIMITS = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
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


@pytest.mark.parametrize(("begins", "name"), ROWS.items(), ids=ROWS.values())
def test_the_table_of_limits_is_that_of_the_record(begins: str, name: str) -> None:
    """Rows, median and mean in whole percent."""
    (row,) = re.findall(rf"^\| {re.escape(begins)}[^|]*\| ([\d,]+) \| (\d+) % \| (\d+) % \|", LIMITS, re.MULTILINE)
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
