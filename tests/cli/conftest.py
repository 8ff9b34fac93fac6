"""One real script, traced once; every test of this folder asks about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from gpuplan.cli.app import run
from gpuplan.workload.capture.load import WorkloadOptions, load_workload

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Done:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def gpuplan(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command line in this process."""

    def command(*arguments: str) -> Done:
        code = run(arguments)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return command


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The MNIST example as a saved workload: no test traces it again."""
    workload = load_workload(str(EXAMPLES / "mnist_cnn.py"), options=WorkloadOptions())
    path = tmp_path_factory.mktemp("saved") / "mnist.json"
    path.write_text(json.dumps(workload.to_json()))
    return str(path)


def validated(text: str, name: str) -> dict[str, object]:
    """Return a document that its schema accepts."""
    document = json.loads(text)
    schema = json.loads(files("gpuplan.schemas").joinpath(f"gpuplan.{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    return document
