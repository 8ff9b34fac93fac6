"""Bundle and configuration of the supervisor that runs on the rented machine."""

from __future__ import annotations

import ast
import base64
import functools
import io
import tarfile
from importlib.resources import files
from typing import Any

from ..core.request import LaunchCandidate, LaunchRequest

__all__ = ["HOME", "UNPACKING", "agent_archive", "build_job", "in_container"]

HOME = "/opt/gpuplan"
UNPACKING = (
    "python3 -c 'import base64, io, sys, tarfile;"
    " tarfile.open(fileobj=io.BytesIO(base64.b85decode(sys.stdin.read().strip()))).extractall()'"
)


def in_container(request: LaunchRequest) -> bool:
    """Whether the code is in a container image."""
    return request.spec.source.startswith("image:")


@functools.cache
def agent_archive() -> str:
    """Return the supervisor's files without docstrings and comments, compressed and base85-encoded. Deterministic.

    The result is cached: a plan has one script for every zone of every candidate. `UNPACKING` extracts it.
    """
    packed = io.BytesIO()
    folder = files("gpuplan.launch.agent")
    with tarfile.open(fileobj=packed, mode="w:bz2") as archive:
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py") and file.name != "watchdog.py":
                data = _without_texts(file.read_text(encoding="utf-8")).encode()
                member = tarfile.TarInfo(f"gpuplan_agent/{file.name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return base64.b85encode(packed.getvalue()).decode()


def _without_texts(source: str) -> str:
    """Return a module's code without docstrings, comments and argument types: user data is limited.

    Example:
        >>> _without_texts('def f(x: int) -> int:\\n    "A text."\\n    return x # x')
        'def f(x):\\n    return x'
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def build_job(
    request: LaunchRequest,
    candidate: LaunchCandidate,
    number: int,
    *,
    work: str,
    folder: str | None,
    watchdog_s: float | None = None,
    notices: str | None = None,
) -> dict[str, Any]:
    """Return the configuration of the supervisor.

    Args:
        request, candidate, number: The attempt.
        work: Folder of checkpoints, log and outcome.
        folder: Folder in which the script runs; None: the current one.
        watchdog_s: Age at which a second process ends the attempt; None: there is none [s].
        notices: Provider whose preemption notices are polled on a spot machine; None: no polling.
    """
    spec = request.spec
    return {
        "attempt": number,
        "cap_s": candidate.cap_s,
        "watchdog_s": watchdog_s,
        "work": work,
        "cwd": folder,
        "script": spec.script,
        "arguments": list(spec.arguments),
        "checkpoint_every_s": spec.checkpoint_every_s,
        "restarts": spec.restarts,
        "stop_loss": spec.stop_loss.model_dump(mode="json"),
        "step_s": candidate.step_s.model_dump(mode="json") if candidate.step_s else None,
        "notices": notices if candidate.purchase == "spot" else None,
        "at_end": [],
    }
