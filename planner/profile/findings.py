"""Caveats of a measurement and its bottleneck, each as a sentence with a remedy."""

from __future__ import annotations

from ..profile_schema import LoadRecord, RowRecord, Timing
from ..units import MS_PER_S
from .statistics import compute_process_spread
from .windows import MeasurementRules

OTHERS_SHARE = 0.10  # share of the processor above which other load visibly affects CPU times [-]
DRIFT = 0.03  # relative change of the median over time, or deviation between processes [-]
SPREAD = 0.10
INPUT_SHARE = 0.25  # share of a fit() step outside the compiled step above which input is the bottleneck [-]
LOADING_SHARE = 0.5  # pipeline time per fit() step above which input is the bottleneck [-]
HOST_SHARE = 0.5  # share of a step independent of the batch size above which it is launch-bound [-]


def find_caveats(row: RowRecord, *, rules: MeasurementRules, options: str = "") -> list[str]:
    """Return the caveats of a measured row; `options`: those of the command line, which no advice repeats."""
    found: list[str] = []
    fit, load = row["fit"], row.get("load")
    if load is not None and load["other_share"] >= OTHERS_SHARE:
        found.append(_describe_load(load))
    if fit is None or fit.get("median_s") is None:
        return [*found, "too few steps to measure: provide more data, or use a smaller batch"]
    spread = fit.get("spread")
    if spread is None:
        return [*found, "too few steps for windows: no confidence interval is available"]
    if fit["warm_up"]["settled"] is False:
        found.append(
            f"the warm-up did not settle within {rules.warm_up_s:g} s: check for other load, or thermal throttling"
        )
    if fit["stopped"] == "time" and (fit["width"] is None or fit["width"] > rules.width):
        found.append(_describe_imprecision(fit, rules, options))
    if abs(fit["drift"]) > DRIFT:
        found.append(
            f"unsteady: the second half took {1 + fit['drift']:.3f} times the time of the first: "
            f"clocks or temperature changed"
        )
    if compute_process_spread(fit) > DRIFT:
        found.append(_describe_process_spread(fit))
    if spread > SPREAD:
        found.append(f"unsteady: half of the windows differ by more than {spread:.0%} of the median")
    return found


def _describe_load(load: LoadRecord) -> str:
    share, most = f"{100 * load['other_share']:.0f} %", load["most"]
    if load["stolen_cores"] > load["other_cores"] / 2:
        return (
            f"unsteady: other guests of the hypervisor used {share} of the CPU; "
            f"try again later, or on another machine"
        )
    if not most:
        return f"unsteady: short-lived processes used {share} of the CPU; try again when it is idle"
    name = most[0]["name"]
    who = f"`{name}` (process {most[0]['pid']})" if len(most) == 1 else f"`{name}` and others"
    return f"unsteady: another process used {share} of the CPU: {who}; try again when it has ended"


def _describe_process_spread(fit: Timing) -> str:
    medians_s = fit["process_medians_s"]
    low_ms, high_ms = (end * MS_PER_S for end in (min(medians_s), max(medians_s)))
    return (
        f"unsteady: {len(medians_s)} processes took {low_ms:.3g} to {high_ms:.3g} ms per step: "
        f"a run may take any time in this range"
    )


def _describe_imprecision(fit: Timing, rules: MeasurementRules, options: str) -> str:
    count = len(fit.get("process_medians_s") or ())
    flag, after, value = "--max-time", f"{rules.most_s:g} s", 4 * rules.most_s
    if count > 1:
        flag, after, value = "--processes", f"{count} processes", 2 * count
    more = "" if flag in options else f"; try `{flag} {value:g}`"
    if fit["width"] is None:
        return f"only {fit['windows']} windows fit into {after}: no interval is available{more}"
    return (
        f"not known to {rules.width:.0%}: the 95 % interval of the median is {fit['width']:.1%} wide after "
        f"{after}{more}"
    )


def find_bottleneck(row: RowRecord, *, fixed_s: float | None) -> tuple[str | None, str]:
    """Return the bottleneck of a `fit()` step (`input`, `host`, `device`), and a sentence on it; None if unknown.

    Args:
        row: Measured row of the profile.
        fixed_s: Part of a step independent of the batch size; None if only one size was measured [s].
    """
    fit, step = row["fit"], row.get("step")
    fit_s = fit["median_s"] if fit else None
    step_s = step["median_s"] if step else None
    if fit_s is None:
        return None, ""
    waits = _describe_input(row, fit_s, step_s)
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


def _describe_input(row: RowRecord, fit_s: float, step_s: float | None) -> str:
    pipeline = row.get("pipeline") or []
    rate = pipeline[0]["samples_per_s"] if pipeline else None
    batch_size = row["batch_size"]
    if rate is None or batch_size is None or batch_size / rate < LOADING_SHARE * fit_s:
        return ""
    if step_s is None:
        return f"input-bound: the data arrives at {rate:.0f} samples/s, and the step without it was not timed"
    if fit_s - step_s < INPUT_SHARE * fit_s:
        return ""
    best_rate, workers = max(
        ((known, one["workers"]) for one in pipeline if (known := one["samples_per_s"])), key=lambda pair: pair[0]
    )
    advice = "; make the loader faster, or cache its output"
    if best_rate > 1.2 * rate and workers:
        advice = f"; with workers={workers} it delivers {best_rate:.0f}"
    possible = batch_size / step_s
    return f"input-bound: the data arrives at {rate:.0f} samples/s, the step could take {possible:.0f}{advice}"
