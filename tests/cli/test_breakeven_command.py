"""`gpuplan breakeven` on a real traced script, the real catalog and the real predictor."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

Run = Callable[..., "object"]


def test_json_keeps_the_contract(gpuplan: Run, saved: str, tmp_path: Path) -> None:
    """Every way of the schema, the least total first; the file is what is printed."""
    kept = tmp_path / "ways.json"
    done = gpuplan("breakeven", saved, "--hour-value", "20", "--runs", "10", "--json", "-o", str(kept))
    document = json.loads(done.out)
    schema = json.loads(files("gpuplan.schemas").joinpath("gpuplan.breakeven.json").read_text())

    assert done.code == 0
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    totals = [float(way["total_usd"]) for way in document["ways"]]
    assert totals == sorted(totals)
    assert document["cheapest"] == document["ways"][0]["name"]
    assert kept.read_text() == done.out


def test_a_pipe_gets_tsv(gpuplan: Run, saved: str) -> None:
    """One way a line, only those that were asked for."""
    done = gpuplan("breakeven", saved, "--against", "colab-free-t4,aws:g4dn.xlarge:spot")
    header, *rows = [line.split("\t") for line in done.out.splitlines()]

    assert (done.code, done.err) == (0, "")
    assert {row[header.index("name")] for row in rows} == {"colab-free-t4", "aws:g4dn.xlarge:spot"}
    assert {row[header.index("purchase")] for row in rows} == {"on_demand", "spot"}


def test_a_users_own_hours_win_over_the_catalogs(gpuplan: Run, saved: str) -> None:
    """`--assume notebook_hours_a_week=9` is the last word."""
    against = ("--against", "kaggle-free-t4x2", "--json")
    own = gpuplan("breakeven", saved, *against, "--assume", "notebook_hours_a_week=9")

    assert json.loads(gpuplan("breakeven", saved, *against).out)["ways"][0]["hours_a_week"] == 30.0
    assert json.loads(own.out)["ways"][0]["hours_a_week"] == 9.0


@pytest.mark.parametrize("command", ["estimate", "breakeven"])
def test_a_query_of_notebook_accounts_names_what_to_type_instead(gpuplan: Run, saved: str, command: str) -> None:
    """`--live` of earlier versions; the test above types what the hint says."""
    done = gpuplan(command, saved, "--live")

    assert (done.code, done.out) == (2, "")
    assert "has no option `--live`" in done.err
    assert "`gpuplan catalog refresh` reads prices" in done.err
    assert "`--assume notebook_hours_a_week=20` gives your weekly hours" in done.err


@pytest.mark.parametrize(
    ("flags", "message", "hint"),
    [
        (["--against", "colab-fre-t5"], "`colab-fre-t5` in `--against` matches no offer", "`colab-free`"),
        (["--runs", "0"], "--runs must be a whole number of at least 1", "--runs 10"),
        (["--assume", "bot_s=1"], "unknown assumption `bot_s`", "did you mean `boot_s`"),
    ],
)
def test_bad_flags(gpuplan: Run, saved: str, flags: list[str], message: str, hint: str) -> None:
    """Exit code 2, one line on what, one on the way out, no data."""
    done = gpuplan("breakeven", saved, *flags)

    assert (done.code, done.out) == (2, "")
    assert message in done.err.splitlines()[0]
    assert hint in done.err.split("\nhint: ")[1]


@pytest.mark.parametrize("name", ["colab", "kaggle", "colab-free", "kaggle-free", "colab-payg"])
def test_names_of_notebooks_are_accepted(gpuplan: Callable[..., Any], saved: str, name: str) -> None:
    """A provider, or the beginning of an instance type."""
    ways = json.loads(gpuplan("breakeven", saved, "--against", name, "--json").out)["ways"]

    assert {way["provider"] for way in ways} == {name.partition("-")[0]}
