"""Accuracy of predictions: the packaged record of all settings, and scores on a user's measurements."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, cast

from ..errors import UsageError, near_names_hint
from ..offers.rows import Accelerator
from ..plain import to_plain
from ..predict.measurements import Measurement
from ..predict.predictor import Predictor
from ..predict.scores import ScoredRow, Summary, row_to_json, summarize, summarize_by
from .user_rows import find_fitted_publications, find_publication, predict_user_rows

Progress = Callable[[str], None]
FORMAT = "gpuplan.accuracy-record/1"
HEADLINE = "architecture"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoreboard:
    """Scores and the rows behind them.

    Args:
        protocol: What the rows were predicted without.
        rows: Predicted rows: those of the first setting, or a user's own.
        baselines: Scores of the baselines on the same rows, cross-validated in the same way.
        unpredicted: Measurements that got no prediction, with the reason.
        settings: Scores of every setting that has rows, by name; empty for a user's own rows.
        fitted: Publications that the coefficients are fitted on, of a user's own rows.
    """

    protocol: str
    rows: tuple[ScoredRow, ...]
    baselines: dict[str, Summary] = field(default_factory=dict)
    unpredicted: tuple[tuple[Measurement, str], ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    fitted: frozenset[str] = frozenset()

    @property
    def unseen(self) -> list[ScoredRow]:
        """Rows of publications that the coefficients are not fitted on."""
        return [row for row in self.rows if find_publication(row.measurement.source) not in self.fitted]

    def by_accelerator(self) -> dict[str, Summary]:
        """Return a summary for each accelerator."""
        return summarize_by(self.rows, lambda m: m.accelerator)

    def by_model(self) -> dict[str, Summary]:
        """Return a summary for each model architecture."""
        return summarize_by(self.rows, lambda m: m.architecture)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types under the keys of the contract."""
        return {
            "protocol": self.protocol,
            "summary": to_plain(summarize(self.rows)) if self.rows else None,
            "summary_unseen": to_plain(summarize(self.unseen)) if self.unseen else None,
            "by_accelerator": to_plain(self.by_accelerator()),
            "by_model": to_plain(self.by_model()),
            "rules_of_thumb": to_plain(self.baselines),
            "settings": self.settings,
            "rows": [
                {
                    **row_to_json(row),
                    "publication_fitted": find_publication(row.measurement.source) in self.fitted,
                }
                for row in self.rows
            ],
            "unpredicted": [
                {"model": m.model, "accelerator": m.accelerator, "reason": reason}
                for m, reason in self.unpredicted
            ],
        }


def score_measurements(
    measurements: Sequence[Measurement],
    resolve: Callable[[str], Accelerator],
    predictor: Predictor,
    *,
    progress: Progress,
) -> Scoreboard:
    """Predict a user's measurements with the packaged coefficients, never by looking the answer up."""
    found = predict_user_rows(measurements, resolve, predictor, progress=progress)
    return Scoreboard(
        protocol="packaged coefficients, no look-up of measurements",
        rows=tuple(found.rows),
        baselines={name: summarize(rows) for name, rows in found.baselines.items() if rows},
        unpredicted=tuple(found.unpredicted),
        fitted=find_fitted_publications(),
    )


def read_record(path: Path | Traversable) -> dict[str, Any]:
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


def load_packaged_record() -> dict[str, Any]:
    """Return the record that ships with the program."""
    return read_record(resources.files("gpuplan.profiles") / "accuracy.json")


def load_recorded_board(names: Collection[str]) -> dict[str, Any]:
    """Load recorded settings under the keys of the JSON contract, without the rows behind them.

    Args:
        names: Settings; all of them when none is named.

    Raises:
        UsageError: A name is unknown.
    """
    recorded = load_packaged_record()["settings"]
    require_settings(names, recorded)
    settings = {name: scores for name, scores in recorded.items() if not names or name in names}
    shown = settings.get(HEADLINE) or next(iter(settings.values()), None)
    keys = ("protocol", "summary", "by_accelerator", "by_model", "rules_of_thumb")
    return {**{key: shown[key] if shown else None for key in keys}, "settings": settings, "rows": []}


def require_settings(names: Collection[str], known: Collection[str]) -> None:
    """Raise UsageError for a setting that is unknown."""
    for name in names:
        if name not in known:
            hint = near_names_hint(name, known, see_all="gpuplan accuracy")
            raise UsageError(f"unknown setting `{name}` in `--setting`", hint=hint)
