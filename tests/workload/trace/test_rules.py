"""Cost rules of single primitives by their closed forms, on equations made by hand."""

from __future__ import annotations

from math import log2
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpuplan.workload.trace.rules import RULES, describe_window

Shape = tuple[int, ...]


def equation(*operands: Shape, results: tuple[Shape, ...] = (), **params: Any) -> Any:
    """Return an equation on float32 arrays of these shapes."""
    operand, result = (
        [SimpleNamespace(aval=SimpleNamespace(shape=shape, dtype=np.dtype("float32"))) for shape in shapes]
        for shapes in (operands, results or operands[:1])
    )
    return SimpleNamespace(invars=operand, outvars=result, params=params)


@pytest.mark.parametrize(
    ("name", "operands", "flops"),
    [
        ("cholesky", [(6, 6)], 72.0),  # 6^3 / 3
        ("cholesky", [(5, 2, 6, 6)], 720.0),  # ten of them
        ("lu", [(6, 6)], 144.0),  # 2 x 6^3 / 3
        ("lu", [(2, 9, 6)], 504.0),  # 2 x (9 x 6^2 - 6^3 / 3), whichever side is the longer
        ("lu", [(2, 6, 9)], 504.0),
        ("qr", [(9, 6)], 504.0),  # 2 x 6^2 x (9 - 6 / 3)
        ("geqrf", [(3, 9, 6)], 1512.0),
        ("householder_product", [(9, 6), (6,)], 504.0),
        ("triangular_solve", [(6, 6), (6, 4)], 144.0),  # 6^2 for each of four
        ("triangular_solve", [(5, 6, 6), (5, 6, 4)], 720.0),
        ("triangular_solve", [(0, 6, 6), (0, 6, 4)], 0.0),
        ("eigh", [(6, 6)], 1944.0),  # 9 x 6^3
        ("eig", [(2, 6, 6)], 3888.0),
        ("svd", [(8, 6)], 2592.0),  # 9 x 6^2 x 8
        ("svd", [(6, 8)], 2592.0),
        ("sort", [(4, 8)], 96.0),  # 32 log2 8
        ("sort", [(4, 1)], 4.0),  # a comparison an element at least
        ("sort", [(0, 8)], 0.0),
        ("random_bits", [(4, 8)], 32.0),
        ("scatter-add", [(9, 5), (3, 1), (3, 5)], 15.0),
        ("scatter", [(9, 5), (3, 1), (3, 5)], 0.0),
        ("gather", [(9, 5), (3, 1)], 0.0),
    ],
)
def test_flops_of_linear_algebra_and_sorting_by_hand(name: str, operands: list[Shape], flops: float) -> None:
    assert RULES[name].flops(equation(*operands)) == pytest.approx(flops)


def test_a_sort_along_another_axis_than_the_last_has_its_length() -> None:
    assert RULES["sort"].flops(equation((16, 2), dimension=0)) == pytest.approx(32 * log2(16))


@pytest.mark.parametrize(
    ("operand", "result", "lengths"),
    [((4, 8), (4, 8), (8,)), ((4, 8), (4, 5), (8,)), ((4, 5), (4, 8), (8,)), ((4, 2, 4), (4, 2, 4), (2, 4))],
)
def test_flops_of_a_fourier_transform_by_hand(operand: Shape, result: Shape, lengths: Shape) -> None:
    """5 n log2 n of four transforms of 8, complex, real to complex and back, in one dimension or two."""
    fft = equation(operand, results=(result,), fft_lengths=lengths)

    assert RULES["fft"].flops(fft) == pytest.approx(4 * 5 * 8 * 3)


def test_a_transform_of_one_element_counts_as_a_butterfly() -> None:
    """5 x 1 x log2 2 for each of four."""
    assert RULES["fft"].flops(equation((4, 1), fft_lengths=(1,))) == 20.0


def test_bytes_of_looking_up_and_of_scattering_by_hand() -> None:
    """Three rows of five float32 of a table of nine, by three indices of 4 bytes: 60 bytes, not 180."""
    look_up = equation((9, 5), (3, 1), results=((3, 5),))
    add, overwrite = (equation((9, 5), (3, 1), (3, 5)) for _ in range(2))

    assert RULES["gather"].reads(look_up) == (60, 12)
    assert RULES["gather"].writes(look_up) == 60
    assert RULES["scatter-add"].reads(add) == (60, 12, 60)
    assert RULES["scatter-add"].writes(add) == 60
    assert RULES["scatter"].reads(overwrite) == (0, 12, 60)
    assert RULES["gather"].reads(equation((2, 5), (3, 1), results=((3, 5),))) == (40, 12)
    more = equation((2, 5), (3, 1), (3, 5))  # than the table has rows
    assert (RULES["scatter-add"].reads(more), RULES["scatter-add"].writes(more)) == ((40, 12, 60), 40)


def test_pooling_by_hand() -> None:
    """Windows of 3 x 3 over 8 x 8 to 4 x 4, two channels: nine FLOP each, ten in the gradient of the maximum."""
    window = {"window_dimensions": (1, 3, 3, 1), "window_strides": (1, 2, 2, 1)}
    pool = equation((1, 8, 8, 2), results=((1, 4, 4, 2),), **window)
    gradient = equation((1, 4, 4, 2), (1, 8, 8, 2), results=((1, 8, 8, 2),), **window)

    assert RULES["reduce_window_max"].flops(pool) == 9 * 32
    assert RULES["select_and_scatter_add"].flops(gradient) == 10 * 32
    assert describe_window(pool) == ((3, 3), (2, 2))


def test_the_gradient_of_an_average_counts_no_zeros_between_its_elements() -> None:
    """An operand dilated by 2 x 2: a quarter of its windows' elements are there."""
    dilated = equation(
        (1, 4, 4, 2), results=((1, 8, 8, 2),), window_dimensions=(1, 3, 3, 1), base_dilation=(1, 2, 2, 1)
    )

    assert RULES["reduce_window_sum"].flops(dilated) == 128 * 9 / 4


def test_an_axis_of_windows_is_one_with_a_size_or_a_stride() -> None:
    """Windows of one element that leave out every other one are pooled too."""
    pool = equation((1, 8, 8, 2), window_dimensions=(1, 1, 3, 1), window_strides=(1, 2, 1, 1))

    assert describe_window(pool) == ((1, 3), (2, 1))
