"""The evidence: scoreboards on models that the fit has not seen, and on a user's own measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..offers.rows import Accelerator
from .calibrate import leave_out_architectures
from .cases import examples_of, workload_of
from .corpus import Measurement
from .predictor import Predictor
from .runs import is_fed_from_host
from .score import ScoredRow, Summary, by, row_to_json, summarize
from .steptime import StepTime

__all__ = ["Scoreboard", "judge", "leave_one_architecture_out"]

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoreboard:
    """Scores and the rows behind them.

    Args:
        protocol: What the rows were predicted without.
        rows: Predicted rows.
        rules: Scores of the rules of thumb on the same rows, fitted and left out alike.
        unpredicted: Measurements that got no prediction, with the reason.
    """

    protocol: str
    rows: tuple[ScoredRow, ...]
    rules: dict[str, Summary] = field(default_factory=dict)
    unpredicted: tuple[tuple[Measurement, str], ...] = ()

    def by_accelerator(self) -> dict[str, Summary]:
        """Return a summary for each accelerator."""
        return by(self.rows, lambda m: m.accelerator)

    def by_model(self) -> dict[str, Summary]:
        """Return a summary for each model architecture."""
        return by(self.rows, lambda m: m.architecture)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types under the keys of the contract."""
        return {
            "protocol": self.protocol,
            "summary": summarize(self.rows).to_json() if self.rows else None,
            "by_accelerator": {name: s.to_json() for name, s in self.by_accelerator().items()},
            "by_model": {name: s.to_json() for name, s in self.by_model().items()},
            "rules_of_thumb": {name: s.to_json() for name, s in self.rules.items()},
            "rows": [row_to_json(row) for row in self.rows],
            "unpredicted": [{"model": m.model, "accelerator": m.accelerator, "reason": reason}
                            for m, reason in self.unpredicted],
        }  # fmt: skip


def leave_one_architecture_out(
    measurements: Sequence[Measurement], accelerators: Mapping[str, Accelerator], *, progress: Progress
) -> Scoreboard:
    """Predict every architecture of the corpus by a fit and an interval that have not seen it."""
    examples = examples_of(measurements, accelerators, progress=progress)
    held_out = leave_out_architectures(examples, progress=progress)
    rules = {name: summarize(held_out.scored(times, basis=name)) for name, times in held_out.naive_s.items()}
    return Scoreboard(
        protocol="every architecture predicted by coefficients fitted on the others (leave one architecture out)",
        rows=tuple(held_out.scored()), rules=rules,
    )  # fmt: skip


def judge(
    measurements: Sequence[Measurement], resolve: Callable[[str], Accelerator], predictor: Predictor, *,
    progress: Progress,
) -> Scoreboard:  # fmt: skip
    """Predict a user's measurements with the packaged coefficients, never by looking the answer up."""
    rows: list[ScoredRow] = []
    unpredicted: list[tuple[Measurement, str]] = []
    for m in measurements:
        progress(m.model)
        accelerator = resolve(m.accelerator)
        step = predictor.step_time(
            workload_of(m), accelerator, devices=m.devices, look_up=False,
            stack=m.stack, fed=is_fed_from_host(m),
        )  # fmt: skip
        if isinstance(step, StepTime):
            rows.append(ScoredRow(measurement=m, predicted_s=step.time_s, basis=step.basis))
        else:
            unpredicted.append((m, step.reason))
    return Scoreboard(
        protocol="packaged coefficients, no look-up of measurements", rows=tuple(rows),
        unpredicted=tuple(unpredicted),
    )  # fmt: skip
