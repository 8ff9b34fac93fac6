"""Saved runs: where they are, and that none is written in part."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest
from gpuplan.profile.run_store import delete_runs, get_runs_folder, save_run
from gpuplan.settings import Settings, load_settings

DOCUMENT = {"schema": "gpuplan.profile/1", "rows": []}


def settings_of(folder: Path) -> Settings:
    """Settings of a project whose `gpuplan.toml` sets `data_dir`; nothing is set in the environment."""
    (folder / "gpuplan.toml").write_text('data_dir = "numbers"\n')
    return load_settings(environ={}, folder=folder, user_file=folder / "none.toml")


def test_runs_are_saved_in_data_dir_of_the_project_file(tmp_path: Path) -> None:
    """`data_dir` holds whether the environment or a file sets it."""
    settings = settings_of(tmp_path)
    path = save_run(DOCUMENT, settings)

    assert path.parent == tmp_path / "numbers" / "runs" == get_runs_folder(settings)
    assert delete_runs(settings) == 1
    assert not path.exists()


def test_a_run_that_cannot_be_saved_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the file nor a temporary file is left when it cannot be moved to its place."""

    def fail(*_: object) -> NoReturn:
        raise OSError("made up")

    settings = settings_of(tmp_path)
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="made up"):
        save_run(DOCUMENT, settings)

    assert not list(get_runs_folder(settings).iterdir())
