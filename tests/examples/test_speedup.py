"""The example that measures this CPU and asks for the speed-up of accelerators, run as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "examples" / "speedup.py"


def test_digits_are_measured_here_and_gain_on_accelerators() -> None:
    """A real profile of half a second: the CPU is measured and 1.0 times itself; a K80 is slower than a V100."""
    command = [sys.executable, str(SCRIPT), "digits", "--max-time", "0.5", "--processes", "1"]
    for name in ("K80", "V100-16GB"):
        command += ["--accelerator", name]
    done = subprocess.run(
        command,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    head, own, *others = done.stdout.splitlines()

    assert head.split()[-6:] == ["interval", "speed-up", "basis", "what", "limits", "it"]
    assert own.split()[0] == "CPU"
    assert own.split()[5:7] == ["1.0x", "measured"]
    assert [line.split()[0] for line in others] == ["K80", "V100-16GB"]
    gains = [float(line.split()[5].removesuffix("x")) for line in others]
    assert 1.0 < gains[0] < gains[1]
    assert all(" of a step is " in line for line in others)
