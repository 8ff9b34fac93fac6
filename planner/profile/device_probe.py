"""Device that a backend computes on, asked in a process of its own.

`python -m gpuplan.profile.device_probe BACKEND` ends before anything is measured: a TPU belongs to one process at
a time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

from ..errors import GpuplanError, UsageError
from ..workload.options import ScriptOptions
from .measuring_process import build_child_environment

TIMEOUT_S = 180.0


def probe_device(backend: str, device: Literal["cpu", "gpu", "tpu"] | None) -> dict[str, Any]:
    """Return the facts of `read_backend_facts` on the device that a backend uses.

    Args:
        backend: Keras backend.
        device: Device to compute on; None for the backend's default.

    Raises:
        UsageError: The backend uses another device.
        GpuplanError: The backend does not start.
    """
    command = [sys.executable, "-P", "-m", __name__, backend]
    with tempfile.TemporaryDirectory(prefix="gpuplan-") as folder:
        environment = build_child_environment(backend, device, terms=ScriptOptions(), folder=Path(folder))
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                env=environment, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            raise GpuplanError(f"{backend} named no device within {TIMEOUT_S:g} s", hint=DOCTOR) from late
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise GpuplanError(f"{backend} does not start: {last}", hint=DOCTOR)
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if device is not None and facts["platform"] != device:
        raise UsageError(
            f"--device {device}: {backend} uses a {facts['platform']} on this machine",
            hint=f"install {backend} for that device, or leave out `--device`",
        )
    return facts


DOCTOR = "`gpuplan doctor` shows the devices of each backend"


def main(backend: str) -> None:
    """Print one line of JSON, after any output of the backend itself."""
    from .machine import read_backend_facts

    sys.stdout.write(json.dumps(read_backend_facts(backend)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
