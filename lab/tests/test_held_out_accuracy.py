"""The promise on accuracy, measured on models that the fit has not seen. Slow: it traces and fits everything."""

from __future__ import annotations

import json
from importlib import resources

import jsonschema
import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.accuracy import Scoreboard, load_packaged_record
from gpuplan.render.accuracy import build_scoreboard_rows, build_setting_rows

from lab.accuracy import MachinePrices, evaluate_settings
from lab.evaluation import Evaluator
from lab.evaluation_protocols import find_settings
from lab.score_record import find_regressions

# One process works out what both files look at.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("held out")]

# The setting that every test run recomputes; `python -m lab accuracy --check` does so for all of them.
RECOMPUTED = "profet"


@pytest.fixture(scope="module")
def board(profet_bench: Evaluator) -> Scoreboard:
    return evaluate_settings(profet_bench, find_settings([RECOMPUTED]), MachinePrices.of(load_catalog().offers))


def test_architectures_left_out_one_by_one(board: Scoreboard) -> None:
    """PROFET's nine Keras models on four GPUs, each model predicted by a fit without it."""
    scores = board.to_json()["summary"]
    assert scores["n"] == 849
    assert scores["median_ape"] <= 0.065
    assert scores["mean_ape"] <= 0.09
    assert 0.70 <= scores["coverage_80"] <= 0.90


def test_nothing_got_worse_than_was_recorded(board: Scoreboard) -> None:
    """Median, mean, coverage and regret, by more than the noise that `find_regressions` states."""
    recorded = load_packaged_record()["settings"]
    assert RECOMPUTED in recorded
    assert find_regressions(recorded, board.settings) == []


def test_rules_of_thumb_are_far_behind(board: Scoreboard) -> None:
    """Scaling by FLOPS or by bandwidth errs at least twice as much, fitted and left out alike."""
    own = board.to_json()["summary"]
    for name in ("flops_ratio", "bandwidth_ratio", "datasheet_roofline"):
        assert board.baselines[name].median_ape > 2 * own["median_ape"]
        assert board.baselines[name].mean_ape > 2 * own["mean_ape"]


def test_choosing_by_prediction_loses_little(board: Scoreboard) -> None:
    """212 workloads ran on three GPUs or more: at most 3 % of the dollars and of the hours are lost."""
    decision = board.settings[RECOMPUTED]["decision"]
    for choice in ("cheapest", "cheapest_at_clouds", "fastest"):
        assert decision[choice]["n"] == 212
        assert decision[choice]["mean_regret"] <= 0.03
    assert decision["rank_correlation"] > 0.95


def test_the_scoreboard_is_complete_and_matches_its_schema(board: Scoreboard) -> None:
    """A line for everything, each source, GPU, precision, model and rule; the JSON validates."""
    assert len(build_scoreboard_rows(board)) == 1 + 4 + 9 + 3
    assert len(build_setting_rows(board.settings)) == 1 + (1 + 4 + 1 + 1 + 1 + 9) + 3
    schema = json.loads((resources.files("gpuplan.schemas") / "gpuplan.accuracy.json").read_text())
    jsonschema.validate({"schema": "gpuplan.accuracy/1", **board.to_json()}, schema)
