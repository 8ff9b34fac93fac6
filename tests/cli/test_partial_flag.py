"""Plans of some phases of a script: the first line says so, and nothing is recommended unless asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from factories import make_product, make_workload

SCHEMA = json.loads(files("gpuplan.schemas").joinpath("gpuplan.estimate.json").read_text(encoding="utf-8"))
Run = Callable[..., Any]
WHY = "fit() at train.py, line 40 is not: NotImplementedError"
SENTENCE = f"1 of at least 2 phases could be planned; {WHY}."


def read(text: str) -> Any:
    """Return an estimate that the schema accepts."""
    document = json.loads(text)
    jsonschema.validate(document, SCHEMA)
    return document


@pytest.fixture
def partial(tmp_path: Path) -> str:
    """A saved workload of one phase; another one could not be planned."""
    path = tmp_path / "some.json"
    path.write_text(json.dumps(make_workload(ops=(make_product(),), unplanned=(WHY,)).to_json()), encoding="utf-8")
    return str(path)


def test_nothing_is_recommended(gpuplan: Run, partial: str) -> None:
    """Exit code 3; the sentence of the decision says why, and the offers are there."""
    done = gpuplan("estimate", partial, "--accelerator", "T4", "--json")
    answer = read(done.out)

    assert done.code == 3
    assert answer["unplanned"] == [WHY]
    assert answer["decision"]["sentence"] == SENTENCE
    picks = ("recommended", "free", "cheaper", "faster")
    assert [answer["decision"][pick] for pick in picks] == [None] * 4
    assert answer["recommendation"]["cheapest"] is None
    assert answer["offers"]
    assert SENTENCE[:-1] in done.err
    assert "--partial" in done.err


def test_the_phases_that_were_found_are_answered_for(gpuplan: Run, partial: str) -> None:
    """With `--partial` the sentence comes first, then what to take."""
    done = gpuplan("estimate", partial, "--accelerator", "T4", "--partial", "--json")
    decision = read(done.out)["decision"]

    assert done.code == 0
    assert decision["sentence"].startswith(f"{SENTENCE} Take ")
    assert decision["recommended"]["accelerator"] == "T4"


@pytest.mark.parametrize("command", [["breakeven"], ["sweep", "--batch-sizes", "32"]])
def test_comparisons_need_the_whole_script(gpuplan: Run, partial: str, command: list[str]) -> None:
    """Exit code 3 with the same sentence."""
    done = gpuplan(command[0], partial, *command[1:], "--accelerator", "T4")

    assert (done.code, done.out) == (3, "")
    assert SENTENCE in done.err
