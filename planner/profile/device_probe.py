"""Device that a backend computes on, asked in a process of its own.

`python -m gpuplan.profile.device_probe BACKEND` ends before anything is measured: a TPU belongs to one process at
a time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import GpuplanError, UsageError
from ..workload.options import ScriptOptions
from .measuring_process import build_child_environment
from .request import Device

TIMEOUT_S = 180.0
DOCTOR = "`gpuplan doctor` shows the devices of each backend"


def probe_device(backend: str, device: Device | None) -> dict[str, Any]:
    """Return the facts of `read_backend_facts` on the device that a backend uses.

    Args:
        backend: Keras backend.
        device: Device to compute on; None for the backend's default.

    Raises:
        UsageError: The backend uses another device.
        GpuplanError: The backend does not start.
    """
    try:
        done = run_probe(backend, device, timeout_s=TIMEOUT_S)
    except subprocess.TimeoutExpired as late:
        raise GpuplanError(f"{backend} named no device within {TIMEOUT_S:g} s", hint=DOCTOR) from late
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise GpuplanError(f"{backend} does not start: {last}", hint=DOCTOR)
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    require_device(facts, device)
    return facts


def run_probe(backend: str, device: Device | None, *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run this module for a backend; the last line of its output is JSON. TimeoutExpired at the time limit."""
    with tempfile.TemporaryDirectory(prefix="gpuplan-") as folder:
        return subprocess.run(
            [sys.executable, "-P", "-m", __name__, backend],
            capture_output=True, text=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL,
            env=build_child_environment(backend, device, terms=ScriptOptions(), folder=Path(folder)),
        )  # fmt: skip


def require_device(facts: Mapping[str, Any], wanted: Device | None) -> None:
    """Raise UsageError unless a backend with these facts uses the wanted device."""
    if wanted is not None and facts["platform"] != wanted:
        backend = facts["backend"]
        raise UsageError(
            f"--device {wanted}: {backend} uses a {facts['platform']} on this machine",
            hint=f"install {backend} for that device, or leave out `--device`",
        )


def main(backend: str) -> None:
    """Print one line of JSON, after any output of the backend itself."""
    from .machine import read_backend_facts

    sys.stdout.write(json.dumps(read_backend_facts(backend)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
