"""Fitting the coefficients on measured steps: regularized least squares on log time, exact gradients from JAX.

Every generation's coefficients are drawn towards a shared mean, so that a chip with few or odd rows does not
run away, and each mean towards a physical starting point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from gpuplan.predict.coefficients import (
    FittedCoefficients,
    GenerationCoefficients,
    HostCoefficients,
    SharedCoefficients,
    StackCoefficients,
    era_sign,
    field_names,
)
from gpuplan.predict.kernel_times import compute_kernel_parts_s
from gpuplan.predict.measured_run import FitSample
from gpuplan.predict.roofline import compute_step_s, with_software_year

from .concatenated_steps import concatenate_kernels
from .parameter_vector import RANGES, VectorLayout, compute_bounds, compute_robust_scales, unpack_coefficients
from .priors import ERA_SPREAD_LOG, GROUPS, ROBUST_LOG

# From local logs, [len(RANGES), cases], to log step times, [cases], and their slopes, [len(RANGES), cases].
LogSteps = Callable[[Any], tuple[Any, Any]]


def _unpack(values: Any) -> tuple[GenerationCoefficients, SharedCoefficients, StackCoefficients, HostCoefficients]:
    """Return named coefficients from local values, array of [len(RANGES), ...]."""
    found, start = [], 0
    for group in GROUPS:
        names = field_names(group.kind)
        found.append(group.kind(**dict(zip(names, values[start : start + len(names)], strict=True))))
        start += len(names)
    return cast(
        "tuple[GenerationCoefficients, SharedCoefficients, StackCoefficients, HostCoefficients]", tuple(found)
    )


def _log_step(samples: Sequence[FitSample]) -> Callable[[Any], Any]:
    """Return the function from local logs, [len(RANGES), cases], to log step times, [cases]."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    table, chip, segment = concatenate_kernels(
        [sample.table for sample in samples], [sample.chip for sample in samples]
    )
    launches = np.array([1.0 if sample.compiled else sample.table.dispatched for sample in samples])
    input_bytes = np.array([sample.input_bytes for sample in samples])
    pressure = np.array([sample.pressure for sample in samples])
    looped = np.array([float(sample.looped) for sample in samples])
    years = np.array([sample.software_year for sample in samples])[segment]
    chip_years = np.array([sample.year for sample in samples])[segment]

    def log_step(logs: Any) -> Any:
        values = jnp.exp(logs)
        generation, shared, stack, _ = _unpack(values[:, segment])
        _, per_case, _, host = _unpack(values)
        generation = with_software_year(years, generation, shared, year=chip_years, xp=np)
        kernels_s, _, _ = compute_kernel_parts_s(table, chip, generation, stack, shared, xp=jnp)
        device_s = jax.ops.segment_sum(kernels_s, segment, num_segments=len(samples))
        return jnp.log(
            compute_step_s(
                device_s=device_s,
                launches=launches,
                input_bytes=input_bytes,
                pressure=pressure,
                host=replace(host, fixed_s=host.fixed_s * looped),
                shared=per_case,
                xp=jnp,
            )
        )

    return log_step


