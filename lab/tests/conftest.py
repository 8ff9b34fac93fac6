"""Fixtures of the lab's tests: those of `tests/`, the command line, and fits that take minutes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import _no_settings_of_this_machine, _tracing_from_warm_processes  # noqa: F401  # those of tests/
from conftest import pytest_collection_modifyitems as group_and_sort
from gpuplan.offers.catalog import load_catalog

from lab.__main__ import main
from lab.dataset import read_published_file
from lab.evaluation import Evaluator

LAB = Path(__file__).parents[1]
ROOT = LAB.parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the lab's tests, which CI runs beside the slow ones of tests/; group and sort them as those are."""
    for item in items:
        if LAB in item.path.parents:
            item.add_marker(pytest.mark.lab)
    group_and_sort(config, items)


@dataclass(frozen=True)
class Done:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def lab(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Run a command line of the lab in this process, in the root of the clone."""
    monkeypatch.chdir(ROOT)

    def command(*arguments: str) -> Done:
        code = main(arguments)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return command


@pytest.fixture(scope="session")
def profet_bench() -> Evaluator:
    """PROFET's rows: nine Keras networks on four GPUs. The fits without each network are made once."""
    catalog = load_catalog()
    return Evaluator(
        measurements=read_published_file("profet_keras_aws"),
        accelerators=catalog.accelerators,
        progress=lambda _: None,
    )
