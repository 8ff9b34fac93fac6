"""Pareto front and least rows of columns: by hand, and as laws."""

from __future__ import annotations

import numpy as np
from gpuplan.plan.ranking import find_first, find_pareto
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

numbers = st.floats(min_value=0.001, max_value=1e6) | st.sampled_from([1.0, 2.0])
Columns = tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]


def split(pairs: list[tuple[float, float]]) -> Columns:
    """Return the rows of some times and costs, and the columns."""
    times, costs = np.array([pair[0] for pair in pairs], float), np.array([pair[1] for pair in pairs], float)
    return np.arange(len(pairs)), times, costs


columns = st.lists(st.tuples(numbers, numbers), max_size=30).map(split)


def test_a_front_by_hand() -> None:
    """Closed form: of (1 h, $9), (2 h, $4), (2 h, $5), (3 h, $4), (4 h, $1) three are not beaten."""
    rows, times, costs = split([(1, 9), (2, 4), (2, 5), (3, 4), (4, 1)])

    assert find_pareto(rows, times, costs) == (0, 1, 4)
    assert (find_first(rows, costs, times), find_first(rows, times, costs)) == (4, 0)
    assert find_first(rows[1:4], costs, times) == 1


def test_nothing_to_choose_from() -> None:
    """None and an empty front, no error."""
    rows, times, costs = split([])

    assert find_first(rows, costs, times) is None
    assert find_pareto(rows, times, costs) == ()


@given(found=columns)
def test_no_member_of_the_front_is_beaten_and_everyone_else_is(found: Columns) -> None:
    """Law: the definition of the Pareto front, both ways; it runs from the fastest to the cheapest."""
    rows, times, costs = found
    front = find_pareto(rows, times, costs)
    for row in rows.tolist():
        is_no_worse = (times <= times[row]) & (costs <= costs[row])
        better = is_no_worse & ((times < times[row]) | (costs < costs[row]))
        twins = is_no_worse & ~better
        assert better.any() != (row in front or any(one in front for one in np.flatnonzero(twins)))
    if rows.size:
        assert front[0] == find_first(rows, times, costs)
        assert front[-1] == find_first(rows, costs, times)
