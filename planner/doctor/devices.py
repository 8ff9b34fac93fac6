"""Compute devices of this machine, as reported by drivers, catalog and each Keras backend.

Each backend is loaded in a child process: loading takes seconds, may allocate GPU memory, or crash.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..profile.measuring_process import build_child_environment
from ..workload.options import ScriptOptions

__all__ = ["BACKENDS", "BackendReport", "find_installed_backends", "probe_backends"]

BACKENDS = ("jax", "tensorflow", "torch")
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendReport:
    """Devices of a backend.

    Args:
        name: `jax`, `tensorflow` or `torch`.
        facts: Platform, device, number and memory; None if it failed.
        error: Reason for the failure, in one line.
    """

    name: str
    facts: Mapping[str, Any] | None
    error: str | None = None


def find_installed_backends() -> tuple[str, ...]:
    """Return the installed backends without loading them."""
    return tuple(name for name in BACKENDS if find_spec(name) is not None)


def probe_backends(names: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> list[BackendReport]:
    """Probe the devices of backends in parallel."""
    if not names:
        return []
    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        return list(pool.map(lambda name: _probe(name, timeout_s), names))


def _probe(name: str, timeout_s: float) -> BackendReport:
    """Probe one backend in a child process."""
    command = [sys.executable, "-P", "-m", "gpuplan.doctor.probe", name]
    try:
        with tempfile.TemporaryDirectory(prefix="gpuplan-") as folder:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
                env=build_child_environment(name, None, terms=ScriptOptions(), folder=Path(folder)),
                stdin=subprocess.DEVNULL,
            )
    except subprocess.TimeoutExpired:
        return BackendReport(name=name, facts=None, error=f"no answer within {timeout_s:g} s")
    if done.returncode == 0:
        return BackendReport(name=name, facts=json.loads(done.stdout.splitlines()[-1]))
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return BackendReport(
        name=name, facts=None, error=lines[-1] if lines else f"ended with code {done.returncode}"
    )
