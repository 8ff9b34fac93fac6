"""What fits, and up to which batch size."""

from __future__ import annotations

from gpuplan.plan.memory import FRAMEWORK_RESERVE_BYTES, USABLE_SHARE, available_bytes, memory_verdict
from gpuplan.units import GIB
from hypothesis import given
from hypothesis import strategies as st


def test_four_gib_beside_what_grows_leave_room_for_eleven_samples() -> None:
    """Closed form: (16 - 0.5 reserve - 4.5 fixed) GiB / 1 GiB a sample = 11."""
    verdict = memory_verdict(
        fixed_bytes=9 * GIB // 2, batch_bytes=8 * GIB, batch_size=8, available_bytes=16 * GIB
    )

    assert FRAMEWORK_RESERVE_BYTES == GIB // 2
    assert verdict.needed_bytes == 13 * GIB
    assert verdict.fits is True
    assert verdict.largest_batch_size == 11


def test_weights_that_do_not_fit_leave_room_for_no_sample() -> None:
    """Zero is an answer here: not even one sample fits."""
    verdict = memory_verdict(fixed_bytes=20 * GIB, batch_bytes=GIB, batch_size=1, available_bytes=16 * GIB)

    assert (verdict.fits, verdict.largest_batch_size) == (False, 0)


def test_unknown_memory_gives_no_verdict() -> None:
    """None, never False, and never a guess; what the step needs is still known."""
    verdict = memory_verdict(fixed_bytes=GIB, batch_bytes=GIB, batch_size=1, available_bytes=None)

    assert (verdict.fits, verdict.largest_batch_size) == (None, None)
    assert verdict.needed_bytes == 2 * GIB + FRAMEWORK_RESERVE_BYTES


def test_what_programs_see_goes_before_the_data_sheet() -> None:
    """T4: 14.75 of 16 GiB are usable with ECC; without that knowledge, the stated share is."""
    assert available_bytes(memory_gib=16.0, usable_gib=14.75) == int(14.75 * GIB)
    assert available_bytes(memory_gib=24.0, usable_gib=None) == int(24 * USABLE_SHARE * GIB)
    assert available_bytes(memory_gib=None, usable_gib=None) is None


def test_a_share_of_a_gpu_has_its_share_of_the_memory() -> None:
    """A third of an A10 (22.5 GiB usable) has 7.5 GiB; eight GPUs have no more each than one."""
    assert available_bytes(memory_gib=24.0, usable_gib=22.5, share=1 / 3) == int(22.5 / 3 * GIB)
    assert available_bytes(memory_gib=24.0, usable_gib=22.5, share=8.0) == int(22.5 * GIB)


sizes = st.integers(min_value=1, max_value=200 * GIB)


@given(fixed=sizes, per_sample=st.integers(1, GIB), batch_size=st.integers(1, 4096), available=sizes)
def test_a_batch_fits_if_and_only_if_it_is_not_larger_than_the_largest(
    fixed: int, per_sample: int, batch_size: int, available: int
) -> None:
    """Law: the verdict and the largest batch size never contradict each other."""
    verdict = memory_verdict(
        fixed_bytes=fixed,
        batch_bytes=per_sample * batch_size,
        batch_size=batch_size,
        available_bytes=available,
    )

    assert verdict.largest_batch_size is not None
    assert verdict.fits == (batch_size <= verdict.largest_batch_size)
