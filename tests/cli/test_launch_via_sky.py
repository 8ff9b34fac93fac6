"""`gpuplan launch --via skypilot`: a fake `sky` on the PATH notes what it was asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from gpuplan.cli.app import run
from launch.export.plans import GIT, OFFERS, write_plan


@pytest.fixture
def fake_sky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that records its arguments and exits with a given code."""
    program = tmp_path / "bin" / "sky"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexit ${{SKY_ENDS:-0}}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path / "asked"


def test_sky_is_asked_once_with_the_task(
    fake_sky: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a dry run nor a run without --yes and a terminal starts anything; errors have hints."""
    file = tmp_path / "task.yaml"
    call = ["launch", str(write_plan(tmp_path, OFFERS["lambda"])), "--via", "skypilot", "--source", GIT]
    assert run([*call, "--dry-run"]) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert run(call) == 2
    assert not fake_sky.exists()
    capsys.readouterr()

    assert run([*call, "--yes", "-o", str(file)]) == 0
    assert yaml.safe_load(file.read_text()) == document
    assert fake_sky.read_text() == f"launch -y -c {document['name']} {file}\n"
    assert f"`sky down {document['name']}` ends it" in capsys.readouterr().err
    monkeypatch.setenv("SKY_ENDS", "3")
    assert run([*call, "--yes", "-o", str(file)]) == 1
    assert ": a machine may exist" in capsys.readouterr().err


def test_without_sky_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    call = ["launch", str(write_plan(tmp_path, OFFERS["aws"])), "--via", "skypilot", "--source", GIT, "--yes"]
    assert run(call) == 2
    assert "no program `sky`" in capsys.readouterr().err
