"""Fitting the coefficients on measured steps: regularized least squares on log time, exact gradients from JAX.

Every generation's coefficients are drawn towards a shared mean, so that a chip with few or odd rows does not
run away, and each mean towards a physical starting point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from .parameter_vector import (
    RANGES,
    VectorLayout,
    compute_bounds,
    compute_robust_scales,
    list_spread_classes,
    unpack_coefficients,
)
from .priors import ERA_SPREAD_LOG, GROUPS, ROBUST_LOG
from .spread_choice import LinearizedFit, choose_factors

# From local logs, [len(RANGES), cases], to log step times, [cases], and their slopes, [len(RANGES), cases].
LogSteps = Callable[[Any], tuple[Any, Any]]
_GAINS = slice(len(RANGES), len(RANGES) + len(ERA_SPREAD_LOG))  # columns of what the era adds


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


def fit(
    samples: Sequence[FitSample], *, log_steps: LogSteps | None = None, groups: Sequence[str] = ()
) -> tuple[FittedCoefficients, dict[str, float]]:
    """Fit all coefficients on the cases; returns them, and the chosen factors of the prior spreads.

    Minimizes the soft-L1 loss of log(predicted / measured) plus the priors, with
    `scipy.optimize.least_squares` (trust region, bounds).

    Args:
        samples: What was measured.
        log_steps: `compile_log_step` of the samples, if there is one already.
        groups: Of each sample, left out in turn to choose spreads; none: the spreads are as `priors.py` has them.
    """
    from jax import enable_x64

    with enable_x64(False):
        search = _Search(samples, log_steps or compile_log_step(samples))
        point = search.find(search.start, search.spread)
        factors = choose_factors(search.linearize(point, groups)) if groups else {}
        if factors:
            point = search.find(point, search.scale_spread(factors))
    return unpack_coefficients(point, search.layout), factors


class _Search:
    """Search for the logs of all coefficients.

    Args:
        samples: What was measured.
        log_steps: `compile_log_step` of the samples.
    """

    def __init__(self, samples: Sequence[FitSample], log_steps: LogSteps) -> None:
        import numpy as np

        self._evaluate = log_steps
        self.layout = VectorLayout.of(samples)
        columns = np.array([self.layout.columns(sample) for sample in samples])
        ancestors = np.array([self.layout.ancestor_columns(sample) for sample in samples])
        inferring = np.array([self.layout.infer_columns(sample) for sample in samples])
        self._additions = (columns, ancestors[:, 0], ancestors[:, 1], inferring)
        self._eras = np.array([era_sign(sample.year) for sample in samples])
        self._measured = np.log([sample.step_s for sample in samples])
        self._low, self._high, self.start, self.spread = compute_bounds(self.layout)
        self._robust = compute_robust_scales(self.layout)

    def scale_spread(self, factors: Mapping[str, float]) -> Any:
        """Return the prior spreads times the factors of their classes."""
        return self.spread * [factors.get(name, 1.0) for name in list_spread_classes(self.layout)]

    def _evaluate_at(self, logs: Any) -> tuple[Any, Any]:
        """Return log(predicted / measured), array of [cases], and its slopes, array of [RANGES, cases]."""
        import numpy as np

        local = logs[: len(RANGES), None] + sum(np.where(of >= 0, logs[of], 0.0).T for of in self._additions)
        local[: len(ERA_SPREAD_LOG)] += logs[_GAINS, None] * self._eras
        value, slopes = self._evaluate(local)
        return value - self._measured, slopes

    def _scatter(self, local_slopes: Any) -> Any:
        matrix = scatter_slopes(local_slopes, self._additions, self.layout.size)
        matrix[:, _GAINS] = local_slopes[:, : len(ERA_SPREAD_LOG)] * self._eras[:, None]
        return matrix

    def find(self, first: Any, spread: Any) -> Any:
        """Return the logs of least loss.

        Args:
            first: Where the search begins.
            spread: Prior spread of each column.
        """
        import numpy as np

        start, robust = self.start, self._robust

        def residuals(logs: Any) -> Any:
            odd = soften(self._evaluate_at(logs)[0], scale=ROBUST_LOG)
            return np.concatenate([odd, soften((logs - start) / spread, scale=robust) * robust])

        def jacobian(logs: Any) -> Any:
            off, slopes = self._evaluate_at(logs)
            matrix = self._scatter(slopes.T * soften_slope(off, scale=ROBUST_LOG)[:, None])
            pull = soften_slope((logs - start) / spread, scale=robust) * robust / spread
            return np.vstack([matrix, np.diag(pull)])

        return search_least_squares(residuals, jacobian, first, spread, bounds=(self._low, self._high))

    def linearize(self, point: Any, groups: Sequence[str]) -> LinearizedFit:
        """Return the fit near a point."""
        off, slopes = self._evaluate_at(point)
        return LinearizedFit(
            residuals=off,
            slopes=self._scatter(slopes.T),
            groups=groups,
            point=point,
            start=self.start,
            low=self._low,
            high=self._high,
            spread=self.spread,
            robust=self._robust,
            classes=list_spread_classes(self.layout),
        )


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
