"""Laws that every prediction keeps, whatever was fitted, and where the whole surface of predictions breaks them.

A law compares two numbers that are predicted or bounded, never a measurement. `LAWS` states each; its tolerance
is a rounding error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest
from typing import NamedTuple

from gpuplan.offers.rows import Accelerator
from gpuplan.predict.predictor import Predictor
from gpuplan.records import Frozen

from .comparisons import (
    LEAST_BATCH,
    SAMPLE_FACTOR,
    Comparison,
    compare_batches,
    compare_boards,
    compare_bound,
    compare_compiled,
    compare_devices,
    compare_generations,
    compare_mixed,
    compare_paging,
    compare_samples,
    compare_tensor_units,
    compare_tf32,
)
from .surface import COMPILED, MODELS, MODES, PRECISIONS, TRACED_POLICIES, Surface, compute_surface, trace_models

TOLERANCE = 1e-9  # relative


class Law(Frozen):
    """A law.

    Args:
        name: Short name.
        definition: One line.
        tolerance: Relative excess that is a rounding error [-].
    """

    name: str
    definition: str
    tolerance: float = TOLERANCE


class Violation(NamedTuple):
    """Two numbers of which the first must not be larger than the second.

    ``other`` is what the second number belongs to, where that is another accelerator, precision, batch size ...
    """

    law: str
    model: str
    accelerator: str
    other: str
    batch_size: int
    precision: str
    compiled: bool
    mode: str
    value_s: float
    limit_s: float

    @property
    def excess(self) -> float:
        """The first number over the second, minus 1 [-]."""
        return self.value_s / self.limit_s - 1.0


class LawReport(Frozen):
    """Numbers of comparisons and violations of a law.

    Args:
        law: The law.
        cases: Comparisons.
        violations: Those that break it.
    """

    law: Law
    cases: int
    violations: tuple[Violation, ...]

    def worst(self, count: int = 5) -> list[Violation]:
        """Return the violations with the largest excess."""
        return nlargest(count, self.violations, key=lambda one: one.excess)


LAWS: tuple[tuple[Law, Callable[[Surface], Iterable[Comparison]]], ...] = (
    (Law(name="chips", definition="a chip at least as good in every figure is no slower (same generation)"),
     compare_boards),
    (Law(name="generations", definition="a chip at least as good in every figure is no slower (other generation)"),
     compare_generations),
    (Law(name="tf32", definition="tf32 is no slower than float32"), compare_tf32),
    (Law(name="tensor-units", definition="mixed precision on tensor units is no slower than float32 from batch "
         f"{LEAST_BATCH} on where products take most of the time"), compare_tensor_units),
    (Law(name="mixed", definition="mixed precision is slower than float32 by its own conversions at most"),
     compare_mixed),
    (Law(name="compiled", definition="compiled is no slower than kernel by kernel"), compare_compiled),
    (Law(name="bound", definition="the low end of the interval is not below the physical bound"), compare_bound),
    (Law(name="batch", definition="a step with twice the batch size is no faster"), compare_batches),
    (Law(name="sample", definition=f"a sample at twice the batch size takes at most {SAMPLE_FACTOR} times as "
         "long where the step fits into memory"), compare_samples),
    (Law(name="paging", definition="a sample of a step that does not fit takes at most memory bandwidth / host "
         "link times as long as in the best step that fits"), compare_paging),
    (Law(name="devices", definition="a step on several devices with the same batch each is no faster than on one"),
     compare_devices),
)  # fmt: skip


# --- checking ---------------------------------------------------------------------------------------------


def check_laws(surface: Surface) -> list[LawReport]:
    """Return a report for each law on the surface of one model."""
    reports = []
    for law, compare in LAWS:
        cases, violations = 0, []
        for comparison in compare(surface):
            counted, found = _check(law, surface, comparison)
            cases += counted
            violations += found
        reports.append(LawReport(law=law, cases=cases, violations=tuple(violations)))
    return reports


def _check(law: Law, surface: Surface, one: Comparison) -> tuple[int, list[Violation]]:
    import numpy as np

    known = np.isfinite(one.value_s) & np.isfinite(one.limit_s)
    if one.keep is not None:
        known &= one.keep
    with np.errstate(invalid="ignore"):
        broken = known & (one.value_s > one.limit_s * (1.0 + law.tolerance))
    precisions = one.precisions or tuple(range(len(PRECISIONS)))
    compiled = one.compiled or tuple(range(len(COMPILED)))
    violations = [
        Violation(
            law=law.name,
            model=surface.model,
            accelerator=one.names[a][0],
            other=one.names[a][1],
            batch_size=surface.batches[b + one.first_batch],
            precision=PRECISIONS[precisions[p]],
            compiled=COMPILED[compiled[c]],
            mode=MODES[m],
            value_s=float(one.value_s[m, p, c, b, a]),
            limit_s=float(one.limit_s[m, p, c, b, a]),
        )
        for m, p, c, b, a in np.argwhere(broken)
    ]
    return int(known.sum()), violations


def summarize_laws(reports: Iterable[Sequence[LawReport]]) -> list[LawReport]:
    """Return the reports of several models as one for each law."""
    by_law = zip(*reports, strict=True)
    return [
        LawReport(
            law=same[0].law,
            cases=sum(report.cases for report in same),
            violations=tuple(one for report in same for one in report.violations),
        )
        for same in by_law
    ]


def check_all_laws(
    accelerators: Sequence[Accelerator],
    *,
    models: Sequence[str] = MODELS,
    policies: Sequence[str] = TRACED_POLICIES,
    use_cache: bool = True,
    progress: Callable[[str], None],
) -> list[LawReport]:
    """Trace models, predict them everywhere and return a report for each law.

    Args:
        accelerators: The catalog's.
        models: References, relative to `profiles/published`.
        policies: Dtype policies that are traced; precisions of others are not checked.
        use_cache: Whether traces are read from and written to the user's cache.
        progress: Is told what is being done.
    """
    predictor = Predictor.load()
    reports = []
    for model in trace_models(models, policies=policies, use_cache=use_cache, progress=progress):
        progress(f"predicting {model.name}")
        reports.append(check_laws(compute_surface(model, accelerators, predictor=predictor)))
    return summarize_laws(reports)