def fit(samples: Sequence[FitSample], *, log_steps: LogSteps | None = None) -> FittedCoefficients:
    """Fit all coefficients on the cases.

    Minimizes the soft-L1 loss of log(predicted / measured) plus the priors, with
    `scipy.optimize.least_squares` (trust region, bounds).

    Args:
        samples: What was measured.
        log_steps: `compile_log_step` of the samples, if there is one already.
    """
    import numpy as np
    from jax import enable_x64

    layout = VectorLayout.of(samples)
    columns = np.array([layout.columns(sample) for sample in samples])
    parents = np.array([layout.parent_columns(sample) for sample in samples])
    eras = np.array([era_sign(sample.year) for sample in samples])
    gains = slice(len(RANGES), len(RANGES) + len(ERA_SPREAD_LOG))
    measured = np.log([sample.step_s for sample in samples])
    low, high, start, spread = compute_bounds(layout)
    robust = compute_robust_scales(layout)
    with enable_x64(False):
        evaluate = log_steps or compile_log_step(samples)

        def local(logs: Any) -> Any:
            found = logs[: len(RANGES), None] + sum(
                np.where(of >= 0, logs[of], 0.0).T for of in (columns, parents)
            )
            found[: len(ERA_SPREAD_LOG)] += logs[gains, None] * eras
            return found

        def residuals(logs: Any) -> Any:
            odd = soften(evaluate(local(logs))[0] - measured, scale=ROBUST_LOG)
            return np.concatenate([odd, soften((logs - start) / spread, scale=robust) * robust])

        def jacobian(logs: Any) -> Any:
            value, slopes = evaluate(local(logs))
            bend = soften_slope(value - measured, scale=ROBUST_LOG)
            local_slopes = slopes.T * bend[:, None]
            matrix = scatter_slopes(local_slopes, (columns, parents), layout.size)
            matrix[:, gains] = local_slopes[:, : len(ERA_SPREAD_LOG)] * eras[:, None]
            pull = soften_slope((logs - start) / spread, scale=robust) * robust / spread
            return np.vstack([matrix, np.diag(pull)])

        found = search_least_squares(residuals, jacobian, start, spread, bounds=(low, high))
    return unpack_coefficients(found, layout)


def search_least_squares(
    residuals: Callable[[Any], Any],
    jacobian: Callable[[Any], Any],
    start: Any,
    spread: Any,
    *,
    bounds: tuple[Any, Any],
) -> Any:
    """Return the logs at which the residuals' squares are least, within bounds.

    Steps are measured in prior spreads. The sum of squares is within 0.1 % of its end after 15 evaluations.
    """
    from numpy.linalg import LinAlgError
    from scipy.optimize import least_squares

    search = partial(
        least_squares,
        residuals,
        start,
        jac=jacobian,
        bounds=bounds,
        x_scale=spread,
        xtol=1e-4,
        ftol=2e-4,
        max_nfev=18,
    )
    try:
        return search().x
    except LinAlgError:  # LAPACK's divide and conquer gives up on a rare matrix
        return search(tr_solver="lsmr").x


def compile_log_step(samples: Sequence[FitSample]) -> LogSteps:
    """Return the function from local logs to log step times, [cases], and their slopes, [len(RANGES), cases].

    A case depends on its own local logs alone, so one backward pass from the sum of all cases gives the slopes of
    each. The last point is remembered: a search asks for the times at a point, and then for the slopes there.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    log_step = _log_step(samples)

    def with_slopes(logs: Any) -> tuple[Any, Any]:
        value, pull_back = jax.vjp(log_step, logs)
        return value, pull_back(jnp.ones_like(value))[0]

    evaluate = jax.jit(with_slopes)
    known: list[tuple[Any, tuple[Any, Any]]] = []

    def log_steps(logs: Any) -> tuple[Any, Any]:
        if not known or not np.array_equal(known[0][0], logs):
            value, slopes = evaluate(logs)
            known[:] = [(np.array(logs), (np.asarray(value), np.asarray(slopes)))]
        return known[0][1]

    return log_steps


def scatter_slopes(local_slopes: Any, additions: Sequence[Any], size: int) -> Any:
    """Return the matrix of slopes to the whole vector of logs: means first, then what is added to each case."""
    import numpy as np

    matrix = np.zeros((len(local_slopes), size))
    matrix[:, : len(RANGES)] = local_slopes
    for columns in additions:
        rows, locals_ = np.nonzero(columns >= 0)
        matrix[rows, columns[rows, locals_]] = local_slopes[rows, locals_]
    return matrix


def soften(residual: Any, *, scale: Any) -> Any:
    """Return the signed square root of the soft-L1 loss in units of ``scale``: its square is the loss."""
    import numpy as np

    loss = 2.0 * (np.sqrt(1.0 + (residual / scale) ** 2) - 1.0)
    return np.sign(residual) * np.sqrt(loss)


def soften_slope(residual: Any, *, scale: Any) -> Any:
    """Return the derivative of `soften`."""
    import numpy as np

    bent = np.sqrt(1.0 + (residual / scale) ** 2)
    soft = np.abs(soften(residual, scale=scale))
    flat = soft < 1e-6
    return np.where(flat, 1.0, np.abs(residual) / scale / bent / np.where(flat, 1.0, soft)) / scale
