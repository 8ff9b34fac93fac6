"""Start a task with an installed `sky` program; it is not monitored afterwards."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import GpuplanError, UsageError

__all__ = ["launch_with_sky", "require_sky"]


def require_sky() -> str:
    """Return the path of the program; raise UsageError without one."""
    found = shutil.which("sky")
    if found is None:
        raise UsageError(
            "`--via skypilot`: no program `sky` on the PATH",
            hint="`pip install skypilot`, or `gpuplan export PLAN --to skypilot` for another computer",
        )
    return found


def launch_with_sky(task: Mapping[str, Any], file: Path) -> None:
    """Start a task with SkyPilot.

    Args:
        task: Result of `export_offer`.
        file: Path of the task's file.

    Raises:
        GpuplanError: SkyPilot failed.
    """
    done = subprocess.run([require_sky(), "launch", "-y", "-c", task["name"], str(file)], check=False)
    if done.returncode:
        raise GpuplanError(
            f"`sky launch` failed with exit code {done.returncode}: a machine may exist",
            hint=f"check with `sky status --refresh`, end it with `{task['stop']}`",
        )
