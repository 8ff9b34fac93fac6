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
        (("--recorded", "--check"), "`--recorded` computes nothing, so `--check` has no effect"),
        (("--recorded", "--output", "x.json"), "`--recorded` computes nothing, so `--output` has no effect"),
        (("--recorded", "--markdown", "--json"), "`--markdown` and `--json`"),
        (("--laws", "--recorded"), "`--laws` scores nothing, so `--recorded` has no effect"),
        (("mine.csv", "--laws"), "`--laws` applies to the published measurements"),
        (("--setting", "sorce"), "unknown setting `sorce`"),
    ],
)
def test_contradictions_are_usage_errors(gpuplan: Run, arguments: tuple[str, ...], says: str) -> None:
    """Exit 2 and one line on stderr, nothing on stdout, before anything is computed."""
    done = gpuplan("accuracy", *arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_laws_are_printed_and_a_broken_one_exits_with_3(
    gpuplan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two laws, of which one is broken: rows, the JSON contract, and the exit code; 0 without a violation."""
    from gpuplan.lab.laws import laws as surface_laws

    one = surface_laws.Violation("tf32", "m", "T4", "float32", 8, "tf32", True, "train", 2.0, 1.0)
    laws = [law for law, _ in surface_laws.LAWS[:2]]
    reports = [surface_laws.LawReport(law=law, cases=5, violations=()) for law in laws]
    monkeypatch.setattr(surface_laws, "check_all_laws", lambda *_, **__: reports)
    assert gpuplan("accuracy", "--laws").out.splitlines()[1].split("\t")[:3] == ["chips", "5", "0"]

    reports[1] = surface_laws.LawReport(law=laws[1], cases=5, violations=(one,))
    printed = gpuplan("accuracy", "--laws", "--json")
    assert printed.code == 3
    schema = json.loads((resources.files("gpuplan.schemas") / "gpuplan.accuracy-laws.json").read_text())
    jsonschema.validate(json.loads(printed.out), schema)
    assert "laws broken: generations" in printed.err
