"""Record of the scores of every evaluation setting, and detection of regressions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, cast

from gpuplan.errors import UsageError
from gpuplan.predict.measurements import OWN, SOFTWARE

FORMAT = "gpuplan.accuracy-record/1"
DIGITS = 4  # significant ones: enough to compare, and the same on most machines

# A fit ends a little elsewhere on another processor or with another version of JAX. Noise is whatever is
# less than a point, or than a tenth of the error itself.
NOISE_POINTS = 0.01
NOISE_SHARE = 0.10
# Coverage rests on counting rows that lie near the end of their interval.
NOISE_COVERAGE = 0.05


def round_digits(value: Any) -> Any:
    """Return the same structure with few digits in its numbers.

    Example:
        >>> round_digits({"mean_ape": 0.123456, "n": 123456})
        {'mean_ape': 0.1235, 'n': 123456}
    """
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: round_digits(item) for key, item in value.items()}
    return value


# Steps of sharded models on TPUs, which no setting fits on or predicts (`benchmarks/tpu_steps.py` does both).
UNSCORED = ("tpu_recipes_maxtext_language",)


def inputs_fingerprint() -> str:
    """Return a digest of the published rows and of the fitted coefficients that scores depend on."""
    profiles = resources.files("gpuplan.profiles")
    published = (profiles / "published").iterdir()
    files = [
        file
        for file in published
        if file.name.endswith(".csv") and not file.name.startswith(("left_out", *UNSCORED))
    ]
    digest = hashlib.sha256()
    own = profiles / "measured" / f"{OWN}.csv"
    others = [own, profiles / SOFTWARE, profiles / "efficiency.json"]
    for file in [*sorted(files, key=lambda file: file.name), *others]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def read_record(path: Path) -> dict[str, Any]:
    """Read a record; UsageError when it is missing or is none."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["schema"] != FORMAT:
            raise ValueError(f"its schema is {record['schema']}")
        return cast("dict[str, Any]", record)
    except (OSError, KeyError, TypeError, ValueError) as problem:
        raise UsageError(
            f"cannot read the record of accuracy `{path}`: {problem}",
            hint="rebuild it in a clone with `python -m lab accuracy --output FILE`",
        ) from problem


def build_record(
    settings: Mapping[str, Any], *, order: Iterable[str], before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a record of settings just scored, keeping from an earlier one those that were not.

    Args:
        settings: Scores by name of the setting, as `Scoreboard.settings` has them.
        order: Names of all settings that there are; others are dropped.
        before: An earlier record.
    """
    fingerprint = inputs_fingerprint()
    now = {name: {**round_digits(scores), "inputs": fingerprint} for name, scores in settings.items()}
    merged = {**(before or {}).get("settings", {}), **now}
    return {"schema": FORMAT, "settings": {name: merged[name] for name in order if name in merged}}


def find_regressions(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a line for each score that is worse than in a record, by more than noise.

    Settings that are not in both are not compared: there is nothing to compare them with. Noise is a point
    or a tenth of the earlier error, whichever is larger; five points of coverage; a point of regret.

    Args:
        before, now: Scores by name of the setting.
    """
    return [f"{name}: {line}" for name in now if name in before for line in _worse_lines(before[name], now[name])]


def _worse_lines(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    lines = []
    for score in ("median_ape", "mean_ape"):
        old, new = before["summary"][score], now["summary"][score]
        if new > old + max(NOISE_POINTS, NOISE_SHARE * old):
            lines.append(f"{score} was {old:.4f}, is {new:.4f}")
    old, new = before["summary"]["coverage_80"], now["summary"]["coverage_80"]
    if abs(new - 0.8) > abs(old - 0.8) + NOISE_COVERAGE:
        lines.append(f"coverage_80 was {old:.3f}, is {new:.3f}")
    for choice in ("cheapest", "fastest"):
        old, new = _mean_regret(before, choice), _mean_regret(now, choice)
        if old is not None and new is not None and new > old + NOISE_POINTS:
            lines.append(f"mean regret of the {choice} choice was {old:.4f}, is {new:.4f}")
    return lines


def _mean_regret(scores: Mapping[str, Any], choice: str) -> float | None:
    summary = scores["decision"][choice]
    return None if summary is None else summary["mean_regret"]
