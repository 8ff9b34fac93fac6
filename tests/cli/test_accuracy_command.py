"""`gpuplan accuracy`: the record at once, and which options go together."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

Run = Callable[..., Any]


def test_the_record_is_printed_at_once(gpuplan: Run) -> None:
    """A header and, for each setting, a line for gpuplan and one for each rule; nothing is computed."""
    done = gpuplan("accuracy", "--recorded")
    assert done.code == 0
    header, *lines = done.out.splitlines()
    assert header.startswith("setting\tscope\tname\tn\tmedian_ape")
    assert [line for line in lines if line.startswith("profet\tall\tgpuplan\t849\t")]
    assert {line.split("\t")[0] for line in lines if "\tflops_ratio\t" in line} >= {"profet"}


def test_one_setting_is_printed_with_its_groups(gpuplan: Run) -> None:
    """Each accelerator and each network of a setting that is asked for alone."""
    done = gpuplan("accuracy", "--recorded", "--setting", "profet")
    names = [line.split("\t")[1:3] for line in done.out.splitlines()]
    assert ["accelerator", "K80"] in names
    assert ["model", "vgg16"] in names


def test_the_record_as_json_matches_the_schema(gpuplan: Run) -> None:
    """The keys of the contract; the rows behind it are not recorded."""
    payload = json.loads(gpuplan("accuracy", "--recorded", "--json").out)
    schema = json.loads((resources.files("gpuplan.schemas") / "gpuplan.accuracy.json").read_text())
    jsonschema.validate(payload, schema)
    assert payload["rows"] == []
    assert payload["summary"]["n"] == payload["settings"]["architecture"]["n"]


def test_the_page_comes_from_the_record(gpuplan: Run) -> None:
    """The same text as the page in the documentation."""
    done = gpuplan("accuracy", "--recorded", "--markdown")
    assert done.out == (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("mine.csv", "--recorded"), "`--recorded` applies to the published measurements"),
        (("mine.csv", "--setting", "source"), "`--setting` applies to the published measurements"),
        (("--recorded", "--check"), "`--recorded` computes nothing that `--check` could use"),
        (("--recorded", "--output", "x.json"), "`--recorded` computes nothing that `--output` could use"),
        (("--recorded", "--markdown", "--json"), "`--markdown` and `--json`"),
        (("--setting", "sorce"), "unknown setting `sorce`"),
    ],
)
def test_contradictions_are_usage_errors(gpuplan: Run, arguments: tuple[str, ...], says: str) -> None:
    """Exit 2 and one line on stderr, nothing on stdout, before anything is computed."""
    done = gpuplan("accuracy", *arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
