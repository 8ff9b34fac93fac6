"""Fitting the coefficients on measured steps: regularized least squares on log time, exact gradients from JAX.

Every generation's coefficients are drawn towards a shared mean, so that a chip with few or odd rows does not
run away, and each mean towards a physical starting point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .coefficients import Chip, Generation, Host, Shared, names_of
from .device import device_parts_s, launches_of, step_s
from .kernels import KernelTable

__all__ = ["Case", "Fitted", "fit"]

Range = tuple[float, float, float]  # start, lowest, highest

# Starting points and bounds of the shared means. Shares of peak and bandwidth start at what micro-benchmarks
# of these chips call good (Jia et al., 2018, "Dissecting the NVIDIA Volta GPU Architecture via
# Microbenchmarking", arXiv:1804.06826: 0.7 to 0.9); times are orders of magnitude. The data decides.
GENERATION_RANGES: dict[str, Range] = {
    "conv_fprop": (0.6, 0.05, 1.2), "conv_dgrad": (0.6, 0.05, 1.2), "conv_wgrad": (0.5, 0.05, 1.2),
    "depthwise": (0.1, 0.005, 1.0), "dot": (0.7, 0.05, 1.1), "winograd_gain": (1.5, 1.0, 2.25),
    "stream": (0.75, 0.2, 1.0), "pool": (0.4, 0.05, 1.0), "irregular": (0.3, 0.02, 1.0),
    "launch_s": (4e-6, 5e-7, 5e-5),
    "step_latency_s": (4e-7, 2e-8, 4e-6),
}  # fmt: skip
SHARED_RANGES: dict[str, Range] = {
    "tile_exponent": (0.5, 0.05, 1.5), "quantization": (0.5, 0.01, 1.0), "split_cost": (0.1, 0.01, 1.0),
    "sharpness": (3.0, 1.0, 10.0),
    "dot_sharpness": (3.0, 1.0, 10.0), "host_sharpness": (4.0, 1.0, 10.0),
}  # fmt: skip
HOST_RANGES: dict[str, Range] = {
    "fixed_s": (1e-3, 1e-5, 2e-2), "dispatch_s": (2e-5, 1e-6, 2e-4), "feed_bytes_per_s": (4e9, 3e8, 1e11),
}  # fmt: skip
RANGES = (*GENERATION_RANGES.values(), *SHARED_RANGES.values(), *HOST_RANGES.values())
SPREAD_LOG = 0.3  # prior spread of one generation or host around the shared mean, in log units
PRIOR_LOG = 1.0  # prior spread of the shared means around their starting points
ROBUST_LOG = 0.15  # residuals beyond this count linearly (soft L1), so that odd rows do not rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured step, ready to fit: its kernels, its chip and its time."""

    table: KernelTable
    chip: Chip
    generation: str
    host: str
    compiled: bool
    input_bytes: float
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Coefficients that a fit found."""

    generations: dict[str, Generation]
    shared: Shared
    hosts: dict[str, Host]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Columns of the vector of logs: means, then what each generation and host adds to them.

    A case sees `len(RANGES)` local logs: its generation's, the shared ones, its host's.
    """

    generations: tuple[str, ...]
    hosts: tuple[str, ...]

    @property
    def size(self) -> int:
        return (
            len(RANGES) + len(self.generations) * len(GENERATION_RANGES) + len(self.hosts) * len(HOST_RANGES)
        )

    def columns(self, case: Case) -> list[int]:
        """Return, for each local log, the column of the addition; -1 where there is none."""
        first_host = len(RANGES) + len(self.generations) * len(GENERATION_RANGES)
        own = len(RANGES) + self.generations.index(case.generation) * len(GENERATION_RANGES)
        host = first_host + self.hosts.index(case.host) * len(HOST_RANGES)
        return [
            *range(own, own + len(GENERATION_RANGES)),
            *[-1] * len(SHARED_RANGES),
            *range(host, host + len(HOST_RANGES)),
        ]


def _concatenate(cases: Sequence[Case]) -> tuple[KernelTable, Chip, Any]:
    """Return all kernels of all cases as one table, the chip of each, and the case that each belongs to."""
    import numpy as np

    lengths = [len(case.table.count) for case in cases]
    segment = np.repeat(np.arange(len(cases)), lengths)

    def of_tables(name: str) -> Any:
        return np.concatenate([getattr(case.table, name) for case in cases])

    def of_chips(name: str) -> Any:
        return np.concatenate(
            [
                np.broadcast_to(getattr(case.chip, name), (length,))
                for case, length in zip(cases, lengths, strict=True)
            ]
        )

    names = ("category", "count", "flops", "bytes_moved", "m", "n", "k", "batch", "winograd")
    columns = {name: of_tables(name) for name in names}
    chip_names = ("peak_flop_per_s", "winograd", "tensor", "vector_flop_per_s", "memory_bytes_per_s", "cores")
    return (
        KernelTable(dtype=None, dtypes=(), **columns),
        Chip(**{name: of_chips(name) for name in chip_names}),
        segment,
    )


def _unpack(values: Any) -> tuple[Generation, Shared, Host]:
    """Return named coefficients from local values, array of [len(RANGES), ...]."""
    a, b = len(GENERATION_RANGES), len(GENERATION_RANGES) + len(SHARED_RANGES)
    return (
        Generation(**dict(zip(names_of(Generation), values[:a], strict=True))),
        Shared(**dict(zip(names_of(Shared), values[a:b], strict=True))),
        Host(**dict(zip(names_of(Host), values[b:], strict=True))),
    )


