"""Fit and cross-validation of the constants of multi-device scaling.

Regularized least squares on the log of the ratio of both steps, with `scipy.optimize.least_squares`; every
method's constants are drawn towards a shared mean, and the mean towards a physical starting point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuplan.predict.collectives import RingLinks, compute_link_s, list_gradient_sums
from gpuplan.predict.data_parallel import (
    ANY_METHOD,
    BACKWARD_SHARE,
    ExchangeCoefficients,
    MethodCoefficients,
    ParallelCoefficients,
    compute_waiting_s,
    ratio_scale,
)
from gpuplan.predict.interconnect import Link
from gpuplan.predict.intervals import interval_around
from gpuplan.predict.measurements import Measurement
from gpuplan.predict.scores import ScoredRow
from gpuplan.records import to_plain

from ..quantiles import compute_nested_log_bounds
from .data import EXCHANGE_FORMS, ScalingPair

# Starting point and prior spread in log units. Links: NCCL's own tests reach 0.8 of NVLink and half of PCIe on
# large messages, less on a model's buckets; a fifth is common on sockets. Decoding: some 200 JPEGs a second and
# core. The others are orders of magnitude. The data decides.
LINKS: Mapping[str, tuple[float, float]] = {
    "nvlink": (0.6, 0.5),
    "pcie": (0.4, 0.5),
    "ici": (0.6, 0.5),
    "network": (0.3, 0.7),
}
SHARED: Mapping[str, tuple[float, float]] = {"decoded_per_s_per_core": (200.0, 0.5), "sharpness": (4.0, 0.15)}
METHOD: Mapping[str, tuple[float, float]] = {
    "slowdown": (0.015, 0.7),
    "sync_s": (1e-3, 1.0),
    "overlap": (0.6, 0.5),
}
FORMAT = "gpuplan.parallel/2"
SPREAD_LOG = 0.4  # prior spread of one method around the mean, in log units
ROBUST_LOG = 0.05  # residuals beyond this count linearly (soft L1), so that odd rows do not rule
EVALUATIONS = 60
TOLERANCE = 1e-4  # of the cost: a step beyond it moves no prediction by a tenth of a percent


def compute_overhead_parts_s(
    *,
    single_s: float,
    devices: float,
    gradient_bytes: float,
    link: Link,
    parallel: ParallelCoefficients,
    method: str = ANY_METHOD,
    backward_share: float = BACKWARD_SHARE,
    accumulation: int = 1,
    decoded_samples: float | None = None,
    cpu_cores: float | None = None,
) -> dict[str, float]:
    """Return the time added to the step of one device by part (`link`, `input`); empty for one device [s].

    Args:
        single_s: The step on one device [s].
        devices: Of all hosts [-].
        gradient_bytes: What a device holds of gradients, as they are sent [bytes].
        method: `ddp`, `horovod`, `mirrored`, `in_graph`, ...; others behave as the mean.
        backward_share: Of the step's work [-].
        accumulation: Passes for each exchange; the step is one pass [-].
        decoded_samples: Images a device's pass needs from the host's cores; None: none, or unknown [-].
        cpu_cores: Physical, of the host that feeds all of ``devices``; None: no limit known [-].
    """
    if devices <= 1:
        return {}
    links = RingLinks(inside=link, whole=link, host_devices=devices, parallel=parallel)
    sums = list_gradient_sums(gradient_bytes, devices=devices)
    added_s = compute_link_s(
        sums, single_s=single_s, devices=devices, links=links, backward_share=backward_share, method=method
    )
    waiting_s = compute_waiting_s(single_s, devices=devices, kind=link.kind, way=parallel.method(method))
    link_s = waiting_s + (added_s - waiting_s) / accumulation
    device_s, shares, feed_s = single_s + link_s, parallel.shares, 0.0
    if decoded_samples is not None and cpu_cores is not None:
        feed_s = devices * decoded_samples / (shares.decoded_per_s_per_core * cpu_cores)
    # What the input pipeline adds: (device^p + feed^p)^(1/p) - device.
    grown = (1.0 + (feed_s / device_s) ** shares.sharpness) ** (1.0 / shares.sharpness)
    return {"link": link_s, "input": device_s * float(grown - 1.0)}


def compute_parallel_step_s(*, single_s: float, **circumstances: Any) -> float:
    """Return the step on several devices, each with the batch of the one [s]; see `compute_overhead_parts_s`."""
    return single_s + sum(compute_overhead_parts_s(single_s=single_s, **circumstances).values())


def _unpack(logs: Any, methods: Sequence[str]) -> ParallelCoefficients:
    """Return constants from the vector of logs: links, shared ones, means of the methods, their additions."""
    values = [float(value) for value in logs]
    a, b, c = len(LINKS), len(LINKS) + len(SHARED), len(LINKS) + len(SHARED) + len(METHOD)
    means = values[b:c]
    own = {name: values[c + i * len(METHOD) :][: len(METHOD)] for i, name in enumerate(methods)}
    return ParallelCoefficients(
        shares=ExchangeCoefficients(
            links={kind: math.exp(log) for kind, log in zip(LINKS, values[:a], strict=True)},
            **{name: math.exp(log) for name, log in zip(SHARED, values[a:b], strict=True)},
        ),
        methods={ANY_METHOD: _method(means), **{name: _method(means, add) for name, add in own.items()}},
    )


def _method(means: Sequence[float], added: Sequence[float] = (0.0, 0.0, 0.0)) -> MethodCoefficients:
    slowdown, sync_s, overlap = (math.exp(m + a) for m, a in zip(means, added, strict=True))
    return MethodCoefficients(slowdown=slowdown, sync_s=sync_s, overlap=min(overlap, 1.0))


def predict_pair_s(pair: ScalingPair, parallel: ParallelCoefficients) -> float:
    """Return the step of a pair's devices, from its step on one [s]."""
    return compute_parallel_step_s(parallel=parallel, **pair.circumstances)


