"""Comparisons of predictions on a surface: what a law holds beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpuplan.offers.rows import Accelerator
from gpuplan.predict.accelerator_limits import find_issue_share, has_inline_ecc, peak_tflop_per_s, tensor_dtypes
from gpuplan.predict.run_config import UNKNOWN_HOST_LINK_GB_PER_S
from gpuplan.units import GIGA

from .surface import COMPILED, DISPATCH_S, LAUNCH_S, PRECISIONS, Surface

# Time per sample at twice the batch size: whole waves of tiles, and less of a larger batch stays in a cache.
SAMPLE_FACTOR = 1.1
MOST_PRESSURE = 1.0  # up to which a step fits
LEAST_BATCH = 32  # from which tensor units must pay
# Conversions of a mixed precision: a launch each, and their traffic at a fifth of the datasheet's bandwidth, less
# than is fitted of any generation.
STREAM_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Comparison:
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


def _issued_tflop_per_s(chip: Accelerator, dtype: str, *, tf32: bool) -> float | None:
    peak, on_tensor_units = peak_tflop_per_s(chip, dtype, tf32=tf32)
    return peak if peak is None or on_tensor_units else peak * find_issue_share(chip)


def _are_of_one_generation(one: Accelerator, other: Accelerator) -> bool:
    """Return whether two chips have the same cores, whichever coefficients apply to them."""
    return (one.architecture, one.compute_capability) == (other.architecture, other.compute_capability)


def is_at_least_as_good(one: Accelerator, other: Accelerator) -> bool:
    """Return whether every figure of a datasheet is at least that of another chip of the same vendor and kind.

    These are the peaks of products of every type (of what runs instead, where the type has no units), memory and
    its bandwidth, cores, and second-level cache; within a generation also both clocks, where both chips' are
    published. Clocks of different generations say nothing, since cores differ; peaks hold what counts of them. Of
    Kepler's float32 peak, two thirds: its schedulers issue no more. Error correction that is stored in the memory
    takes part of the bandwidth: a chip with it is no better than one without.
    """
    if one is other or (one.vendor, one.kind) != (other.vendor, other.kind):
        return False
    if has_inline_ecc(one) and not has_inline_ecc(other):
        return False
    names = ["memory_gib", "memory_gb_per_s", "sms_or_cores", "l2_mib"]
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    for dtype, tf32 in (("float32", False), ("float32", True), ("float16", False), ("bfloat16", False)):
        pairs.append((_issued_tflop_per_s(one, dtype, tf32=tf32), _issued_tflop_per_s(other, dtype, tf32=tf32)))
    if not all((a is None and b is None) or (a is not None and b is not None and a >= b) for a, b in pairs):
        return False
    if not _are_of_one_generation(one, other):
        return True
    clocks = [(getattr(one, name), getattr(other, name)) for name in ("base_mhz", "boost_mhz")]
    return all(a is None or b is None or a >= b for a, b in clocks)


def _compare_chips(surface: Surface, *, same_generation: bool) -> Iterator[Comparison]:
    """Compare chips with those that they are at least as good as, where the step fits, or fits no worse: of equal
    memories, error correction leaves less of one, and what does not fit crosses the host's link.
    """
    import numpy as np

    chips = surface.accelerators
    pairs = [
        (a, b)
        for a, one in enumerate(chips)
        for b, other in enumerate(chips)
        if is_at_least_as_good(one, other) and _are_of_one_generation(one, other) == same_generation
    ]
    if pairs:
        better, worse = ([pair[side] for pair in pairs] for side in (0, 1))
        pressure = surface.pressure[..., better]
        links = [chip.pcie_gb_per_s_per_direction or UNKNOWN_HOST_LINK_GB_PER_S for chip in chips]
        swaps_no_worse = np.array([links[a] >= links[b] for a, b in pairs])
        fits_no_worse = (pressure <= surface.pressure[..., worse]) & swaps_no_worse
        yield Comparison(
            surface.mid_s[..., better],
            surface.mid_s[..., worse],
            [(chips[a].name, chips[b].name) for a, b in pairs],
            keep=(pressure <= MOST_PRESSURE) | fits_no_worse,
        )


def compare_boards(surface: Surface) -> Iterator[Comparison]:
    """Compare chips of one generation."""
    return _compare_chips(surface, same_generation=True)


def compare_generations(surface: Surface) -> Iterator[Comparison]:
    """Compare chips of different generations."""
    return _compare_chips(surface, same_generation=False)


# --- precisions and compilation ---------------------------------------------------------------------------


def _alone(surface: Surface, other: str) -> list[tuple[str, str]]:
    return [(chip.name, other) for chip in surface.accelerators]


_TF32 = PRECISIONS.index("tf32")
_MIXED = tuple(index for index, name in enumerate(PRECISIONS) if name.startswith("mixed"))


def compare_tf32(surface: Surface) -> Iterator[Comparison]:
    """Compare TF32 with float32."""
    mid_s = surface.mid_s
    yield Comparison(mid_s[:, [_TF32]], mid_s[:, [0]], _alone(surface, "float32"), precisions=(_TF32,))


def compare_tensor_units(surface: Surface) -> Iterator[Comparison]:
    """Compare mixed precision on tensor units with float32, where products take most of the time."""
    import numpy as np

    heavy = surface.compute_heavy[:, [0]] == 1.0
    large = (np.array(surface.batches) >= LEAST_BATCH)[:, None]
    for index in _MIXED:
        dtype = PRECISIONS[index].removeprefix("mixed_")
        units = [dtype in tensor_dtypes(chip, precision=PRECISIONS[index]) for chip in surface.accelerators]
        yield Comparison(
            surface.mid_s[:, [index]],
            surface.mid_s[:, [0]],
            _alone(surface, "float32"),
            keep=heavy & large & np.array(units),
            precisions=(index,),
        )


def compare_mixed(surface: Surface) -> Iterator[Comparison]:
    """Compare mixed precision with float32 and the conversions that it adds."""
    import numpy as np

    rates = np.array([(chip.memory_gb_per_s or np.nan) * GIGA for chip in surface.accelerators])
    launch_s = LAUNCH_S + np.array([0.0 if compiled else DISPATCH_S for compiled in COMPILED])[:, None, None]
    for index in _MIXED:
        launches = np.maximum(surface.launches[:, [index]] - surface.launches[:, [0]], 0.0)
        moved = np.maximum(surface.streamed_bytes[:, [index]] - surface.streamed_bytes[:, [0]], 0.0)
        own_s = launches * launch_s + moved / (STREAM_SHARE * rates)
        yield Comparison(
            surface.mid_s[:, [index]],
            surface.mid_s[:, [0]] + own_s,
            _alone(surface, "float32 + conversions"),
            precisions=(index,),
        )


def compare_compiled(surface: Surface) -> Iterator[Comparison]:
    """Compare compiled steps with the same step kernel by kernel."""
    mid_s = surface.mid_s
    yield Comparison(mid_s[:, :, [0]], mid_s[:, :, [1]], _alone(surface, "not compiled"), compiled=(0,))


# --- bound, batch sizes, devices --------------------------------------------------------------------------


def compare_bound(surface: Surface) -> Iterator[Comparison]:
    """Compare the physical bound with the low end of the interval."""
    yield Comparison(surface.bound_s, surface.low_s, _alone(surface, "low end of the interval"))


def compare_batches(surface: Surface) -> Iterator[Comparison]:
    """Compare a step with that of twice the batch size."""
    mid_s = surface.mid_s
    yield Comparison(mid_s[..., :-1, :], mid_s[..., 1:, :], _alone(surface, "twice the batch size"))


def _per_sample(surface: Surface) -> Any:
    import numpy as np

    return surface.mid_s / np.array(surface.batches, dtype=float)[:, None]


def compare_samples(surface: Surface) -> Iterator[Comparison]:
    """Compare a sample with one at half the batch size, where the step fits."""
    each_s = _per_sample(surface)
    yield Comparison(
        each_s[..., 1:, :],
        each_s[..., :-1, :] * SAMPLE_FACTOR,
        _alone(surface, "half the batch size"),
        keep=surface.pressure[..., 1:, :] <= MOST_PRESSURE,
        first_batch=1,
    )


def compare_paging(surface: Surface) -> Iterator[Comparison]:
    """Compare a sample of a step that does not fit with the best one that fits, and what paging can cost."""
    import numpy as np

    # every byte of the step crosses the host's link in place of the memory's bus
    each_s = _per_sample(surface)
    fits = surface.pressure <= MOST_PRESSURE
    least_s = np.min(np.where(fits, each_s, np.inf), axis=-2, keepdims=True)
    least_s = np.where(np.isfinite(least_s), least_s, np.nan)
    slowdown = [
        (chip.memory_gb_per_s or np.nan) / (chip.pcie_gb_per_s_per_direction or UNKNOWN_HOST_LINK_GB_PER_S)
        for chip in surface.accelerators
    ]
    yield Comparison(
        each_s, np.broadcast_to(least_s * np.array(slowdown), each_s.shape), _alone(surface, "paging"), keep=~fits
    )


def compare_devices(surface: Surface) -> Iterator[Comparison]:
    """Compare a step with the same on several devices."""
    for number, several_s in surface.devices_s.items():
        yield Comparison(surface.mid_s, several_s, _alone(surface, f"{number} devices"))
