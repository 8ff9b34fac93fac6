"""Scores on held-out rows in every evaluation setting, and on a user's measurements."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import CPU, Offer, Status
from gpuplan.plan.accuracy import HEADLINE, Scoreboard
from gpuplan.predict.accelerator_limits import find_release_year
from gpuplan.predict.measurements import OWN, Measurement
from gpuplan.predict.run_config import KERAS_TORCH, name_stack
from gpuplan.predict.scores import ScoredRow, Summary, percentile, summarize, summarize_by
from gpuplan.records import to_plain

from .evaluation import Evaluator, HeldOutPredictions
from .evaluation_protocols import EvaluationSetting
from .kernel_store import build_run_key, load_store
from .regret import PriceOf, build_options, evaluate_choices, summarize_decisions

Progress = Callable[[str], None]


CLOUDS = ("aws", "azure", "gcp")
# Stacks that users of Keras run, and the networks among our own steps that are not convolutional.
USES = {"xla": "Keras 3 on JAX", "tensorflow2 keras": "Keras on TensorFlow", KERAS_TORCH: "Keras 3 on PyTorch"}
TRANSFORMERS = ("transformer", "encoder", "decoder", "vision_transformer", "translation")
OWN_NETWORKS = dict.fromkeys(TRANSFORMERS, "transformer")
OWN_NETWORKS |= dict.fromkeys(("lstm_text", "lstm_language", "lstm_tagger", "gru_series"), "recurrent")
OWN_NETWORKS |= dict.fromkeys(("mlp", "mlp_mixer", "tabular"), "dense")
ERAS = {"before Pascal": 2016, "Pascal": 2017, "Volta, Turing": 2020}  # released before
PREFERENCE: tuple[Status, ...] = ("active", "legacy", "retired", "historical")


def _sort_key(offer: Offer) -> tuple[object, ...]:
    return (PREFERENCE.index(offer.status), offer.usd_per_hour, offer.provider, offer.instance_type, offer.region)


def find_reference_prices(
    offers: Iterable[Offer], *, providers: Container[str] | None = None
) -> dict[tuple[str, float], Offer]:
    """Return the cheapest complete on-demand machine for each accelerator and number of devices.

    Active offers are preferred to legacy ones, and those to retired ones, so that a retired chip has its last
    listed price. CPU hosts are excluded.

    Args:
        offers: Current and former offers.
        providers: Accepted providers; all if None.
    """
    best: dict[tuple[str, float], Offer] = {}
    for offer in offers:
        counts = offer.purchase == "on_demand" and offer.complete and offer.usd_per_hour
        if not counts or offer.accelerator == CPU or (providers is not None and offer.provider not in providers):
            continue
        key = (offer.accelerator, offer.devices)
        if key not in best or _sort_key(offer) < _sort_key(best[key]):
            best[key] = offer
    return best


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
            "pool": {"n": len(self.predicted.pool), "sources": len({m.origin for m in self.predicted.pool})},
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
            "by_class": summarize_classes(rows),
            "by_use": to_plain(summarize_by([row for row in rows if name_use(row.measurement)], name_use)),
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


def classify_network(m: Measurement) -> str:
    """Return the kind of a measured network by the file that builds it, or by its name.

    Example:
        >>> from types import SimpleNamespace
        >>> vit = {"model": "vision_transformer.py:vit?patch=16", "architecture": "vit", "collection": "timm"}
        >>> classify_network(SimpleNamespace(**vit))
        'transformer'
    """
    if m.collection == OWN:
        return OWN_NETWORKS.get(m.family, "convolutional")
    file = m.model.split(":")[0].removesuffix(".py").rsplit("/", 1)[-1]
    if file in ("language", "transformer_xl") or m.architecture.startswith(("vit", "swin")):
        return "transformer"
    if file in ("recurrent", "forecasting"):
        return "recurrent"
    return "recommender" if file == "recommenders" else "convolutional"


def name_use(m: Measurement) -> str:
    """Return what a user runs, as `BACKEND, network, chip`, if a measurement is of it; empty for other stacks."""
    backend = USES.get(name_stack(m), "") if m.collection == OWN or not m.compiled else ""
    return f"{backend}, {classify_network(m)}, {m.chip}" if backend else ""


def name_classes(m: Measurement) -> tuple[str, ...]:
    """Return the classes of a measurement within each of which intervals should hold as many as they say.

    Precision, kind of stack, era of the chip, kind of network, and whether convolutions are depthwise.
    """
    stack = name_stack(m)
    kinds = {"tuned": "a vendor's container", "eager": "PyTorch's own modules", "keras": "Keras kernel by kernel"}
    kind = next((kinds[word] for word in kinds if f" {word}" in stack), "compiled (XLA, Inductor)")
    year = find_release_year(load_catalog().accelerators[m.accelerator])
    era = next((name for name, until in ERAS.items() if year < until), "since Ampere")
    kernels = {kernel.category for kernel in load_store()[build_run_key(m)].kernels}
    depthwise = ("depthwise convolutions",) if "depthwise" in kernels else ()
    return m.precision, kind, era, classify_network(m), *depthwise


def summarize_classes(rows: Sequence[ScoredRow]) -> dict[str, dict[str, float]]:
    """Return the scores of each class, and how wide its intervals are: the median of high over low [-]."""
    members: dict[str, list[ScoredRow]] = {}
    for row in rows:
        for name in name_classes(row.measurement):
            members.setdefault(name, []).append(row)
    return {
        name: {
            **to_plain(summarize(ours)),
            "width": percentile([row.predicted_s.high / row.predicted_s.low for row in ours], 0.5),
        }
        for name, ours in sorted(members.items())
    }


def average_over_groups(summaries: Mapping[str, Summary]) -> dict[str, float]:
    """Return the mean of the errors and of the coverage of some groups, each counting once however large."""
    names = ("median_ape", "mean_ape", "coverage_80")
    means = {name: sum(getattr(s, name) for s in summaries.values()) / len(summaries) for name in names}
    return {"n": len(summaries), **means}


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
