"""Accuracy of predictions: the packaged record of all settings, and scores on a user's measurements."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any, cast

from ..errors import UsageError, near_names_hint
from ..offers.rows import Accelerator
from ..predict.accelerator_limits import runs_tf32_by_default
from ..predict.collectives import scale_to_devices
from ..predict.keras_defaults import choose_attention
from ..predict.measured_run import (
    FitSample,
    build_fit_sample,
    build_traced_run,
    find_host_spec,
    load_measured_workload,
)
from ..predict.measurements import Measurement, load_published_measurements
from ..predict.modelled_step import predict_step
from ..predict.predictor import Predictor
from ..predict.run_config import find_software_year, find_wait_factor, name_user_run
from ..predict.scores import (
    BASELINES,
    ScoredRow,
    Summary,
    predict_baseline_s,
    row_to_json,
    summarize,
    summarize_by,
)
from ..predict.sharding import Sharding, parse_sharding
from ..predict.step_time import NoPrediction, StepTime
from ..records import to_plain
from ..units import Interval
from ..workload.model import Workload
from .memory import build_device_workload, list_exchanges

Progress = Callable[[str], None]
FRAMEWORKS = {"keras": "tensorflow2", "eager": "pytorch", "tuned": ""}  # of rows that name none, kernel by kernel
FITTING = 1.0  # memory needed over memory usable, at most, of a step that ran [-]
FIRST_WITH_FUSED_ATTENTION = 2023.2  # PyTorch 2.0, March 2023: `scaled_dot_product_attention`
# TensorFlow 2.4, December 2020, and NVIDIA's containers since 20.06 take TF32 by default; PyTorch 1.7 to 1.11 for
# all products, since 1.12 (June 2022) for convolutions alone (release notes of both).
FIRST_WITH_TF32, FIRST_WITH_FLOAT32_PRODUCTS = 2020.4, 2022.4


def resolve_defaults(m: Measurement, workload: Workload, accelerator: Accelerator) -> Measurement:
    """Return a row with what it does not state: framework, use of TF32 and fused attention, by their defaults."""
    compiled_by = {"keras": "jax", "eager": "pytorch", "tuned": "jax"}
    framework = m.framework or (compiled_by if m.compiled else FRAMEWORKS)[m.stack]
    known = replace(m, framework=framework)
    is_fused = find_software_year(known) >= FIRST_WITH_FUSED_ATTENTION
    if m.stack == "keras" and framework != "pytorch" and not m.attention:
        is_fused = choose_attention(replace(workload, compiled=m.compiled), accelerator).fused
    attention = m.attention or ("flash" if is_fused else "unfused")
    return replace(known, precision=_resolve_precision(known, accelerator), attention=attention)


def _resolve_precision(m: Measurement, accelerator: Accelerator) -> str:
    """Return `float32` as the framework runs it: with TF32 for all products, for convolutions, or for none."""
    year = find_software_year(m)
    may_differ = runs_tf32_by_default(accelerator) and not m.exact_precision and year >= FIRST_WITH_TF32
    if m.precision != "float32" or not may_differ:
        return m.precision
    if m.framework == "pytorch" and m.stack != "tuned" and year >= FIRST_WITH_FLOAT32_PRODUCTS:
        return "tf32_convolutions"
    return m.precision if m.framework in ("mxnet", "paddle") else "tf32"


def find_publication(source: str) -> str:
    """Return the publication of a row: its source without revision, file and row.

    Example:
        >>> find_publication("huggingface/pytorch-image-models@aa4b585 results/a.csv (timm:0001)")
        'huggingface/pytorch-image-models'
    """
    return source.split("@", maxsplit=1)[0].strip()


def predict_traced_row(
    m: Measurement, workload: Workload, accelerator: Accelerator, predictor: Predictor
) -> tuple[StepTime | NoPrediction, FitSample | None]:
    """Return the step of a row and its inputs by the packaged coefficients, or why there is none."""
    known = resolve_defaults(m, workload, accelerator)
    sharding = parse_sharding(m.shard)[0] if m.shard else Sharding.NONE
    each = build_device_workload(workload, sharding, m.devices)
    sample = build_fit_sample(known, build_traced_run(known, each, accelerator), accelerator)
    if isinstance(sample, NoPrediction):
        return sample, None
    if m.shard:  # it ran, so that it fitted, however much was computed again or kept elsewhere
        sample = replace(sample, pressure=min(sample.pressure, FITTING))
    coefficients = predictor.coefficients
    stack, host = name_user_run(m.stack, torch=m.framework == "pytorch", mode=m.mode, compiled=m.compiled)
    if not m.framework or sample.stack not in coefficients.stacks:
        sample = replace(sample, stack=stack)
    if sample.host not in coefficients.hosts:
        sample = replace(sample, host=host)
    single = predict_step(sample, accelerator, coefficients, precision=known.precision, mode=m.mode)
    single = replace(single, time_s=single.time_s.scaled(find_wait_factor(m)))
    if m.devices == 1:
        return single, sample
    machine = find_host_spec(m)
    hosts = m.hosts or 1 if machine.network_gbit_per_s else 1  # joined by a known network
    exchanges = list_exchanges(workload, sharding, m.devices)
    step = scale_to_devices(
        single, exchanges, accelerator, devices=m.devices, sharding=sharding, machine=machine, hosts=hosts
    )
    return step, sample


HEADLINE = "architecture"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoreboard:
    """Scores and the rows behind them."""

    protocol: str  # what the rows were predicted without
    rows: tuple[ScoredRow, ...]  # predicted rows: those of the first setting, or a user's own
    # Scores of the baselines on the same rows, cross-validated in the same way
    baselines: dict[str, Summary] = field(default_factory=dict)
    unpredicted: tuple[tuple[Measurement, str], ...] = ()  # measurements that got no prediction, with the reason
    # Scores of every setting that has rows, by name; empty for a user's own rows
    settings: dict[str, Any] = field(default_factory=dict)
    fitted: frozenset[str] = frozenset()  # publications that the coefficients are fitted on, of a user's own rows

    def is_fitted(self, row: ScoredRow) -> bool:
        """Return whether the coefficients are fitted on the publication of a row."""
        return find_publication(row.measurement.source) in self.fitted

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types under the keys of the contract."""
        unseen = [row for row in self.rows if not self.is_fitted(row)]
        scores = {
            "protocol": self.protocol,
            "summary": summarize(self.rows) if self.rows else None,
            "summary_unseen": summarize(unseen) if unseen else None,
            "by_accelerator": summarize_by(self.rows, lambda m: m.accelerator),
            "by_model": summarize_by(self.rows, lambda m: m.architecture),
            "rules_of_thumb": self.baselines,
            "settings": self.settings,
            "rows": [{**row_to_json(row), "publication_fitted": self.is_fitted(row)} for row in self.rows],
            "unpredicted": [
                {"model": m.model, "accelerator": m.accelerator, "reason": why} for m, why in self.unpredicted
            ],
        }
        return cast("dict[str, Any]", to_plain(scores))


