"""Sentences on where the cheapest alternative changes."""

from __future__ import annotations

from gpuplan.plan.alternative_costs import Crossover
from gpuplan.render.comparison import format_crossovers


def alternating(number: int) -> list[Crossover]:
    """Return crossovers at 10, 20, ... between two alternatives."""
    names = ("colab-free", "kaggle-free")
    return [Crossover(at=10 * n, before=names[n % 2], to=names[(n + 1) % 2]) for n in range(1, number + 1)]


def test_no_crossover_is_said() -> None:
    """Up to the largest number that is looked at."""
    assert format_crossovers([], "runs") == [
        "The cheapest alternative is the same for any number of runs up to 100,000."
    ]


def test_many_crossovers_are_summed_up() -> None:
    """Weekly quotas let two free alternatives alternate for ever: three lines, and one for the other eleven."""
    lines = format_crossovers(alternating(14), "runs")

    assert lines[0] == "From 10 runs on, take colab-free instead of kaggle-free."
    assert lines[3:] == ["11 further changes between colab-free, kaggle-free up to 140 runs: --json lists them."]
    assert len(format_crossovers(alternating(3), "epochs")) == 3
