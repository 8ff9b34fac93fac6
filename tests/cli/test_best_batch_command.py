"""`gpuplan estimate --best-batch` on a real script."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import jsonschema
from gpuplan.estimate_document import read_offers

Run = Callable[..., "object"]
SCRIPT = Path(__file__).parents[2] / "examples" / "mnist_cnn.py"


def test_a_second_plan_stands_beside_the_users_own(gpuplan: Run, saved: str) -> None:
    """A small network at batch 128 wastes a T4: the largest batch that fits does more samples a second there."""
    one_t4 = ("--provider", "aws", "--accelerator", "T4", "--devices", "1", "--region", "us-east-1")
    done = gpuplan("estimate", str(SCRIPT), "--best-batch", *one_t4, "--json")
    document = json.loads(done.out)

    assert done.code == 0
    jsonschema.validate(
        document, json.loads(files("gpuplan.schemas").joinpath("gpuplan.estimate.json").read_text())
    )
    assert read_offers(document)
    for offer in read_offers(document):
        best = offer["best_batch"]
        assert document["workload"]["batch_size"] < best["batch_size"] <= offer["largest_batch_size"]
        assert best["speedup"] > 1.0
        assert best["run_time_s"]["mid"] < offer["run_time_s"]["mid"]
        assert float(best["cost_usd"]["mid"]) < float(offer["cost_usd"]["mid"])


def test_without_the_flag_nothing_more_is_traced(gpuplan: Run, saved: str) -> None:
    """The key is there, and null."""
    (offer,) = read_offers(json.loads(gpuplan("estimate", saved, "--json", "--provider", "local").out))

    assert offer["best_batch"] is None
