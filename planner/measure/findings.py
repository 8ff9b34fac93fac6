"""What is doubtful about a measurement, and what limits it, each in a sentence with the next thing to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..units import MS_PER_S
from .load import Busy
from .several import apart
from .windows import Rules

__all__ = ["Limit", "findings_of", "limit_of"]

Limit = Literal["input", "host", "device"]

OTHERS_SHARE = 0.10  # of the processor: above, a CPU's times suffer visibly [-]
DRIFT = 0.03  # of the median, in time and between processes either way [-]
SPREAD = 0.10
INPUT_SHARE = 0.25  # of a step of fit() that is not the step alone, for the data to be the cause [-]
LOADING_SHARE = 0.5  # of a step of fit() that the pipeline alone would take, for the data to be the cause [-]
HOST_SHARE = 0.5  # of a step that does not depend on the batch size [-]


def findings_of(row: Mapping[str, Any], *, busy: Busy | None, rules: Rules, options: str = "") -> list[str]:
    """Return what makes the number doubtful; empty when nothing does.

    Args:
        row: Of the profile, measured.
        busy: What else the processor did meanwhile; None when that is not known.
        rules: That it was measured by.
        options: What the user already asked for, as typed, so that no advice repeats it.
    """
    found = []
    fit = row["fit"]
    calm = busy is None or busy.other_share < OTHERS_SHARE
    if not calm and busy is not None:
        found.append(_disturbed(busy))
    if fit.get("median_s") is None:
        return [*found, "too few steps to say anything: give it more data, or a smaller batch"]
    if fit.get("spread") is None:
        return [*found, "too few steps for windows: how sure the number is cannot be told"]
    if fit["warm_up"]["settled"] is False:
        found.append(
            f"the warm-up did not settle within {rules.warm_up_s:g} s: look for what else runs, or heat"
        )
    if fit["stopped"] == "time" and (fit["width"] is None or fit["width"] > rules.width):
        found.append(_unsure(fit, rules, options))
    if abs(fit["drift"]) > DRIFT:
        found.append(
            f"unsteady: the second half ran at {1 + fit['drift']:.3f} times the first: clocks or heat moved"
        )
    if apart(fit) > DRIFT:
        found.append(_processes_differ(fit))
    if fit["spread"] > SPREAD:
        found.append(f"unsteady: half of the windows differ by more than {fit['spread']:.0%} of the median")
    return found


def _disturbed(busy: Busy) -> str:
    share = f"{100 * busy.other_share:.0f} %"
    if busy.stolen_cores > busy.other_cores / 2:
        return (
            f"unsteady: the hypervisor's other guests took {share} of the CPU; try another hour, or machine"
        )
    if not busy.most:
        return f"unsteady: short-lived processes used {share} of the CPU; try again when it is idle"
    top = busy.most[0]
    who = f"`{top.name}` (process {top.pid})" if len(busy.most) == 1 else f"`{top.name}` and others"
    return f"unsteady: another process used {share} of the CPU: {who}; try again when it has ended"


def _processes_differ(fit: Mapping[str, Any]) -> str:
    medians_s = fit["process_medians_s"]
    low_ms, high_ms = (end * MS_PER_S for end in (min(medians_s), max(medians_s)))
    return (
        f"unsteady: {len(medians_s)} processes took {low_ms:.3g} to {high_ms:.3g} ms a step: "
        f"a run of yours may be anywhere between"
    )


def _unsure(fit: Mapping[str, Any], rules: Rules, options: str) -> str:
    count = len(fit.get("process_medians_s") or ())
    if count > 1:
        more = "" if "--processes" in options else f"; try `--processes {2 * count}`"
        return (
            f"not sure to {rules.width:.0%}: the 95 % interval of the median is {fit['width']:.1%} wide after "
            f"{count} processes{more}"
        )
    more = "" if "--max-time" in options else f"; try `--max-time {4 * rules.most_s:g}`"
    if fit["width"] is None:
        return f"only {fit['windows']} windows fitted into {rules.most_s:g} s: no interval can be given{more}"
    return (
        f"not sure to {rules.width:.0%}: the 95 % interval of the median is {fit['width']:.1%} wide after "
        f"{rules.most_s:g} s{more}"
    )


def limit_of(row: Mapping[str, Any], *, fixed_s: float | None) -> tuple[Limit | None, str]:
    """Return what limits a step of `fit()`, and a sentence on it.

    Args:
        row: Of the profile, measured.
        fixed_s: What a step takes whatever the batch size; None when only one was measured [s].
    """
    fit_s = row["fit"].get("median_s")
    step_s = (row.get("step") or {}).get("median_s")
    if fit_s is None:
        return None, ""
    waits = _waits_for_input(row, fit_s, step_s)
    if waits:
        return "input", waits
    if fixed_s is None:
        return None, ""
    share = min(fixed_s / fit_s, 1.0)
    if share >= HOST_SHARE:
        return "host", (
            f"launch-bound: {share:.0%} of a step does not depend on the batch size; a larger batch is nearly "
            f"free, and a faster device gains little"
        )
    return "device", ""


def _waits_for_input(row: Mapping[str, Any], fit_s: float, step_s: float | None) -> str:
    pipeline: Sequence[Mapping[str, Any]] = row.get("pipeline") or ()
    rate = pipeline[0]["samples_per_s"] if pipeline else None
    if step_s is None or rate is None or fit_s - step_s < INPUT_SHARE * fit_s:
        return ""
    if row["batch_size"] / rate < LOADING_SHARE * fit_s:
        return ""
    best = max((one for one in pipeline if one["samples_per_s"]), key=lambda one: one["samples_per_s"])
    advice = "; make the loader cheaper, or cache what it makes"
    if best["samples_per_s"] > 1.2 * rate and best["workers"]:
        advice = f"; with workers={best['workers']} it delivers {best['samples_per_s']:.0f}"
    possible = row["batch_size"] / step_s
    return (
        f"input-bound: the data arrives at {rate:.0f} samples/s, the step could take {possible:.0f}{advice}"
    )
