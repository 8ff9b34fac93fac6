"""What this machine computes on: as the drivers and the catalog see it, and as each backend of Keras does.

A backend is asked in a process of its own: it takes seconds to load, may take memory of a GPU, or crash.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ..plan.profile_worker import child_environment

__all__ = ["BACKENDS", "Backend", "ask_backends", "installed_backends"]

BACKENDS = ("jax", "tensorflow", "torch")
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What a backend computes on.

    Args:
        name: `jax`, `tensorflow` or `torch`.
        facts: Platform, device, number and memory; None when it did not answer.
        error: Why not, in one line.
    """

    name: str
    facts: Mapping[str, Any] | None
    error: str | None = None


def installed_backends() -> tuple[str, ...]:
    """Return the backends that can be found; none is loaded."""
    return tuple(name for name in BACKENDS if find_spec(name) is not None)


def ask_backends(names: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> list[Backend]:
    """Return what each of some backends computes on; they are asked at the same time."""
    if not names:
        return []
    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        return list(pool.map(lambda name: _ask(name, timeout_s), names))


def _ask(name: str, timeout_s: float) -> Backend:
    """Ask one backend in a child process."""
    command = [sys.executable, "-P", "-m", "gpuplan.doctor.probe", name]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False,
            env=child_environment(name, None), stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Backend(name=name, facts=None, error=f"no answer within {timeout_s:g} s")
    if done.returncode == 0:
        return Backend(name=name, facts=json.loads(done.stdout.splitlines()[-1]))
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return Backend(name=name, facts=None, error=lines[-1] if lines else f"ended with code {done.returncode}")