def fit_parallel(pairs: Sequence[ScalingPair]) -> ParallelCoefficients:
    """Fit all constants of one form of exchange on pairs of it."""
    import numpy as np
    from scipy.optimize import least_squares

    methods = sorted({pair.method for pair in pairs})
    ranges = [*LINKS.values(), *SHARED.values(), *METHOD.values()]
    additions = len(methods) * len(METHOD)
    start = np.array([*(math.log(value) for value, _ in ranges), *[0.0] * additions])
    spread = np.array([*(width for _, width in ranges), *[SPREAD_LOG] * additions])

    def residuals(logs: Any) -> Any:
        parallel = _unpack(logs, methods)
        errors = [math.log(predict_pair_s(pair, parallel) / pair.measurement.step_s) for pair in pairs]
        scaled = np.array(errors) / ROBUST_LOG
        soft = np.sign(scaled) * np.sqrt(2.0 * (np.sqrt(1.0 + scaled**2) - 1.0))
        return np.concatenate([soft, (logs - start) / spread])

    found = least_squares(residuals, start, x_scale=spread, max_nfev=EVALUATIONS, ftol=TOLERANCE)
    return _unpack(found.x, methods)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingCrossValidation:
    """Predictions of every pair by constants fitted without its group."""

    pairs: tuple[ScalingPair, ...]
    groups: tuple[str, ...]
    predicted_s: tuple[float, ...]

    def interval(self, *, without: str | None = None) -> tuple[float, float]:
        """Return the 80 % interval of log(measured / predicted) over its scale, leaving out one more group."""
        kept = [
            (math.log(pair.measurement.step_s / mid) / ratio_scale(mid / pair.single_s), group)
            for pair, mid, group in zip(self.pairs, self.predicted_s, self.groups, strict=True)
            if group != without
        ]
        return compute_nested_log_bounds([log for log, _ in kept], [group for _, group in kept])

    def score(self) -> list[ScoredRow]:
        """Return a row for each pair, its interval made of the errors on the *other* groups only."""
        ends = {group: self.interval(without=group) for group in set(self.groups)}
        rows = []
        for pair, mid, group in zip(self.pairs, self.predicted_s, self.groups, strict=True):
            low, high = (end * ratio_scale(mid / pair.single_s) for end in ends[group])
            interval = interval_around(mid, low, high)
            rows.append(ScoredRow(measurement=pair.measurement, predicted_s=interval, basis="measured on one"))
        return rows


def cross_validate_scaling(
    pairs: Sequence[ScalingPair],
    *,
    group_of: Callable[[Measurement], str] = lambda m: m.origin,
    judged: Sequence[ScalingPair] | None = None,
) -> ScalingCrossValidation:
    """Fit once without each group (a source, say, or an architecture) and predict the group.

    Args:
        pairs: What is fitted on, all of one form.
        group_of: What is left out together.
        judged: What is predicted instead of the pairs: the same rows from a modelled step on one device, say.
    """
    judged = pairs if judged is None else judged
    groups = tuple(group_of(pair.measurement) for pair in judged)
    fits = {
        group: fit_parallel([pair for pair in pairs if group_of(pair.measurement) != group])
        for group in sorted(set(groups))
    }
    return ScalingCrossValidation(
        pairs=tuple(judged),
        groups=groups,
        predicted_s=tuple(predict_pair_s(pair, fits[group]) for pair, group in zip(judged, groups, strict=True)),
    )


def fit_exchange_forms(pairs: Sequence[ScalingPair]) -> dict[str, ParallelCoefficients]:
    """Fit every form that was measured; intervals from the errors on sources that were left out."""
    fitted: dict[str, ParallelCoefficients] = {}
    for form in EXCHANGE_FORMS:
        rows = [pair for pair in pairs if pair.form == form]
        if not rows:
            continue
        validation = cross_validate_scaling(rows)
        fitted[form] = replace(
            fit_parallel(rows),
            interval=validation.interval(),
            fitted_on={"rows": len(rows), "sources": sorted(set(validation.groups))},
        )
    return fitted


def parallel_to_json(fitted: Mapping[str, ParallelCoefficients]) -> dict[str, Any]:
    """Return the content of `parallel.json`."""
    return {"schema": FORMAT, "forms": to_plain(fitted)}
