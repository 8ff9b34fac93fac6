"""Laws that every prediction keeps, whatever was fitted, and where the whole surface of predictions breaks them.

A law compares two numbers that are predicted or bounded, never a measurement. `LAWS` states each; its tolerance
is a rounding error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any, NamedTuple

from ..frozen import Frozen
from ..offers.rows import Accelerator
from ..predict.predictor import Predictor
from ..predict.device.accelerator_limits import find_generation, peak_tflop_per_s, tensor_dtypes
from ..units import GIGA
from .surface import (
    COMPILED,
    DISPATCH_S,
    LAUNCH_S,
    MODELS,
    MODES,
    PRECISIONS,
    Surface,
    compute_surface,
    trace_models,
)

__all__ = [
    "LAWS",
    "Law",
    "LawReport",
    "Violation",
    "check_all_laws",
    "check_laws",
    "is_at_least_as_good",
    "summarize_laws",
]

TOLERANCE = 1e-9  # relative
# Time per sample at twice the batch size: whole waves of tiles, and less of a larger batch stays in a cache.
SAMPLE_FACTOR = 1.1
MOST_PRESSURE = 1.0  # up to which the time per sample is held to that factor
# What paging can cost beyond it: every byte of the step crosses the host's link in place of the memory's bus.
UNKNOWN_LINK_GB_PER_S = 15.75  # PCIe 3.0 x16, the slowest link of the catalog
LEAST_BATCH = 32  # from which tensor units must pay
# Conversions of a mixed precision: a launch each, and their traffic at a fifth of the datasheet's bandwidth, less
# than is fitted of any generation.
STREAM_SHARE = 0.2


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
    """How often a law was checked and broken.

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


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Values and limits of one shape, NaN where there is nothing to compare, with the axes left of a surface.

    Args:
        value_s, limit_s: Arrays of [modes, precisions, compiled, batches, accelerators] [s].
        names: Of the last axis: the accelerator and what it is compared with.
        keep: Where the law applies; None: everywhere.
        precisions: Indices of `PRECISIONS` on the second axis; None: all.
        compiled: Indices of `COMPILED` on the third axis; None: both.
        first_batch: Index of the first batch size on the fourth axis.
    """

    value_s: Any
    limit_s: Any
    names: Sequence[tuple[str, str]]
    keep: Any = None
    precisions: tuple[int, ...] | None = None
    compiled: tuple[int, ...] | None = None
    first_batch: int = 0


# --- what is at least as good -----------------------------------------------------------------------------


def is_at_least_as_good(one: Accelerator, other: Accelerator) -> bool:
    """Return whether every figure of a datasheet is at least that of another chip of the same vendor and kind.

    These are the peaks of products of every type (of what runs instead, where the type has no units), memory and
    its bandwidth, cores, and second-level cache; within a generation also both clocks, where both chips' are
    published. Clocks of different generations say nothing, since cores differ; peaks hold what counts of them.
    """
    if one is other or (one.vendor, one.kind) != (other.vendor, other.kind):
        return False
    names = ["memory_gib", "memory_gb_per_s", "sms_or_cores", "l2_mib"]
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    for dtype, tf32 in (("float32", False), ("float32", True), ("float16", False), ("bfloat16", False)):
        peaks = [peak_tflop_per_s(chip, dtype, tf32=tf32)[0] for chip in (one, other)]
        pairs.append((peaks[0], peaks[1]))
    if not all((a is None and b is None) or (a is not None and b is not None and a >= b) for a, b in pairs):
        return False
    if find_generation(one) != find_generation(other):
        return True
    clocks = [(getattr(one, name), getattr(other, name)) for name in ("base_mhz", "boost_mhz")]
    return all(a is None or b is None or a >= b for a, b in clocks)


def _compare_chips(surface: Surface, *, same_generation: bool) -> Iterator[_Comparison]:
    chips = surface.accelerators
    pairs = [
        (a, b)
        for a, one in enumerate(chips)
        for b, other in enumerate(chips)
        if is_at_least_as_good(one, other)
        and (find_generation(one) == find_generation(other)) == same_generation
    ]
    if pairs:
        better, worse = ([pair[side] for pair in pairs] for side in (0, 1))
        yield _Comparison(
            surface.mid_s[..., better],
            surface.mid_s[..., worse],
            [(chips[a].name, chips[b].name) for a, b in pairs],
        )


def _compare_boards(surface: Surface) -> Iterator[_Comparison]:
    return _compare_chips(surface, same_generation=True)


def _compare_generations(surface: Surface) -> Iterator[_Comparison]:
    return _compare_chips(surface, same_generation=False)


# --- precisions and compilation ---------------------------------------------------------------------------


def _alone(surface: Surface, other: str) -> list[tuple[str, str]]:
    return [(chip.name, other) for chip in surface.accelerators]


_TF32 = PRECISIONS.index("tf32")
_MIXED = tuple(index for index, name in enumerate(PRECISIONS) if name.startswith("mixed"))


def _compare_tf32(surface: Surface) -> Iterator[_Comparison]:
    mid_s = surface.mid_s
    yield _Comparison(mid_s[:, [_TF32]], mid_s[:, [0]], _alone(surface, "float32"), precisions=(_TF32,))


def _compare_tensor_units(surface: Surface) -> Iterator[_Comparison]:
    import numpy as np

    heavy = surface.compute_heavy[:, [0]] == 1.0
    large = (np.array(surface.batches) >= LEAST_BATCH)[:, None]
    for index in _MIXED:
        dtype = PRECISIONS[index].removeprefix("mixed_")
        units = [dtype in tensor_dtypes(chip, precision=PRECISIONS[index]) for chip in surface.accelerators]
        yield _Comparison(
            surface.mid_s[:, [index]],
            surface.mid_s[:, [0]],
            _alone(surface, "float32"),
            keep=heavy & large & np.array(units),
            precisions=(index,),
        )


def _compare_mixed(surface: Surface) -> Iterator[_Comparison]:
    import numpy as np

    rates = np.array([(chip.memory_gb_per_s or np.nan) * GIGA for chip in surface.accelerators])
    launch_s = LAUNCH_S + np.array([0.0 if compiled else DISPATCH_S for compiled in COMPILED])[:, None, None]
    for index in _MIXED:
        launches = np.maximum(surface.launches[:, [index]] - surface.launches[:, [0]], 0.0)
        moved = np.maximum(surface.streamed_bytes[:, [index]] - surface.streamed_bytes[:, [0]], 0.0)
        own_s = launches * launch_s + moved / (STREAM_SHARE * rates)
        yield _Comparison(
            surface.mid_s[:, [index]],
            surface.mid_s[:, [0]] + own_s,
            _alone(surface, "float32 + conversions"),
            precisions=(index,),
        )


def _compare_compiled(surface: Surface) -> Iterator[_Comparison]:
    mid_s = surface.mid_s
    yield _Comparison(mid_s[:, :, [0]], mid_s[:, :, [1]], _alone(surface, "not compiled"), compiled=(0,))


# --- bound, batch sizes, devices --------------------------------------------------------------------------


def _compare_bound(surface: Surface) -> Iterator[_Comparison]:
    yield _Comparison(surface.bound_s, surface.low_s, _alone(surface, "low end of the interval"))


def _compare_batches(surface: Surface) -> Iterator[_Comparison]:
    mid_s = surface.mid_s
    yield _Comparison(mid_s[..., :-1, :], mid_s[..., 1:, :], _alone(surface, "twice the batch size"))


def _per_sample(surface: Surface) -> Any:
    import numpy as np

    return surface.mid_s / np.array(surface.batches, dtype=float)[:, None]


def _compare_samples(surface: Surface) -> Iterator[_Comparison]:
    each_s = _per_sample(surface)
    yield _Comparison(
        each_s[..., 1:, :],
        each_s[..., :-1, :] * SAMPLE_FACTOR,
        _alone(surface, "half the batch size"),
        keep=surface.pressure[..., 1:, :] <= MOST_PRESSURE,
        first_batch=1,
    )


def _compare_paging(surface: Surface) -> Iterator[_Comparison]:
    import numpy as np

    each_s = _per_sample(surface)
    fits = surface.pressure <= MOST_PRESSURE
    least_s = np.min(np.where(fits, each_s, np.inf), axis=-2, keepdims=True)
    least_s = np.where(np.isfinite(least_s), least_s, np.nan)
    slowdown = [
        (chip.memory_gb_per_s or np.nan) / (chip.pcie_gb_per_s_per_direction or UNKNOWN_LINK_GB_PER_S)
        for chip in surface.accelerators
    ]
    yield _Comparison(
        each_s,
        np.broadcast_to(least_s * np.array(slowdown), each_s.shape),
        _alone(surface, "paging"),
        keep=~fits,
    )


def _compare_devices(surface: Surface) -> Iterator[_Comparison]:
    for number, several_s in surface.devices_s.items():
        yield _Comparison(surface.mid_s, several_s, _alone(surface, f"{number} devices"))


LAWS: tuple[tuple[Law, Callable[[Surface], Iterable[_Comparison]]], ...] = (
    (Law(name="chips", definition="a chip at least as good in every figure is no slower (same generation)"),
     _compare_boards),
    (Law(name="generations", definition="a chip at least as good in every figure is no slower (other generation)"),
     _compare_generations),
    (Law(name="tf32", definition="tf32 is no slower than float32"), _compare_tf32),
    (Law(name="tensor-units", definition="mixed precision on tensor units is no slower than float32 from batch "
         f"{LEAST_BATCH} on where products take most of the time"), _compare_tensor_units),
    (Law(name="mixed", definition="mixed precision is slower than float32 by its own conversions at most"),
     _compare_mixed),
    (Law(name="compiled", definition="compiled is no slower than kernel by kernel"), _compare_compiled),
    (Law(name="bound", definition="the low end of the interval is not below the physical bound"), _compare_bound),
    (Law(name="batch", definition="a step with twice the batch size is no faster"), _compare_batches),
    (Law(name="sample", definition=f"a sample at twice the batch size takes at most {SAMPLE_FACTOR} times as "
         "long where the step fits into memory"), _compare_samples),
    (Law(name="paging", definition="a sample of a step that does not fit takes at most memory bandwidth / host "
         "link times as long as in the best step that fits"), _compare_paging),
    (Law(name="devices", definition="a step on several devices with the same batch each is no faster than on one"),
     _compare_devices),
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


def _check(law: Law, surface: Surface, one: _Comparison) -> tuple[int, list[Violation]]:
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
    use_cache: bool = True,
    progress: Callable[[str], None],
) -> list[LawReport]:
    """Trace models, predict them everywhere and return a report for each law.

    Args:
        accelerators: The catalog's.
        models: References, relative to `profiles/published`.
        use_cache: Whether traces are read from and written to the user's cache.
        progress: Is told what is being done.
    """
    predictor = Predictor.load()
    reports = []
    for model in trace_models(models, use_cache=use_cache, progress=progress):
        progress(f"predicting {model.name}")
        reports.append(check_laws(compute_surface(model, accelerators, predictor=predictor)))
    return summarize_laws(reports)
