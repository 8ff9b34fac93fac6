"""The formulas of the roofline against closed forms, and the laws they must keep."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpuplan.predict.collectives import list_gradient_sums
from gpuplan.predict.contractions import SPLITS, TILES, Products, best_tiling_s, tile_rate, tiling_s
from gpuplan.predict.intervals import interval_around
from gpuplan.predict.roofline import compute_bandwidth_bytes_per_s, compute_step_s, soft_max
from hypothesis import example, given
from hypothesis import strategies as st

from lab.quantiles import equal_weights, weighted_quantile

sizes = st.integers(1, 8192).map(float)


def tiling(*, splits: float = 1.0, **changes: float) -> float:
    facts: dict[str, Any] = {
        "m": 128.0, "n": 128.0, "k": 64.0, "batch": 1.0, "cores": 4.0, "core_flop_per_s": 1e12, "k_step": 8.0,
        "quantization": 1.0, "split_cost": 0.1, "step_latency_s": 0.0, "sharpness": 3.0, "may_split": True,
        "tile_exponent": 0.5,
    }  # fmt: skip
    products = Products(**{**facts, **changes})
    return float(tiling_s(products, rows=128.0, columns=128.0, splits=splits, xp=np))


def several(
    m: Any, n: Any, k: Any, *, may_split: bool = True, sharpness: float = 3.0, cores: float = 80.0
) -> Products:
    return Products(
        m=m, n=n, k=k, batch=np.ones(len(m)), cores=cores, core_flop_per_s=1e12, tile_exponent=0.5, k_step=8.0,
        quantization=0.5, split_cost=0.1, may_split=np.full(len(m), may_split), step_latency_s=1e-7,
        sharpness=sharpness,
    )  # fmt: skip


def best(*, m: float, n: float, k: float, may_split: bool = True) -> float:
    one = np.array([1.0])
    return float(best_tiling_s(several(m * one, n * one, k * one, may_split=may_split), xp=np)[0])


TILE_S = 2 * 128 * 128 * 64 / 1e12


@pytest.mark.parametrize(("stores_ecc", "bytes_per_s"), [(False, 192e9), (True, 163.2e9)])
def test_bandwidth_by_hand(stores_ecc: bool, bytes_per_s: float) -> None:
    """320 GB/s x 0.8 of it x 1.5 by the stack / 4^0.5 of density, x 0.85 where memory stores its own ECC."""
    chip = SimpleNamespace(inline_ecc=np.array(stores_ecc), memory_bytes_per_s=320e9, memory_density=4.0)
    shared = SimpleNamespace(inline_ecc=0.85, memory_density=0.5)
    stack: Any = SimpleNamespace(stream=1.5)
    found = compute_bandwidth_bytes_per_s(chip, stack, shared, share=0.8, xp=np)  # type: ignore[arg-type]
    assert float(found) == pytest.approx(bytes_per_s)


def test_one_tile_takes_as_long_as_a_full_wave() -> None:
    """By hand: one 128x128 tile of k = 64 is 2*128*128*64 FLOPs on one core, and so is one on each of four."""
    assert tiling() == pytest.approx(TILE_S)
    assert tiling(m=4 * 128.0) == pytest.approx(TILE_S)


def test_five_tiles_on_four_cores_take_two_whole_waves() -> None:
    """By hand: m = 5 tiles; two waves of four cores when only whole waves count, 5/4 when fractions do."""
    assert tiling(m=5 * 128.0) == pytest.approx(2 * TILE_S)
    assert tiling(m=5 * 128.0, quantization=0.0) == pytest.approx(1.25 * TILE_S)


def test_edges_are_padded_to_full_tiles_and_k_to_its_step() -> None:
    """By hand: 129 rows need two tiles on one core; k = 65 loops 9 steps of 8."""
    assert tiling(m=129.0, k=65.0, cores=1.0) == pytest.approx(2 * 2 * 128 * 128 * 72 / 1e12)


def test_a_long_loop_on_few_tiles_waits_for_memory() -> None:
    """By hand: 1,000 steps of 1 us with nothing to hide them; 16 tiles a core run four at a time."""
    assert tiling(k=8000.0, step_latency_s=1e-6, core_flop_per_s=1e18) == pytest.approx(1e-3)
    many = tiling(m=16 * 128.0, k=8000.0, cores=1.0, step_latency_s=1e-6, core_flop_per_s=1e18)
    assert many == pytest.approx(4e-3)


def test_the_time_of_tiles_bends_nowhere() -> None:
    """Where loading takes as long as waiting, the slope to the left is that to the right: a fit can pass."""
    equal_flop_per_s = 2 * 128 * 128 * 8.0 / 1e-6  # a step of the loop takes 1 us, and waits for 1 us
    at, left, right = (
        tiling(core_flop_per_s=equal_flop_per_s * (1 + change), step_latency_s=1e-6)
        for change in (0.0, -1e-4, 1e-4)
    )
    assert at == pytest.approx(8e-6 * 2 ** (1 / 3))
    assert right - at == pytest.approx(at - left, rel=1e-3)


def test_splitting_shortens_the_loop_and_costs_a_little() -> None:
    """By hand: four parts run on four cores in a quarter of the time, plus 2 doublings of 10 %."""
    assert tiling(splits=4.0) == pytest.approx(TILE_S / 4 * 1.2)


@given(m=sizes, n=sizes, k=sizes)
def test_no_tiling_beats_the_peak(m: float, n: float, k: float) -> None:
    """Law: padding, waves, latency and slower tiles only add to 2 m n k over the peak of all cores."""
    assert best(m=m, n=n, k=k) >= 2 * m * n * k / 80e12 * (1 - 1e-12)


@given(m=sizes, n=sizes, k=sizes)
def test_more_rows_never_take_less_time(m: float, n: float, k: float) -> None:
    """Law: a larger product is never cheaper."""
    assert best(m=m + 1, n=n, k=k) >= best(m=m, n=n, k=k) * (1 - 1e-12)


@given(m=sizes, n=sizes, k=sizes)
def test_a_freer_choice_is_never_slower(m: float, n: float, k: float) -> None:
    """Law: being allowed to split the loop can only help."""
    assert best(m=m, n=n, k=k) <= best(m=m, n=n, k=k, may_split=False)


@given(
    st.lists(st.tuples(sizes, sizes, sizes), min_size=1, max_size=9),
    st.booleans(),
    st.sampled_from((1.0, 1.5, 4.0)),
    st.sampled_from((80.0, 15.0)),
)
@example([(1152.0, 320.0, 1568.0)], True, 4.0, 15.0)  # 45 tiles on 15 cores are 3 waves, not 4
def test_leaving_out_slow_tilings_early_changes_no_time(
    shapes: list[tuple[float, float, float]], may_split: bool, sharpness: float, cores: float
) -> None:
    """Law: the fastest tiling is that of a comparison of all of them."""
    m, n, k = np.array(shapes).T
    products = several(m, n, k, may_split=may_split, sharpness=sharpness, cores=cores)
    splits = SPLITS if may_split else (1,)
    each = [
        tiling_s(products, rows=float(r), columns=float(c), splits=float(s), xp=np)
        for r, c in TILES
        for s in splits
    ]
    np.testing.assert_allclose(best_tiling_s(products, xp=np), np.min(each, axis=0), rtol=1e-12)


def test_tile_rates_follow_arithmetic_intensity() -> None:
    """By hand: t*u/(t+u) of 128x128 is 64, of 32x32 it is 16; exponent 1/2 halves the rate."""
    assert tile_rate(*TILES[0], 0.5) == 1.0
    assert tile_rate(32, 32, 0.5) == pytest.approx(0.5)


@given(a=st.floats(0, 1e3), b=st.floats(0, 1e3), p=st.floats(1, 10))
def test_overlap_lies_between_perfect_and_none(a: float, b: float, p: float) -> None:
    """Law: max(a, b) <= soft maximum <= a + b."""
    both = float(soft_max(a, b, sharpness=p, xp=np))
    assert max(a, b) * (1 - 1e-9) <= both <= (a + b) * (1 + 1e-9) + 1e-12


def test_ring_all_reduce_of_eight() -> None:
    """Patarasuk and Yuan 2009: each sends 2 (N-1)/N of the message, in two passes."""
    (eight,), (one,) = (list_gradient_sums(80e6, devices=devices) for devices in (8, 1))
    assert eight.sent_bytes == pytest.approx(2 * 7 / 8 * 80e6)
    assert one.sent_bytes == 0.0


@given(st.lists(st.floats(-5, 5), min_size=1), st.floats(0, 1))
def test_a_quantile_is_one_of_the_values(values: list[float], probability: float) -> None:
    """Law: no interpolation invents an error that was not measured."""
    assert weighted_quantile(values, [1.0] * len(values), probability) in values


def test_groups_weigh_the_same_however_many_rows_they_have() -> None:
    """By hand: three rows of a, one of b: 1/3 each against 1."""
    assert equal_weights(["a", "a", "b", "a"]) == [1 / 3, 1 / 3, 1.0, 1 / 3]


@given(st.floats(1e-6, 1e3), st.floats(-2, 2), st.floats(-2, 2))
def test_an_interval_never_excludes_its_middle(mid: float, low: float, high: float) -> None:
    """Law: low <= mid <= high, whatever the quantiles of a biased fit."""
    interval = interval_around(mid, low, high)
    assert interval.low <= interval.mid <= interval.high


def test_a_host_that_is_a_batch_ahead_overlaps_whole() -> None:
    """By hand, nearly a sharp maximum: 3 s of work, 1 s of dispatch, 0.5 s of the loop and 2 s of copying."""
    host = SimpleNamespace(fixed_s=0.5, dispatch_s=1.0, feed_bytes_per_s=10.0)
    shared = SimpleNamespace(pressure_slope=0.0, host_sharpness=200.0)

    def wait(device_s: float, *, is_ahead: bool) -> float:
        step_s = compute_step_s(
            device_s=device_s, launches=1.0, input_bytes=20.0, pressure=0.0, host=host, shared=shared, xp=np,
            is_ahead=is_ahead,
        )  # fmt: skip
        return float(step_s)

    assert [wait(3.0, is_ahead=ahead) for ahead in (False, True)] == pytest.approx([5.5, 3.5], rel=1e-3)
    assert [wait(7.0, is_ahead=ahead) for ahead in (False, True)] == pytest.approx([9.5, 7.0], rel=1e-3)


def test_a_step_that_does_not_fit_takes_no_longer_than_one_that_pages() -> None:
    """By hand, slope 2: 1 s of work at twice the memory is exp(2) s, or exp(1.2) s and 1 s of paging."""
    host = SimpleNamespace(fixed_s=0.0, dispatch_s=0.0, feed_bytes_per_s=1.0)
    shared = SimpleNamespace(pressure_slope=2.0, host_sharpness=8.0)

    def wait(pressure: float, paging_s: float | None = None) -> float:
        step_s = compute_step_s(
            device_s=1.0, launches=0.0, input_bytes=0.0, pressure=pressure, host=host, shared=shared, xp=np,
            paging_s=paging_s,
        )  # fmt: skip
        return float(step_s)

    assert [wait(0.5), wait(2.0)] == pytest.approx([1.0, np.exp(2.0)])
    assert wait(2.0, paging_s=1.0) == pytest.approx(np.exp(1.2) + 1.0)
    assert wait(2.0, paging_s=100.0) == pytest.approx(np.exp(2.0))
    assert np.isfinite(wait(1000.0))
