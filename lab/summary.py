"""Summary of the accuracy scores in plain words: what to expect by what one runs, and by what the fit had not seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuplan.render.accuracy import format_percent
from gpuplan.render.output import UNKNOWN

Scores = Mapping[str, Any]
FIGURE = "accuracy.svg"

TITLE = """\
# What error to expect

Predictions were compared with published measurements that the fit had not seen. This page is generated from the scores.
"""

EXPECTED = """\
| you run | median error | in the 80 % interval | rows |
| --- | --: | --: | --: |
"""

# Heading: setting, and for each row the group, its name and the words for it.
EXPECTATIONS: Mapping[str, tuple[str, tuple[tuple[str, str, str], ...]]] = {
    "Training on one device; nothing of the publisher was known": (
        "source",
        (
            ("by_network", "convolutional", "a CNN"),
            ("by_network", "transformer", "a Transformer"),
            ("by_network", "recurrent", "an LSTM or a GRU"),
            ("by_network", "recommender", "a recommender"),
            ("by_precision", "float32", "in float32"),
            ("by_precision", "tf32", "in TF32"),
            ("by_precision", "mixed_float16", "in mixed precision"),
            ("by_stack", "tensorflow2 keras", "Keras on TensorFlow 2"),
            ("by_stack", "pytorch eager", "PyTorch's own modules"),
        ),
    ),
    "Training on 2 to 8 devices of one machine, from the model alone": (
        "devices-modelled",
        (("by_network", "convolutional", "a CNN"), ("by_network", "transformer", "a Transformer")),
    ),
    "Inference": (
        "inference-source",
        (("by_network", "convolutional", "a CNN"), ("by_network", "transformer", "a Transformer")),
    ),
    "Training on a chip that was never measured": (
        "accelerator",
        (
            ("by_accelerator", "T4", "T4"),
            ("by_accelerator", "V100-16GB", "V100"),
            ("by_accelerator", "A100-40GB", "A100-40GB"),
            ("by_accelerator", "A100-80GB", "A100-80GB"),
            ("by_accelerator", "H100-SXM", "H100-SXM"),
        ),
    ),
}
# Settings of one row each.
WHOLE: Mapping[str, str] = {
    "tpu": "a TPU, none of them in the fit",
    "from-t4": "a CNN that you measured on a T4, on other GPUs",
}
BACKEND_NAMES: Mapping[str, str] = {
    "jax": "Keras 3 on JAX",
    "pytorch": "Keras 3 on PyTorch (host times are from these)",
}
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
## By what the fit had not seen

![Errors of the predictions by what was left out of the fit: the table below as a chart]({FIGURE})

| left out of the fit | rows | median error | mean error | 90 % below | in the 80 % interval | best simple rule |
| --- | --: | --: | --: | --: | --: | --: |
"""

READING = """
Each row hides something from the fit and predicts it: *the publisher* shows what to expect on measurements by someone
new, *the chip* what to expect on a new accelerator. An error is |predicted / measured - 1|. Half of the errors are below
the *median*; the bar of the figure ends where 90 % of them are. The share *in the 80 % interval* should be 80 %: a lower
one means too narrow intervals, a higher one too wide. The *best simple rule* (the diamond) is the smallest median error
of scaling by peak FLOP/s, by memory bandwidth, by both, or by the number of devices.
"""


def format_expectations(settings: Mapping[str, Scores], keras3: Mapping[str, Scores]) -> str:
    """Format what to expect by what one runs, as a Markdown table.

    Args:
        settings: The record of all settings.
        keras3: Scores of each backend of Keras 3, timed for this project.
    """
    lines: list[str] = []
    for heading, (setting, rows) in EXPECTATIONS.items():
        lines.append(f"| **{heading}** | | | |")
        lines += (_format_expectation(label, settings[setting][group][name]) for group, name, label in rows)
    lines.append("| **Training on an H200, which the fit does not know** | | | |")
    lines += (_format_expectation(label, keras3[name]) for name, label in BACKEND_NAMES.items())
    lines.append("| **Other** | | | |")
    lines += (_format_expectation(label, settings[name]["summary"]) for name, label in WHOLE.items())
    return EXPECTED + "\n".join(lines) + "\n"


def _format_expectation(label: str, summary: Scores) -> str:
    shares = (f"{100 * summary[key]:.0f} %" for key in ("median_ape", "coverage_80"))
    return f"| {label} | {' | '.join(shares)} | {summary['n']:,} |"


def format_choice(scores: Scores) -> str:
    """Format what choosing the cheapest machine by the predictions costs, as a sentence."""
    chosen = scores["decision"]["cheapest"]
    return (
        f"The choice is safer than the time: on {chosen['n']} workloads, the machine that was predicted to be the "
        f"cheapest cost\n{format_percent(chosen['mean_regret'])} more on average than the one that was; "
        f"in {100 * chosen['top1']:.0f} % of them it was the cheapest.\n"
    )


def format_summary(settings: Mapping[str, Scores]) -> str:
    """Format figure, table and explanation as Markdown."""
    return TOP + "\n".join(_iter_overview(settings)) + "\n" + READING


def _iter_overview(settings: Mapping[str, Scores]) -> Iterator[str]:
    for name, label in OVERVIEW.items():
        if name in settings:
            yield f"| {label} | {' | '.join(_format_cells(settings[name]))} |"


def find_best_rule(scores: Scores) -> float | None:
    """Return the smallest median error of the rules of thumb [-]; None without rules."""
    return min((one["median_ape"] for one in scores["rules_of_thumb"].values()), default=None)


def _format_cells(scores: Scores) -> list[str]:
    summary, rule = scores["summary"], find_best_rule(scores)
    keys = ("median_ape", "mean_ape", "p90_ape", "coverage_80")
    return [
        f"{scores['n']:,}",
        *(format_percent(summary[key]) for key in keys),
        UNKNOWN if rule is None else format_percent(rule),
    ]
