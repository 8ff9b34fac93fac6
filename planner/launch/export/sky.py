"""Hand a task over to an installed `sky`: a program on the PATH, asked once, not watched any further."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import GpuplanError, UsageError

__all__ = ["launch_with_sky", "require_sky"]


def require_sky() -> str:
    """Return the program; UsageError when it is not there."""
    found = shutil.which("sky")
    if found is None:
        raise UsageError(
            "`--via skypilot`: there is no program `sky` on the PATH",
            hint="`pip install skypilot`, or `gpuplan export PLAN --to skypilot` for another computer",
        )
    return found


def launch_with_sky(task: Mapping[str, Any], file: Path) -> None:
    """Let SkyPilot start a task, and return when it says that it did.

    Args:
        task: As `export_offer` returns it.
        file: Where the task is written.

    Raises:
        GpuplanError: It says that it could not.
    """
    done = subprocess.run([require_sky(), "launch", "-y", "-c", task["name"], str(file)], check=False)
    if done.returncode:
        raise GpuplanError(
            f"`sky launch` ended with {done.returncode}: a machine may exist all the same",
            hint=f"look with `sky status --refresh`, end it with `{task['stop']}`",
        )
