"""`gpuplan report`, from a real plan of the MNIST example."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COMMAND = ("estimate", "--accelerator", "T4", "--accelerator", "A100-80GB", "--samples", "54000", "--epochs", "15")


@pytest.fixture
def plan(gpuplan: Callable[..., Any], saved: str, tmp_path: Path) -> Path:
    """A plan as the command writes it."""
    path = tmp_path / "plan.json"
    done = gpuplan(*COMMAND, saved, "-o", str(path))
    assert done.code == 0, done.err
    return path


def test_the_page_is_written_and_nothing_is_printed(
    gpuplan: Callable[..., Any], plan: Path, tmp_path: Path
) -> None:
    """Standard output stays empty; the page names the model, and its layers."""
    page = tmp_path / "report.html"
    done = gpuplan("report", str(plan), "-o", str(page))

    assert (done.code, done.out) == (0, "")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    details = json.loads(plan.read_text())["details"]
    assert {step["accelerator"] for step in details["steps"]} == {"T4", "A100-80GB"}
    for layer in details["steps"][0]["layers"]:
        assert layer["name"] in text


def test_a_pipe_gets_the_page(gpuplan: Callable[..., Any], plan: Path, tmp_path: Path) -> None:
    """Without `-o`, the same bytes on standard output."""
    page = tmp_path / "report.html"
    gpuplan("report", str(plan), "-o", str(page))

    assert gpuplan("report", str(plan)).out == page.read_text(encoding="utf-8")


def test_it_opens_in_the_browser(gpuplan: Callable[..., Any], plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--open` alone writes next to the plan and opens that file in a fake browser."""
    asked: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: asked.append(address) or True)
    done = gpuplan("report", str(plan), "--open")

    assert done.code == 0
    assert asked == [plan.with_suffix(".html").as_uri()]
    assert plan.with_suffix(".html").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [("{}", "is no plan"), ("no JSON", "is no plan"), ('{"schema": "gpuplan.estimate/1"}', "cannot be read")],
)
def test_what_is_no_plan_is_refused(gpuplan: Callable[..., Any], tmp_path: Path, content: str, told: str) -> None:
    """One line that says what and where, a hint, and no page."""
    path = tmp_path / "other.json"
    path.write_text(content)
    done = gpuplan("report", str(path), "-o", str(tmp_path / "report.html"))

    assert done.code == 2
    assert told in done.err
    assert "hint: " in done.err
    assert not (tmp_path / "report.html").exists()


def test_a_folder_that_is_not_there(gpuplan: Callable[..., Any], plan: Path, tmp_path: Path) -> None:
    """The error is raised before any work."""
    done = gpuplan("report", str(plan), "-o", str(tmp_path / "nowhere" / "report.html"))

    assert done.code == 2
    assert "there is no folder" in done.err
