"""When pairs of processes say enough of a model, by hand."""

from __future__ import annotations

from pathlib import Path

from against_fit import MOST, enough
from kept import Kept


def pairs(*errors: float) -> list[dict[str, float]]:
    return [{"error": error} for error in errors]


def test_pairs_that_agree_are_enough_and_others_are_not() -> None:
    """By hand: 0, 3, 6 % have a deviation of 3 % and a standard error of 1.7; twice as far apart it is 3.5."""
    assert enough(pairs(0.0, 0.03, 0.06), fewest=3)
    assert not enough(pairs(0.0, 0.06, 0.12), fewest=3)
    assert not enough(pairs(0.0, 0.0), fewest=3)


def test_there_is_an_end_to_pairs_that_never_agree() -> None:
    """Half of them are far off: after `MOST` no more are asked for."""
    apart = [0.0, 0.5] * MOST
    assert not enough(pairs(*apart[: MOST - 1]), fewest=3)
    assert enough(pairs(*apart[:MOST]), fewest=3)


def test_a_row_is_found_by_some_of_its_values(tmp_path: Path) -> None:
    """What was kept goes on where it stopped, in another process too."""
    path = tmp_path / "rows.json"
    Kept(path, command="made by hand", key=("model", "repeat")).add({"model": "a", "repeat": 1, "error": 0.1})
    again = Kept(path, command="made by hand", key=("model", "repeat"))

    assert (again.find(model="a", repeat=1) or {})["error"] == 0.1
    assert again.find(model="a", repeat=2) is None
