"""The script of an exported machine, run by bash with fakes of the programs that it calls."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from gpuplan.launch.export.machine import HOME
from launch.export.plans import export_of

FAKE = '#!/bin/bash\necho "$(basename "$0") $*" >> "$CALLS"\n'
VENV = FAKE + '[ "$2" = venv ] && mkdir -p venv/bin && echo : > venv/bin/activate; exit 0\n'


@pytest.mark.parametrize("failing", ["", "git", "pip", "timeout"])
def test_the_timer_is_first_and_the_end_comes_whatever_fails(failing: str, tmp_path: Path) -> None:
    """The timer, the code at its revision, its packages, the run; then the machine is ended."""
    script = export_of(tmp_path, "aws", "cloud-init")["document"]["write_files"][0]["content"]
    fakes, calls = tmp_path / "bin", tmp_path / "calls"
    fakes.mkdir()
    for name in ("shutdown", "git", "pip", "timeout", "python3"):
        text = VENV if name == "python3" else FAKE + ("exit 7\n" if name == failing else "")
        (fakes / name).write_text(text + ("mkdir -p code\n" if name == "git" else ""))
        (fakes / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", script.replace(HOME, str(tmp_path / "home"))],
        env={"PATH": f"{fakes}:{os.environ['PATH']}", "CALLS": str(calls)},
        capture_output=True,
        check=False,
        timeout=60,
    )
    called = [line.split() for line in calls.read_text().splitlines()]
    reached = [words[0] for words in called[1:-1]]
    every = ["python3", "git", "git", "pip", "timeout"]

    assert called[0] == ["shutdown", "-h", "+165"]
    assert called[-1] == ["shutdown", "-h", "now"]
    assert reached == (every if not failing else every[: every.index(failing) + 1])
    assert (done.returncode == 0) == (not failing)
