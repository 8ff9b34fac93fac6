"""Update of coefficients by a user's measurements of one accelerator, shrunk towards the packaged ones.

Maximum a posteriori in logs: the residuals of the main fit (`fit.py`), and for each coefficient of the
accelerator's generation, stacks and hosts a normal prior around the packaged value. Its spread is that between
members of the same group (`priors.py`): the device is taken for one more of them. Coefficients that all
generations share stay as they are.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from ..offers.aliases import get_chip_name
from ..offers.rows import Accelerator
from ..predict.coefficients import Coefficients, field_names
from ..predict.measurements import Measurement
from ..predict.modelled_step import MEAN, extrapolate_generation
from ..predict.own_coefficients import DeviceUpdate, apply_update
from ..predict.parameter_vector import RANGES, VectorLayout
from ..predict.priors import ERA_SPREAD_LOG, GROUPS, ROBUST_LOG
from ..predict.run_config import (
    name_measured_run_kind,
    name_user_run,
)
from ..predict.step_time import NoPrediction
from .cross_validation import predict_sample_s
from .dataset import build_fit_sample, load_measured_workload
from .fit import FitSample, compile_log_step, scatter_slopes, search_least_squares, soften, soften_slope
from .kernel_store import build_traced_run
from .user_rows import resolve_defaults

FIXED = len(RANGES) + len(ERA_SPREAD_LOG)  # first columns of a layout: the means, which stay
FARTHEST_LOG = 2.0  # of a coefficient from its packaged value, as in `compute_bounds`
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFit:
    """Update of one accelerator, and errors on its own rows.

    Args:
        accelerator: Name in the catalog.
        update: Fitted coefficients.
        median_ape_before, median_ape_after: Median of |predicted / measured - 1| by the packaged coefficients and
            by the updated ones [-].
        ratio_before: Geometric mean of measured / predicted by the packaged coefficients [-].
    """

    accelerator: str
    update: DeviceUpdate
    median_ape_before: float
    median_ape_after: float
    ratio_before: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFit:
    """Updates by a user's rows.

    Args:
        devices: One for each accelerator with usable rows.
        unused: Rows that no coefficient can be fitted on, with the reason.
    """

    devices: tuple[DeviceFit, ...]
    unused: tuple[tuple[Measurement, str], ...]


def fit_user_rows(
    rows: Sequence[Measurement],
    resolve: Callable[[str], Accelerator],
    packaged: Coefficients,
    *,
    today: date,
    progress: Progress,
) -> UserFit:
    """Fit the coefficients of every accelerator among a user's rows.

    Args:
        rows: Measurements; those on several devices, on CPUs and on TPUs are left out, with the reason.
        resolve: Function from a name to the catalog's row; raises UsageError for an unknown one.
        packaged: Coefficients to shrink towards.
        today: Day that notes will state.
        progress: Is told what is being traced.
    """
    usable: dict[str, list[tuple[Measurement, FitSample]]] = {}
    unused = []
    accelerators = {name: resolve(name) for name in dict.fromkeys(m.accelerator for m in rows)}
    for m in rows:
        progress(m.model)
        accelerator = accelerators[m.accelerator]
        built = _build_sample(m, accelerator)
        if isinstance(built, NoPrediction):
            unused.append((m, built.reason))
        else:
            usable.setdefault(accelerator.name, []).append(built)
    by_name = {one.name: one for one in accelerators.values()}
    devices = [_fit_device(by_name[name], pairs, packaged, today=today) for name, pairs in usable.items()]
    return UserFit(devices=tuple(devices), unused=tuple(unused))


def _build_sample(m: Measurement, accelerator: Accelerator) -> tuple[Measurement, FitSample] | NoPrediction:
    """Return a row with its defaults, and the input of the fit under the stack and host that estimates use."""
    if m.devices != 1:
        return NoPrediction(f"{m.devices} devices: coefficients are those of one")
    if accelerator.kind == "cpu":
        return NoPrediction(
            "a CPU has no fitted coefficients: `gpuplan profile` measures yours for one model"
        )
    if accelerator.kind != "gpu":
        return NoPrediction(f"the rates of a {accelerator.name} are those of its datasheet: none is fitted")
    workload = load_measured_workload(m)
    known = resolve_defaults(m, workload, accelerator)
    sample = build_fit_sample(known, build_traced_run(known, workload, accelerator), accelerator)
    if isinstance(sample, NoPrediction):
        return sample
    names = name_user_run(m.stack, torch=m.framework == "pytorch", mode=m.mode, compiled=m.compiled)
    return replace(known, accelerator=accelerator.name), replace(sample, **names._asdict())


def _fit_device(
    accelerator: Accelerator,
    pairs: Sequence[tuple[Measurement, FitSample]],
    packaged: Coefficients,
    *,
    today: date,
) -> DeviceFit:
    """Fit one accelerator and judge the result on its own rows."""
    samples = [sample for _, sample in pairs]
    update = replace(
        fit_device_update(samples, packaged),
        chip=get_chip_name(accelerator.name),
        vendor=accelerator.vendor,
        runs=tuple(sorted({name_measured_run_kind(m) for m, _ in pairs})),
        date=today.isoformat(),
        sources=tuple(sorted({m.source for m, _ in pairs})),
    )
    before = [predict_sample_s(one, packaged) / one.step_s for one in samples]
    updated = apply_update(packaged, update)
    after = [predict_sample_s(one, updated) / one.step_s for one in samples]
    return DeviceFit(
        accelerator=accelerator.name,
        update=update,
        median_ape_before=statistics.median(abs(ratio - 1.0) for ratio in before),
        median_ape_after=statistics.median(abs(ratio - 1.0) for ratio in after),
        ratio_before=1.0 / statistics.geometric_mean(before),
    )


def fit_device_update(samples: Sequence[FitSample], packaged: Coefficients) -> DeviceUpdate:
    """Return the coefficients of one accelerator that are most likely after its measurements.

    Args:
        samples: Steps measured on it; without any, nothing is updated.
        packaged: Coefficients before.
    """
    import numpy as np
    from jax import enable_x64

    if not samples:
        return _name_members(np.empty((0, 0)), [])
    layout = VectorLayout.of(samples)
    columns = np.array([layout.columns(sample) for sample in samples])
    packaged_logs = np.array([_list_packaged_logs(sample, packaged) for sample in samples]).T
    measured = np.log([sample.step_s for sample in samples])
    spread = np.concatenate(
        [np.tile(group.spreads_log, len(layout.members[group.name])) for group in GROUPS if group.name]
    )

    def local(moved: Any) -> Any:
        own = np.concatenate([np.zeros(FIXED), moved])
        return packaged_logs + np.where(columns >= 0, own[columns], 0.0).T

    with enable_x64(False):
        log_steps = compile_log_step(samples)

        def residuals(moved: Any) -> Any:
            odd = log_steps(local(moved))[0] - measured
            return np.concatenate([soften(odd, scale=ROBUST_LOG), moved / spread])

        def jacobian(moved: Any) -> Any:
            value, slopes = log_steps(local(moved))
            bend = soften_slope(value - measured, scale=ROBUST_LOG)
            own = slopes.T * bend[:, None]
            return np.vstack([scatter_slopes(own, columns, layout.size)[:, FIXED:], np.diag(1.0 / spread)])

        limits = (np.full(len(spread), -FARTHEST_LOG), np.full(len(spread), FARTHEST_LOG))
        moved = search_least_squares(residuals, jacobian, np.zeros(len(spread)), spread, bounds=limits)
    return _name_members(local(moved), samples)


def _list_packaged_logs(sample: FitSample, packaged: Coefficients) -> list[float]:
    """Return the logs of the packaged coefficients of a sample, in the order of `RANGES`."""
    generation = packaged.generations.get(sample.generation) or extrapolate_generation(
        packaged, year=sample.year
    )
    stack = packaged.stacks.get(sample.stack, packaged.stacks[MEAN])
    host = packaged.hosts.get(sample.host, packaged.hosts[MEAN])
    return [
        math.log(getattr(one, name))
        for one in (generation, packaged.shared, stack, host)
        for name in field_names(type(one))
    ]


def _name_members(logs: Any, samples: Sequence[FitSample]) -> DeviceUpdate:
    """Return the named coefficients of each member; the rest of the update is empty.

    Args:
        logs: Local logs, array of [len(RANGES), cases].
        samples: The cases.
    """
    found: dict[str, dict[str, Any]] = {"generation": {}, "stack": {}, "host": {}}
    for case, sample in enumerate(samples):
        start = 0
        for group in GROUPS:
            names = field_names(group.kind)
            values = [float(f"{math.exp(value):.6g}") for value in logs[start : start + len(names), case]]
            start += len(names)
            if group.name:
                found[group.name][getattr(sample, group.name)] = group.kind(
                    **dict(zip(names, values, strict=True))
                )
    return DeviceUpdate(
        generations=found["generation"],
        stacks=found["stack"],
        hosts=found["host"],
        measurements=len(samples),
        chip="",
        vendor="",
        runs=(),
        date="",
        sources=(),
    )
