"""Summary of the accuracy scores: what to expect by what one runs, and by what the fit had not seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuplan.render.accuracy import format_percent
from gpuplan.render.output import UNKNOWN

Scores = Mapping[str, Any]
FIGURE = "accuracy.svg"

TITLE = """\
# What error to expect

Predictions, compared with published measurements that the fit had not seen: nothing of the same publisher, unless
the row says otherwise. Each cell has the median error, the share of measurements inside their 80 % interval, and
their number. This page is generated from the scores.
"""

# Column: the setting that it shows, and what its stacks are called after their name.
COLUMNS: Mapping[str, tuple[str, str]] = {
    "training, 1 device": ("source", ""),
    "training, 2–8 devices": ("devices-modelled", ""),
    "inference": ("inference-source", " infer"),
}
# What one runs: the group of scores, and its name there.
EXPECTATIONS: Mapping[str, tuple[str, str]] = {
    "a CNN": ("network", "convolutional"),
    "a Transformer": ("network", "transformer"),
    "an LSTM or a GRU": ("network", "recurrent"),
    "Keras on TensorFlow 2": ("stack", "tensorflow2 keras"),
    "PyTorch's own modules": ("stack", "pytorch eager"),
    "on a T4": ("accelerator", "T4"),
    "on a V100": ("accelerator", "V100-16GB"),
    "on an RTX 3090": ("accelerator", "RTX3090"),
    "on an A100, 40 GB": ("accelerator", "A100-40GB"),
    "on an H100 (SXM)": ("accelerator", "H100-SXM"),
}
# Settings of our own steps, all on an H200, and stacks in them.
OWN: Mapping[str, tuple[str, str]] = {
    "Keras 3 on JAX, the network left out": ("keras3", "xla"),
    "Keras 3 on JAX, the chip left out": ("keras3-accelerator", "xla"),
    "Keras 3 on PyTorch, the network left out": ("keras3", "pytorch keras"),
}
# Settings that are one row each, of training on one device.
WHOLE: Mapping[str, str] = {
    "accelerator": "on a chip that was never measured",
    "tpu": "on a TPU (v2, v3)",
    "from-t4": "a CNN that you measured on a T4, elsewhere",
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

USE_TITLE = """\
## By what you run

Training on one device, by backend, kind of network and chip: the median error, the share inside the 80 % interval,
and the number of steps. On TensorFlow the publisher was left out, on JAX and PyTorch the network, of steps that
were timed for this project. Where nothing was measured, expect what the table above says of a chip that was never
measured; two minutes of [`gpuplan profile`](profile.md) make it better.

"""
CLASS_TITLE = """\
## By class

The publisher left out: median error, share inside the 80 % interval, how wide it is (the median of high over low),
and rows, in each class of 30 or more.

"""
FEWEST = 30
USERS = ("Keras 3 on JAX", "Keras on TensorFlow", "Keras 3 on PyTorch")
NETWORKS = ("convolutional", "transformer", "recurrent", "diffusion")
CHIPS = ("T4", "V100", "L4", "A100", "H100", "H200")

READING = """
Each row hides something from the fit and predicts it: *the publisher* shows what to expect on measurements by
someone new, *the chip* what to expect on a new accelerator. An error is |predicted / measured - 1|. Half of the
errors are below the *median*; the bar of the figure ends where 90 % of them are. The share *in the 80 % interval*
should be 80 %: a lower one means too narrow intervals, a higher one too wide. The *best simple rule* (the diamond)
is the smallest median error of scaling by peak FLOP/s, by memory bandwidth, by both, or by the number of devices.

What is hidden takes no part in the choice of prior spreads and of interval features: each fit chooses them by
leaving groups out of the rows that it has ([how](model.md#4-what-is-fitted)). Rules of single kernels were not
chosen so: some were found in the very kernels of Keras 3 whose steps are reported, so that its
figures are optimistic.
"""


def format_expectations(settings: Mapping[str, Scores]) -> str:
    """Format what to expect by what one runs, as a Markdown table.

    Args:
        settings: The record of all settings.
    """
    rows = {label: _find_scores(settings, *named) for label, named in EXPECTATIONS.items()}
    rows |= {label: [settings[setting]["by_stack"][name], None, None] for label, (setting, name) in OWN.items()}
    rows |= {label: [settings[name]["summary"], None, None] for name, label in WHOLE.items()}
    lines = [["you run", *COLUMNS], ["---", *["--:"] * len(COLUMNS)]]
    lines += [[label, *map(_format_expectation, cells)] for label, cells in rows.items()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def _find_scores(settings: Mapping[str, Scores], group: str, name: str) -> list[Scores | None]:
    """Return the scores of a group in each column; None where nothing was published."""
    ends = {setting: end if group == "stack" else "" for setting, end in COLUMNS.values()}
    return [settings[setting][f"by_{group}"].get(name + end) for setting, end in ends.items()]


def _format_expectation(summary: Scores | None) -> str:
    if summary is None:
        return UNKNOWN
    text = f"**{100 * summary['median_ape']:.0f} %** · {100 * summary['coverage_80']:.0f} % · {summary['n']:,}"
    return text.replace(" ", "\u00a0")  # one line of the page


def format_uses(settings: Mapping[str, Scores]) -> str:
    """Format what to expect by backend, kind of network and chip, as Markdown."""
    found = {**settings["source"]["by_use"], **settings["keras3"]["by_use"]}
    lines = [["you run", "network", *CHIPS], ["---", "---", *["--:"] * len(CHIPS)]]
    for user in USERS:
        for network in NETWORKS:
            cells = (found.get(f"{user}, {network}, {chip}") for chip in CHIPS)
            lines.append([user, network, *(_format_expectation(one) if one else "not measured" for one in cells)])
    return USE_TITLE + "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def format_classes(settings: Mapping[str, Scores]) -> str:
    """Format errors and intervals by class, as Markdown."""
    titles = {"training, 1 device": "source", "inference": "inference-source"}
    found = [settings[name]["by_class"] for name in titles.values()]
    names = sorted({name for one in found for name, scores in one.items() if scores["n"] >= FEWEST})
    lines = [["class", *titles], ["---", *["--:"] * len(titles)]]
    lines += [[name, *(_format_class(one.get(name)) for one in found)] for name in names]
    return CLASS_TITLE + "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def _format_class(scores: Scores | None) -> str:
    if scores is None or scores["n"] < FEWEST:
        return UNKNOWN
    shares = f"**{100 * scores['median_ape']:.0f} %** · {100 * scores['coverage_80']:.0f} %"
    return f"{shares} · {scores['width']:.2f} · {scores['n']:,}".replace(" ", "\u00a0")


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
