"""What wrong predictions lose, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuplan.predict.measurements import Measurement
from gpuplan.predict.scores import ScoredRow
from gpuplan.records import to_plain
from gpuplan.units import Interval
from hypothesis import given
from hypothesis import strategies as st

from lab.accuracy import MachinePrices, build_decision_json
from lab.regret import (
    AcceleratorOption,
    Decision,
    build_options,
    evaluate_choice,
    evaluate_choices,
    rank_correlation,
    regret,
    summarize_decisions,
)


def candidate(name: str, measured_s: float, predicted_s: float, usd: float | None) -> AcceleratorOption:
    return AcceleratorOption(accelerator=name, measured_s=measured_s, predicted_s=predicted_s, usd_per_hour=usd)


def row(accelerator: str, measured_s: float, predicted_s: float, **other: object) -> ScoredRow:
    facts: dict[str, object] = {
        "model": "models.py:vgg11", "base": Path(), "batch_size": 32, "devices": 1, "mode": "train",
        "precision": "float32", "compiled": False, "stack": "keras", "source": "by hand", **other,
    }  # fmt: skip
    measurement = Measurement(accelerator=accelerator, step_s=measured_s, **facts)  # type: ignore[arg-type]
    around = Interval(low=predicted_s, mid=predicted_s, high=predicted_s)
    return ScoredRow(measurement=measurement, predicted_s=around, basis="modelled")


def no_price(*_: object) -> None:
    return None


def test_a_wrong_choice_costs_what_the_measurements_say() -> None:
    """Dollars a step, measured: K80 2 x 1 = 2, T4 1 x 1.5 = 1.5, V100 0.5 x 4 = 2. Predicted: 1, 1.5, 2.

    So the K80 is chosen, and costs a third more than the T4. By time the V100 is chosen, and is fastest.
    """
    decision = evaluate_choice(
        [candidate("K80", 2.0, 1.0, 1.0), candidate("T4", 1.0, 1.0, 1.5), candidate("V100", 0.5, 0.5, 4.0)]
    )
    assert decision.cheapest == pytest.approx(2.0 / 1.5 - 1.0)
    assert decision.fastest == 0.0


def test_the_fastest_choice_by_hand() -> None:
    """The A is predicted at 1 s but takes 3, where B takes 2: half as much again. Ranks are reversed at the top.

    Ranks of predictions 0, 1, 2 and of measurements 1, 0, 2: Spearman 1 - 6 x 2 / (3 x 8) = 0.5.
    """
    decision = evaluate_choice(
        [candidate("A", 3.0, 1.0, None), candidate("B", 2.0, 1.5, None), candidate("C", 4.0, 4.0, None)]
    )
    assert decision.fastest == pytest.approx(0.5)
    assert decision.rank_correlation == pytest.approx(0.5)


def test_without_three_prices_there_is_no_cheapest() -> None:
    """Unknown, not zero; the fastest is still known."""
    decision = evaluate_choice([candidate("A", 1, 1, 1.0), candidate("B", 2, 2, 1.0), candidate("C", 3, 3, None)])
    assert decision.cheapest is None
    assert decision.fastest == 0.0


def test_an_accelerator_without_price_is_not_chosen_as_cheapest() -> None:
    """The fourth is fastest by far, but it is not for sale: the choice is among the other three."""
    rows = [candidate("A", 1, 2, 1.0), candidate("B", 2, 1, 1.0), candidate("C", 3, 3, 1.0)]
    assert evaluate_choice([*rows, candidate("D", 0.1, 0.1, None)]).cheapest == pytest.approx(1.0)


def test_rank_correlation_with_ties_by_hand() -> None:
    """Ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3: centred products sum to 4.5, squares to 4.5 and 5."""
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None
    assert rank_correlation([3, 2, 1], [1, 2, 3]) == pytest.approx(-1)


TIMES = st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=8)


@given(truth=TIMES, factor=st.floats(0.1, 10))
def test_a_common_factor_loses_nothing(truth: list[float], factor: float) -> None:
    """Choosing needs only the order: predictions that are all wrong by one factor choose the best."""
    assert regret(chosen_by=[factor * t for t in truth], truth=truth) == pytest.approx(0.0, abs=1e-9)


@given(truth=TIMES, data=st.data())
def test_regret_is_never_negative_and_at_most_the_worst(truth: list[float], data: st.DataObject) -> None:
    """No choice beats the best, none is worse than the worst."""
    guess = data.draw(st.lists(st.floats(1e-3, 1e3), min_size=len(truth), max_size=len(truth)))
    assert 0.0 <= regret(chosen_by=guess, truth=truth) <= max(truth) / min(truth) - 1.0


def test_only_workloads_on_three_accelerators_are_choices() -> None:
    """Two accelerators are none; other batch sizes, sources or stacks are other workloads; a CPU is no choice."""
    pair = [row("T4", 1, 1), row("K80", 2, 2)]
    assert build_options(pair, no_price) == []
    for other in ({"batch_size": 64}, {"collection": "x"}, {"stack": "eager"}, {"precision": "mixed_float16"}):
        assert build_options([*pair, row("M60", 3, 3, **other)], no_price) == []
    assert build_options([*pair, row("CPU", 3, 3)], no_price) == []
    assert len(build_options([*pair, row("M60", 3, 3)], no_price)) == 1
    assert len(build_options([*pair, row("A100-40GB", 3, 3, precision="tf32")], no_price)) == 1


def test_repeats_count_once_and_prices_are_asked_by_devices() -> None:
    """Three repeats on the T4 measured at 1, 2 and 9 s are one candidate of 2 s."""
    rows = [row("T4", s, 1, devices=2) for s in (1.0, 2.0, 9.0)]
    rows += [row("K80", 3, 3, devices=2), row("M60", 4, 4, devices=2)]
    (chips,) = build_options(rows, lambda name, devices: 10.0 * devices if name == "T4" else None)
    assert [(c.accelerator, c.measured_s, c.usd_per_hour) for c in chips] == [
        ("T4", 2.0, 20.0),
        ("K80", 3.0, None),
        ("M60", 4.0, None),
    ]
    assert [d.accelerators for d in evaluate_choices(rows, no_price)] == [3]


def test_decisions_are_summed_up_by_hand() -> None:
    """Regrets of 0, 10 and 50 %: mean 20, median 10, p90 42; one choice of three is right; None is not 0."""
    decisions = [
        Decision(accelerators=3, cheapest=None, fastest=0.0, rank_correlation=1.0),
        Decision(accelerators=3, cheapest=0.2, fastest=0.1, rank_correlation=None),
        Decision(accelerators=4, cheapest=0.0, fastest=0.5, rank_correlation=0.5),
    ]
    summary = summarize_decisions(decisions)
    assert summary.fastest is not None
    assert summary.cheapest is not None
    assert summary.fastest.mean_regret == pytest.approx(0.2)
    assert summary.fastest.median_regret == pytest.approx(0.1)
    assert summary.fastest.p90_regret == pytest.approx(0.42)
    assert summary.fastest.top1 == pytest.approx(1 / 3)
    assert (summary.cheapest.n, summary.cheapest.top1) == (2, 0.5)
    assert summary.rank_correlation == pytest.approx(0.75)


def test_nothing_to_choose_is_unknown() -> None:
    """No workload: None everywhere."""
    assert to_plain(summarize_decisions([])) == {"cheapest": None, "fastest": None, "rank_correlation": None}


def test_each_group_of_rows_is_a_choice_of_its_own() -> None:
    """By hand: one workload predicted twice, once so that what takes twice as long is chosen: 0 and 1."""
    right = [row("T4", 1, 1), row("K80", 2, 2), row("M60", 3, 3)]
    wrong = [row("T4", 1, 9), row("K80", 2, 2), row("M60", 3, 3)]
    found = build_decision_json([right, wrong], MachinePrices(anybody={}, clouds={}))

    assert found["cheapest"] is None
    assert (found["fastest"]["n"], found["fastest"]["mean_regret"]) == (2, 0.5)