def _log_step(cases: Sequence[Case]) -> Callable[[Any], Any]:
    """Return the function from local logs, [len(RANGES), cases], to log step times, [cases]."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    table, chip, segment = _concatenate(cases)
    launches = np.array([launches_of(case.table, compiled=case.compiled) for case in cases])
    input_bytes = np.array([case.input_bytes for case in cases])

    def log_step(logs: Any) -> Any:
        values = jnp.exp(logs)
        generation, shared, _ = _unpack(values[:, segment])
        _, per_case, host = _unpack(values)
        kernels_s, _, _ = device_parts_s(table, chip, generation, shared, xp=jnp)
        device_s = jax.ops.segment_sum(kernels_s, segment, num_segments=len(cases))
        return jnp.log(
            step_s(
                device_s=device_s,
                launches=launches,
                input_bytes=input_bytes,
                host=host,
                shared=per_case,
                xp=jnp,
            )
        )

    return log_step


def fit(cases: Sequence[Case]) -> Fitted:
    """Fit all coefficients on the cases.

    Minimizes the soft-L1 loss of log(predicted / measured) plus the priors, with
    `scipy.optimize.least_squares` (trust region, bounds).
    """
    import numpy as np
    from jax import enable_x64
    from scipy.optimize import least_squares

    layout = _Layout(
        tuple(sorted({case.generation for case in cases})), tuple(sorted({case.host for case in cases}))
    )
    columns = np.array([layout.columns(case) for case in cases])
    measured = np.log([case.step_s for case in cases])
    low, high, start, spread = _bounds(layout)
    with enable_x64():
        value, slopes = _compiled(cases)

        def local(logs: Any) -> Any:
            return logs[: len(RANGES), None] + np.where(columns >= 0, logs[columns], 0.0).T

        def residuals(logs: Any) -> Any:
            return np.concatenate([_soft(np.asarray(value(local(logs))) - measured), (logs - start) / spread])

        def jacobian(logs: Any) -> Any:
            point = local(logs)
            local_slopes = (
                np.asarray(slopes(point)).T * _soft_slope(np.asarray(value(point)) - measured)[:, None]
            )
            return np.vstack([_scattered(local_slopes, columns, layout.size), np.diag(1.0 / spread)])

        found = least_squares(
            residuals, start, jac=jacobian, bounds=(low, high), xtol=1e-5, ftol=1e-5, max_nfev=60
        )
    return _fitted(found.x, layout)


def _compiled(cases: Sequence[Case]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return log step times, [cases], and their slopes to each local log, [len(RANGES), cases].

    A case depends on its own local logs alone, so one pass a local log gives the slopes of all cases.
    """
    import jax
    import jax.numpy as jnp

    log_step = _log_step(cases)
    directions = jnp.broadcast_to(jnp.eye(len(RANGES))[:, :, None], (len(RANGES), len(RANGES), len(cases)))

    def slopes(logs: Any) -> Any:
        return jax.lax.map(jax.linearize(log_step, logs)[1], directions)

    return jax.jit(log_step), jax.jit(slopes)


def _scattered(local_slopes: Any, columns: Any, size: int) -> Any:
    """Return the matrix of slopes to the whole vector of logs: means first, then each case's own additions."""
    import numpy as np

    matrix = np.zeros((len(local_slopes), size))
    matrix[:, : len(RANGES)] = local_slopes
    rows, locals_ = np.nonzero(columns >= 0)
    matrix[rows, columns[rows, locals_]] = local_slopes[rows, locals_]
    return matrix


def _soft(residual: Any) -> Any:
    """Return the signed square root of the soft-L1 loss, so that its square is the loss."""
    import numpy as np

    loss = 2.0 * ROBUST_LOG**2 * (np.sqrt(1.0 + (residual / ROBUST_LOG) ** 2) - 1.0)
    return np.sign(residual) * np.sqrt(loss) / ROBUST_LOG


def _soft_slope(residual: Any) -> Any:
    import numpy as np

    root = np.sqrt(1.0 + (residual / ROBUST_LOG) ** 2)
    soft = np.abs(_soft(residual))
    flat = soft < 1e-6
    return np.where(
        flat, 1.0 / ROBUST_LOG, np.abs(residual) / root / np.where(flat, 1.0, soft) / ROBUST_LOG**2
    )


def _bounds(layout: _Layout) -> tuple[Any, Any, Any, Any]:
    import numpy as np

    logs = np.log(np.array(RANGES))
    extra = layout.size - len(RANGES)
    start = np.concatenate([logs[:, 0], np.zeros(extra)])
    low = np.concatenate([logs[:, 1], np.full(extra, -2.0)])
    high = np.concatenate([logs[:, 2], np.full(extra, 2.0)])
    spread = np.concatenate([np.full(len(RANGES), PRIOR_LOG), np.full(extra, SPREAD_LOG)])
    return low, high, start, spread


def _fitted(logs: Any, layout: _Layout) -> Fitted:
    import numpy as np

    a, b = len(GENERATION_RANGES), len(RANGES) - len(HOST_RANGES)
    means = logs[: len(RANGES)]
    per_generation = logs[len(RANGES) :][: len(layout.generations) * a].reshape(-1, a)
    per_host = logs[len(RANGES) + per_generation.size :].reshape(-1, len(HOST_RANGES))

    def named(kind: Any, values: Any) -> Any:
        return kind(
            **{
                name: float(f"{value:.6g}")
                for name, value in zip(names_of(kind), np.exp(values), strict=True)
            }
        )

    return Fitted(
        generations={
            name: named(Generation, means[:a] + own)
            for name, own in zip(layout.generations, per_generation, strict=True)
        },
        shared=named(Shared, means[a:b]),
        hosts={"": named(Host, means[b:])}
        | {name: named(Host, means[b:] + own) for name, own in zip(layout.hosts, per_host, strict=True)},
    )
