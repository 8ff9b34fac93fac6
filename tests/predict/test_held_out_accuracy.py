"""The promise on accuracy, measured on models that the fit has not seen. Slow: it traces and fits everything."""

from __future__ import annotations

import json
from importlib import resources

import jsonschema
import pytest
from gpuplan.offers.load import load_catalog
from gpuplan.predict.accuracy import Scoreboard, leave_one_architecture_out
from gpuplan.predict.corpus import collection
from gpuplan.render.accuracy import scoreboard_rows


@pytest.fixture(scope="module")
def board() -> Scoreboard:
    return leave_one_architecture_out(
        collection("profet_keras_aws"), load_catalog().accelerators, progress=lambda _: None
    )


def test_architectures_left_out_one_by_one(board: Scoreboard) -> None:
    """PROFET's nine Keras models on four GPUs, each model predicted by a fit without it."""
    scores = board.to_json()["summary"]
    assert scores["n"] == 849
    assert scores["median_ape"] <= 0.11
    assert scores["mean_ape"] <= 0.17
    assert 0.70 <= scores["coverage_80"] <= 0.90


def test_rules_of_thumb_are_far_behind(board: Scoreboard) -> None:
    """Scaling by FLOPS or by bandwidth errs at least twice as much, fitted and left out alike."""
    own = board.to_json()["summary"]
    for name in ("flops_ratio", "bandwidth_ratio", "datasheet_roofline"):
        assert board.rules[name].median_ape > 2 * own["median_ape"]
        assert board.rules[name].mean_ape > 2 * own["mean_ape"]


def test_the_scoreboard_is_complete_and_matches_its_schema(board: Scoreboard) -> None:
    """A line for everything, each GPU, each model and each rule; the JSON validates."""
    assert len(scoreboard_rows(board)) == 1 + 4 + 9 + 3
    schema = json.loads((resources.files("gpuplan.schemas") / "gpuplan.accuracy.json").read_text())
    jsonschema.validate({"schema": "gpuplan.accuracy/1", **board.to_json()}, schema)
