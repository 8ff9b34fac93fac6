"""`gpuplan export` as it is typed: YAML on standard output or in a file, JSON by schema, refusals in a line."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from gpuplan.cli.app import run
from launch.export.plans import GIT, OFFERS, write_plan

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "gpuplan.export.json").read_text())
ENGINES = ("skypilot", "dstack", "kubernetes", "ray")


@pytest.mark.parametrize("engine", ENGINES)
def test_json_keeps_its_schema_and_yaml_holds_the_same_document(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(write_plan(tmp_path, OFFERS["aws"]))
    assert run(["export", plan, "--to", engine, "--source", GIT, "--json", "--", "--epochs", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    assert "python train.py --epochs 3" in json.dumps(found["document"])

    file = tmp_path / "task.yaml"
    assert run(["export", plan, "--to", engine, "--source", GIT, "-o", str(file), "--", "--epochs", "3"]) == 0
    text = file.read_text()
    assert yaml.safe_load(text) == found["document"]
    assert f"# end it: {found['stop']}" in text
    assert all(f"# not covered: {line}" in text for line in found["open"])


def test_a_program_for_kinetic_keeps_the_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its document is Python, below the same comments."""
    (tmp_path / "train.py").touch()
    plan, file = str(write_plan(tmp_path, OFFERS["gcp-tpu"])), tmp_path / "on_kinetic.py"
    assert run(["export", plan, "--to", "kinetic", "--source", str(tmp_path), "--json", "-o", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    text = file.read_text()

    assert text.endswith(found["document"])
    assert f"# start it: {found['apply']}" in text
    compile(text, "on_kinetic.py", "exec")


def test_the_limits_are_those_of_launch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """$1 an hour: $0.50 is half an hour, and the run takes an hour."""
    plan = str(write_plan(tmp_path, OFFERS["aws"]))
    assert run(["export", plan, "--to", "skypilot", "--max-usd", "0.50"]) == 3
    assert "the limits end it after 1800 s" in capsys.readouterr().err
    assert run(["export", plan, "--to", "skypilot", "--max-usd", "2"]) == 0
    assert " 7200 python train.py" in capsys.readouterr().out


def test_an_offer_that_cannot_go_there_names_one_that_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What can is exported, and said to replace the pick; with its rank nothing is replaced."""
    plan = str(write_plan(tmp_path, OFFERS["colab"], OFFERS["lambda"]))
    for rank, is_replaced in ((), True), (("--rank", "2"), False):
        assert run(["export", plan, "--to", "skypilot", *rank]) == 0
        said = capsys.readouterr()
        assert yaml.safe_load(said.out)["resources"]["instance_type"] == "gpu_1x_a10"
        assert ("lambda gpu_1x_a10 instead of colab payg-t4, which cannot be" in said.err) == is_replaced
    assert run(["export", plan, "--to", "skypilot", "--rank", "1"]) == 3
    said = capsys.readouterr()
    assert "colab payg-t4" in said.err
    assert "`--rank 2`" in said.err


@pytest.mark.parametrize("to", [["--to", "terraform"], ["--to=terraform"], ["--to", "cloud-init"]])
def test_engines_of_earlier_versions_name_what_to_type_instead(
    to: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hint names a command, which exists and shows the machine of the plan."""
    plan = str(write_plan(tmp_path, OFFERS["aws"]))
    assert run(["export", plan, *to, "--source", GIT]) == 2
    said = capsys.readouterr().err
    assert f"`--to {to[-1].removeprefix('--to=')}` is none of kinetic, skypilot" in said
    assert "hint: `gpuplan launch plan.json --dry-run` shows the same machine" in said
    assert run(["launch", "--help"]) == 0
    assert "--dry-run" in capsys.readouterr().out
