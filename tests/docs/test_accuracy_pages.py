"""The numbers of README.md: those of the recorded scores."""

from __future__ import annotations

from pathlib import Path

from gpuplan.plan.accuracy import load_packaged_record

ROOT = Path(__file__).parents[2]
SETTINGS = load_packaged_record()["settings"]


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