def score_measurements(
    measurements: Sequence[Measurement],
    resolve: Callable[[str], Accelerator],
    predictor: Predictor,
    *,
    progress: Progress,
) -> Scoreboard:
    """Predict a user's measurements with the packaged coefficients, never by looking the answer up."""
    rows, samples, unpredicted = [], [], []
    for m in measurements:
        progress(m.model)
        step, sample = predict_traced_row(m, load_measured_workload(m), resolve(m.accelerator), predictor)
        if isinstance(step, NoPrediction):
            unpredicted.append((m, step.reason))
        elif sample is not None:
            rows.append(ScoredRow(measurement=m, predicted_s=step.time_s, basis=step.basis))
            samples.append(sample)
    baselines = {}  # the constant of each rule of thumb fitted on these rows; its interval is its time
    for name, rule in BASELINES.items() if rows else ():
        pairs = zip(rows, predict_baseline_s(rule, samples, samples), strict=True)
        intervals = ((row, Interval(low=time_s, mid=time_s, high=time_s)) for row, time_s in pairs)
        baselines[name] = summarize([replace(row, predicted_s=one, basis=name) for row, one in intervals])
    return Scoreboard(
        protocol="packaged coefficients, no look-up of measurements",
        rows=tuple(rows),
        baselines=baselines,
        unpredicted=tuple(unpredicted),
        fitted=frozenset(find_publication(m.source) for m in load_published_measurements()),
    )


def load_packaged_record() -> dict[str, Any]:
    """Return the record that ships with the program."""
    text = (resources.files("gpuplan.profiles") / "accuracy.json").read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))


def load_recorded_board(names: Collection[str]) -> dict[str, Any]:
    """Load recorded settings under the keys of the JSON contract, without the rows behind them.

    Raises:
        UsageError: A name is unknown.
    """
    recorded = load_packaged_record()["settings"]
    require_settings(names, recorded)
    settings = {name: scores for name, scores in recorded.items() if not names or name in names}
    shown = settings.get(HEADLINE) or next(iter(settings.values()))
    keys = ("protocol", "summary", "by_accelerator", "by_model", "rules_of_thumb")
    return {**{key: shown[key] for key in keys}, "settings": settings, "rows": []}


def require_settings(names: Collection[str], known: Collection[str]) -> None:
    """Raise UsageError for a setting that is unknown."""
    for name in names:
        if name not in known:
            hint = near_names_hint(name, known, see_all="gpuplan accuracy")
            raise UsageError(f"unknown setting `{name}` in `--setting`", hint=hint)
