"""`gpuplan accuracy`: the record at once, and what earlier versions took."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import Any

import jsonschema
import pytest

Run = Callable[..., Any]


def test_the_record_is_printed_at_once(gpuplan: Run) -> None:
    """A header and, for each setting, a line for gpuplan and one for each rule; nothing is computed."""
    done = gpuplan("accuracy")
    assert done.code == 0
    header, *lines = done.out.splitlines()
    assert header.startswith("setting\tscope\tname\tn\tmedian_ape")
    assert [line for line in lines if line.startswith("profet\tall\tgpuplan\t849\t")]
    assert {line.split("\t")[0] for line in lines if "\tflops_ratio\t" in line} >= {"profet"}


def test_one_setting_is_printed_with_its_groups(gpuplan: Run) -> None:
    """Each accelerator and each network of a setting that is asked for alone."""
    done = gpuplan("accuracy", "--setting", "profet")
    names = [line.split("\t")[1:3] for line in done.out.splitlines()]
    assert ["accelerator", "K80"] in names
    assert ["model", "vgg16"] in names


def test_the_record_as_json_matches_the_schema(gpuplan: Run) -> None:
    """The keys of the contract; the rows behind it are not recorded."""
    payload = json.loads(gpuplan("accuracy", "--json").out)
    schema = json.loads((resources.files("gpuplan.schemas") / "gpuplan.accuracy.json").read_text())
    jsonschema.validate(payload, schema)
    assert payload["rows"] == []
    assert payload["summary"]["n"] == payload["settings"]["architecture"]["n"]


@pytest.mark.parametrize(
    ("arguments", "says", "hint"),
    [
        (("mine.csv", "--setting", "source"), "`--setting` applies to the published", "leave out `--setting`"),
        (("--setting", "sorce"), "unknown setting `sorce`", "did you mean `source`"),
        (("--recorded",), "has no option `--recorded`", "`gpuplan accuracy` prints the record"),
        (("--from", "T4"), "has no option `--from`", "`python -m lab accuracy --from` in a clone"),
        (("--memory",), "has no option `--memory`", "`python -m lab accuracy --memory` in a clone"),
        (("--laws",), "has no option `--laws`", "`python -m lab accuracy --laws` in a clone"),
        (("--check",), "has no option `--check`", "`python -m lab accuracy --check` in a clone"),
        (("--markdown",), "has no option `--markdown`", "`python -m lab accuracy --markdown` in a clone"),
        (("-o", "x.json"), "has no option `-o`", "`python -m lab accuracy -o` in a clone"),
        (("--output=x.json",), "has no option `--output`", "`python -m lab accuracy --output` in a clone"),
    ],
)
def test_wrong_and_removed_options_are_usage_errors(
    gpuplan: Run, arguments: tuple[str, ...], says: str, hint: str
) -> None:
    """Exit 2, nothing on stdout, and on stderr what is wrong and what to type."""
    done = gpuplan("accuracy", *arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert hint in done.err


@pytest.mark.parametrize("arguments", [(), ("--from", "rows.csv"), ("--forget",), ("--accuracy",)])
def test_calibrate_has_left(gpuplan: Run, arguments: tuple[str, ...]) -> None:
    """Exit 2 and what to type: the lab in a clone, a profile for one's own chip."""
    done = gpuplan("calibrate", *arguments)
    assert (done.code, done.out) == (2, "")
    assert "`python -m lab calibrate` in a clone" in done.err
    assert "`gpuplan profile MODEL -o FILE`" in done.err
