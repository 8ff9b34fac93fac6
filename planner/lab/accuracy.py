"""Scores on held-out rows in every evaluation setting, and on a user's measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ..offers.query import CLOUDS, find_reference_prices
from ..offers.rows import Accelerator, Offer
from ..plain import to_plain
from ..predict.measurements import Measurement
from ..predict.predictor import Predictor
from ..predict.run_config import name_stack
from .evaluation import Evaluator, HeldOutPredictions
from .evaluation_protocols import HEADLINE, EvaluationSetting
from .regret import PriceOf, build_options, evaluate_choices, summarize_decisions
from .scores import (
    ScoredRow,
    Summary,
    average_over_groups,
    classify_network,
    row_to_json,
    summarize,
    summarize_by,
)
from .user_rows import find_fitted_publications, find_publication, predict_user_rows

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class MachinePrices:
    """Prices of machines by accelerator and devices: at the cheapest seller, and at the large clouds."""

    anybody: Mapping[tuple[str, float], Offer]
    clouds: Mapping[tuple[str, float], Offer]

    @staticmethod
    def of(offers: Sequence[Offer]) -> MachinePrices:
        """Return the prices in a list of offers."""
        return MachinePrices(
            anybody=find_reference_prices(offers), clouds=find_reference_prices(offers, providers=CLOUDS)
        )

    def to_json(self, machines: Iterable[tuple[str, int]]) -> dict[str, Any]:
        """Return the prices of some machines as plain JSON types."""
        return {
            f"{name} x {devices}": {
                "anybody": _offer_json(self.anybody.get((name, float(devices)))),
                "clouds": _offer_json(self.clouds.get((name, float(devices)))),
            }
            for name, devices in sorted(set(machines))
        }


def _offer_json(offer: Offer | None) -> dict[str, Any] | None:
    if offer is None:
        return None
    return {
        "usd_per_hour": format(offer.usd_per_hour or 0, "f"),
        "provider": offer.provider,
        "instance_type": offer.instance_type,
        "region": offer.region,
        "status": offer.status,
        "price_as_of": offer.price_as_of,
    }


def _lookup(machines: Mapping[tuple[str, float], Offer]) -> PriceOf:
    def price_of(accelerator: str, devices: int) -> float | None:
        offer = machines.get((accelerator, float(devices)))
        return None if offer is None or offer.usd_per_hour is None else float(offer.usd_per_hour)

    return price_of


def build_decision_json(groups: Sequence[Sequence[ScoredRow]], prices: MachinePrices) -> dict[str, Any]:
    """Return the regret of choosing machines by these predictions within each group, as plain JSON types."""

    def loss(price_of: PriceOf) -> dict[str, Any]:
        summary = summarize_decisions([one for rows in groups for one in evaluate_choices(rows, price_of)])
        return cast("dict[str, Any]", to_plain(summary))

    anywhere, at_clouds = loss(_lookup(prices.anybody)), loss(_lookup(prices.clouds))
    return {**anywhere, "cheapest_at_clouds": at_clouds["cheapest"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingScore:
    """One setting, and what was predicted in it.

    Args:
        setting: How it was held out.
        predicted: Rows that are counted; at least one.
        choices: Rows among which machines are chosen, group by group.
        prices: What they cost.
    """

    setting: EvaluationSetting
    predicted: HeldOutPredictions
    choices: tuple[HeldOutPredictions, ...]
    prices: MachinePrices

    def to_json(self) -> dict[str, Any]:
        """Return the scores without the rows, as plain JSON types."""
        rows, baselines = self.predicted.rows, self.predicted.baselines
        by_source = summarize_by(rows, lambda m: m.origin)
        return {
            "title": self.setting.title,
            "protocol": self.setting.protocol,
            "pool": {
                "n": len(self.predicted.pool),
                "sources": len({m.origin for m in self.predicted.pool}),
            },
            "n": len(rows),
            "summary": to_plain(summarize(rows)),
            "over_sources": average_over_groups(by_source),
            "decision": build_decision_json([group.rows for group in self.choices], self.prices),
            "by_source": to_plain(by_source),
            "by_accelerator": to_plain(summarize_by(rows, lambda m: m.accelerator)),
            "by_model": to_plain(summarize_by(rows, lambda m: m.architecture)),
            "by_precision": to_plain(summarize_by(rows, lambda m: m.precision)),
            "by_stack": to_plain(summarize_by(rows, name_stack)),
            "by_network": to_plain(summarize_by(rows, classify_network)),
            "rules_of_thumb": {name: to_plain(summarize(judged)) for name, judged in baselines.items()},
            "rules_decision": {
                name: build_decision_json([group.baselines[name] for group in self.choices], self.prices)
                for name in baselines
            },
            "prices": self.prices.to_json(_machines([row for group in self.choices for row in group.rows])),
        }


def _machines(rows: Sequence[ScoredRow]) -> set[tuple[str, int]]:
    """Return the accelerators and numbers of devices of all options."""
    return {(c.accelerator, c.devices) for choice in build_options(rows, lambda *_: None) for c in choice}


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


def evaluate_settings(
    evaluator: Evaluator, settings: Sequence[EvaluationSetting], prices: MachinePrices
) -> Scoreboard:
    """Return the scores of settings; one that has no rows to judge is not among them.

    The rows are those of the headline setting, or of the first one when that is not asked for.
    """
    judged = [_judged(setting, evaluator, prices) for setting in settings]
    scores = [score for score in judged if score.predicted.rows]
    shown = next((s for s in scores if s.setting.name == HEADLINE), scores[0] if scores else None)
    if shown is None:
        return Scoreboard(protocol="no rows to judge", rows=())
    return Scoreboard(
        protocol=shown.setting.protocol,
        rows=shown.predicted.rows,
        baselines={name: summarize(rows) for name, rows in shown.predicted.baselines.items()},
        settings={score.setting.name: score.to_json() for score in scores},
    )


def _judged(setting: EvaluationSetting, evaluator: Evaluator, prices: MachinePrices) -> SettingScore:
    predicted = setting.predict(evaluator)
    choices = setting.among(evaluator) if setting.among else [predicted]
    return SettingScore(setting=setting, predicted=predicted, choices=tuple(choices), prices=prices)


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
