"""Summary of the accuracy scores: a few settings in plain words, for the top of the page and its figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuplan.render.accuracy import format_percent
from gpuplan.render.output import UNKNOWN

FIGURE = "accuracy.svg"
# Setting: what the fit had not seen, and what was predicted.
OVERVIEW: Mapping[str, str] = {
    "all": "the network",
    "transformers": "the network, Transformers only",
    "source": "the publisher",
    "accelerator": "the chip",
    "from-t4": "the network, but measured on a T4",
    "devices": "the publisher, several devices from one",
    "inference": "the network, inference",
    "inference-source": "the publisher, inference",
    "tpu": "every TPU, and the network",
}

TOP = f"""\
![Errors of the predictions by what was left out of the fit: the table below as a chart]({FIGURE})

| left out of the fit | rows | median error | mean error | 90 % below | in the 80 % interval | best simple rule |
| --- | --: | --: | --: | --: | --: | --: |
"""

READING = """
How to read them:

- Each row hides something from the fit and predicts it: *the publisher* shows what to expect on measurements by
  someone new, *the chip* what to expect on a new accelerator.
- Half of the predictions have an error below the *median*; the bar of the figure ends where 90 % of them do.
- *In the 80 % interval* should be 80 %: a lower share means too narrow intervals, a higher one too wide.
- The *best simple rule* (the diamond) is the smallest median error of scaling by peak FLOP/s, by memory
  bandwidth, by both, or by the number of devices.
- The rest of this page has the same scores for every setting, source, chip and model.
"""


def format_summary(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Format figure, table and explanation as Markdown."""
    rows = [
        f"| {label} | {' | '.join(_format_cells(settings[name]))} |"
        for name, label in OVERVIEW.items()
        if name in settings
    ]
    return TOP + "\n".join(rows) + "\n" + READING


def find_best_rule(scores: Mapping[str, Any]) -> float | None:
    """Return the smallest median error of the rules of thumb [-]; None without rules."""
    return min((one["median_ape"] for one in scores["rules_of_thumb"].values()), default=None)


def _format_cells(scores: Mapping[str, Any]) -> list[str]:
    summary, rule = scores["summary"], find_best_rule(scores)
    keys = ("median_ape", "mean_ape", "p90_ape", "coverage_80")
    return [
        str(scores["n"]),
        *(format_percent(summary[key]) for key in keys),
        UNKNOWN if rule is None else format_percent(rule),
    ]
