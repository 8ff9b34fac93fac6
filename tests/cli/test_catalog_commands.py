"""`gpuplan offers`, `gpuplan accelerators`, `gpuplan catalog check`: streams, exit codes, JSON contract."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpuplan.cli.app import app_for
from gpuplan.errors import NoAnswerError, UsageError
from gpuplan.offers.catalog import load_catalog
from typer.testing import CliRunner, Result

CONTRACT_KEYS = [
    "provider", "instance_type", "accelerator", "devices", "vcpus", "memory_gib", "region", "purchase",
    "usd_per_hour", "price_as_of", "price_source", "status",
]  # fmt: skip


def invoke(*arguments: str) -> Result:
    """Run a command of an app that has nothing but the catalog's commands."""
    return CliRunner().invoke(app_for(arguments), list(arguments))


def validated(result: Result, schema: str) -> dict[str, Any]:
    """Return the JSON of a command after holding it against its published schema."""
    document: dict[str, Any] = json.loads(result.stdout)
    published = json.loads(files("gpuplan.schemas").joinpath(schema).read_text())
    jsonschema.Draft202012Validator.check_schema(published)
    jsonschema.validate(document, published)
    return document


def test_offers_as_json_are_the_whole_catalog() -> None:
    """3,855 dated prices, 39 notebook tiers and this machine, under the keys of the contract."""
    document = validated(invoke("offers", "--json"), "gpuplan.offers.json")

    assert document["schema"] == "gpuplan.offers/1"
    assert len(document["offers"]) == 3855 + 39 + 1
    assert all(list(offer)[: len(CONTRACT_KEYS)] == CONTRACT_KEYS for offer in document["offers"])


def test_money_is_text_and_unknown_is_null() -> None:
    """The price of p3.2xlarge is the text "3.06"; what p5e costs on demand is null."""
    offers = validated(invoke("offers", "--provider", "aws", "--json"), "gpuplan.offers.json")["offers"]
    by_key = {(o["instance_type"], o["region"], o["purchase"]): o for o in offers}

    assert by_key["p3.2xlarge", "us-east-1", "on_demand"]["usd_per_hour"] == "3.06"
    assert by_key["p5e.48xlarge", "us-west-2", "on_demand"]["usd_per_hour"] is None


def test_offers_filter() -> None:
    """All filters together leave the two purchase options of one machine."""
    result = invoke(
        "offers",
        "--accelerator",
        "TPUv3-8",
        "--provider",
        "gcp",
        "--region",
        "us-central1",
        "--devices",
        "4",
        "--no-retired",
        "--json",
    )
    offers = validated(result, "gpuplan.offers.json")["offers"]

    assert [(o["instance_type"], o["purchase"], o["devices"]) for o in offers] == [
        ("tpu-v3-8", "spot", 4),
        ("tpu-v3-8", "on_demand", 4),
    ]


def test_offers_in_a_pipe_are_tsv() -> None:
    """Header and rows, every column, full precision."""
    rows = list(csv.DictReader(io.StringIO(invoke("offers", "--provider", "vast").stdout), delimiter="\t"))

    assert len(rows) == 47
    assert list(rows[0])[: len(CONTRACT_KEYS)] == CONTRACT_KEYS
    assert {row["region"] for row in rows} == {"any"}


def test_this_machine_is_listed() -> None:
    """Provider `local` is an offer at $0."""
    offers = validated(invoke("offers", "--provider", "local", "--json"), "gpuplan.offers.json")["offers"]

    assert [(o["instance_type"], o["usd_per_hour"]) for o in offers] == [("this-machine", "0")]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["offers", "--accelerator", "A1000"], UsageError),
        (["offers", "--provider", "oracel"], UsageError),
        (["offers", "--accelerator", "TPU-v3", "--provider", "aws"], NoAnswerError),
        (["accelerators", "--architecture", "Voltta"], UsageError),
    ],
)
def test_bad_input_raises_what_the_app_turns_into_an_exit(arguments: list[str], error: type[Exception]) -> None:
    """Unknown names are usage errors (2), an empty answer is a no (3); nothing goes to standard output."""
    result = invoke(*arguments)

    assert isinstance(result.exception, error)
    assert result.stdout == ""


def test_accelerators_as_json() -> None:
    """All of the catalog, every field, null where a peak is unknown."""
    document = validated(invoke("accelerators", "--json"), "gpuplan.accelerators.json")
    by_name = {row["name"]: row for row in document["accelerators"]}

    assert by_name.keys() == load_catalog().accelerators.keys()
    assert by_name["K80"]["fp16_tensor_tflop_per_s"] is None
    assert by_name["V100-16GB"]["fp16_tensor_tflop_per_s"] == 125
    assert "V100-SXM2-16GB" in by_name["V100-16GB"]["aliases"]


def test_accelerators_filter() -> None:
    """Architectures in any case."""
    document = validated(invoke("accelerators", "--architecture", "tpu", "--json"), "gpuplan.accelerators.json")

    assert {row["vendor"] for row in document["accelerators"]} == {"Google"}
    assert len(document["accelerators"]) == 7


def test_catalog_check_of_the_packaged_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing on standard output, one line of talk, exit 0, on the day of the last reading."""
    monkeypatch.setenv("GPUPLAN_TODAY", "2026-11-28")

    result = invoke("catalog", "check")

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "ok: 3855 prices of 13 providers, 81 accelerators\n"


def test_catalog_check_lists_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two broken rows of a user's folder: two lines `file:line: field: message`, exit 1."""
    monkeypatch.setenv("GPUPLAN_TODAY", "2026-11-28")
    folder = tmp_path / "mine"
    with as_file(files("gpuplan.catalog")) as packaged:
        shutil.copytree(packaged, folder, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "prices" / "vast.csv"
    lines = path.read_text().splitlines()
    lines[1] = lines[1].replace(",any,", ",moon,")
    lines[4] = lines[4].replace(",on_demand,", ",auction,")
    path.write_text("\n".join(lines) + "\n")

    result = invoke("catalog", "check", str(folder))

    assert result.exit_code == 1
    assert [line.split(": ")[:2] for line in result.stdout.splitlines()] == [
        ["prices/vast.csv:2", "region"],
        ["prices/vast.csv:5", "purchase"],
    ]
    assert result.stderr.startswith("2 findings in ")


def test_a_users_own_catalog_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`GPUPLAN_CATALOG_DIR` is read and not the package; a folder that is not there is told."""
    folder = tmp_path / "mine"
    with as_file(files("gpuplan.catalog")) as packaged:
        shutil.copytree(packaged, folder, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "prices" / "vast.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:3]) + "\n")

    monkeypatch.setenv("GPUPLAN_CATALOG_DIR", str(folder))
    assert len(invoke("offers", "--provider", "vast").stdout.splitlines()) == 3
    monkeypatch.setenv("GPUPLAN_CATALOG_DIR", "nowhere")
    for command in ("offers", "accelerators"):
        result = invoke(command)
        assert isinstance(result.exception, UsageError)
        assert result.stdout == ""


def test_registering_loads_nothing_heavy() -> None:
    """The commands can be listed without pydantic, rich or numpy."""
    code = (
        "import sys; from gpuplan.cli.app import app_for; app_for(['offers']); app_for(['catalog']);"
        "loaded = {m.split('.')[0] for m in sys.modules};"
        "print(sorted(loaded & {'pydantic', 'rich', 'numpy', 'keras', 'jax'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
