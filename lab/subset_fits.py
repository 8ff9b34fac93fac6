"""Fits of many subsets of the same samples, in processes that each compile the step times once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cached_property
from multiprocessing import get_context
from typing import Any

from gpuplan.predict.coefficients import FittedCoefficients
from gpuplan.predict.measured_run import FitSample
from gpuplan.workload.capture.load import restore_environment

from .fit import LogSteps, compile_log_step, fit

Progress = Callable[[str], None]
FEWEST_FOR_PROCESSES = 5_000  # samples of all subsets: a process takes seconds to start
# One thread for XLA and for the linear algebra of NumPy and SciPy, since the other processes have the other cores:
# with two threads each, two processes on two cores took twice as long.
ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


class SubsetFitter:
    """Fits subsets of samples; the step times of all samples are compiled once, which takes as long as a fit.

    Args:
        samples: All samples.
        groups: Of each sample, by which a fit chooses spreads, see `fit`; may be empty.
    """

    def __init__(self, samples: Sequence[FitSample], groups: Sequence[str] = ()) -> None:
        self._samples = samples
        self._groups = groups

    @cached_property
    def _log_steps(self) -> LogSteps:
        return compile_log_step(self._samples)

    def fit(self, rows: Sequence[int]) -> tuple[FittedCoefficients, dict[str, float]]:
        """Fit all coefficients on some samples, see `fit`.

        Args:
            rows: Positions of the samples.
        """
        import numpy as np

        chosen = np.array(rows)

        def of_chosen(logs: Any) -> tuple[Any, Any]:
            whole = np.repeat(logs[:, :1], len(self._samples), axis=1)  # the others may have any coefficients
            whole[:, chosen] = logs
            values, slopes = self._log_steps(whole)
            return values[chosen], slopes[:, chosen]

        groups = [self._groups[row] for row in rows] if self._groups else ()
        return fit([self._samples[row] for row in rows], log_steps=of_chosen, groups=groups)


def fit_subsets(
    samples: Sequence[FitSample],
    subsets: Mapping[str, Sequence[int]],
    *,
    groups: Sequence[str] = (),
    progress: Progress,
) -> dict[str, tuple[FittedCoefficients, dict[str, float]]]:
    """Return the fit of each subset and the factors of its spreads, by name.

    Many samples are fitted in as many processes as there are cores.

    Args:
        samples: All samples.
        subsets: Positions of the samples of each subset.
        groups: Of each sample, by which each fit chooses spreads; may be empty.
        progress: Callback with what was fitted.
    """
    if sum(map(len, subsets.values())) < FEWEST_FOR_PROCESSES:
        fitter, found = SubsetFitter(samples, groups), {}
        for name, rows in subsets.items():
            progress(name)
            found[name] = fitter.fit(rows)
        return found
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), _start_process, (samples, groups)) as pool:
        with restore_environment():
            os.environ.update(ONE_THREAD)  # processes start with the first calls, and inherit it
            futures = {pool.submit(_fit_in_process, rows): name for name, rows in subsets.items()}
        try:
            for done in as_completed(futures):
                progress(f"fitted without {futures[done] or 'nothing'}")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return {name: future.result() for future, name in futures.items()}


_of_process: list[SubsetFitter] = []


def _start_process(samples: Sequence[FitSample], groups: Sequence[str]) -> None:
    _of_process[:] = [SubsetFitter(samples, groups)]


def _fit_in_process(rows: Sequence[int]) -> tuple[FittedCoefficients, dict[str, float]]:
    return _of_process[0].fit(rows)
