"""Shell commands that fetch the code, install packages, and run the script until its deadline."""

from __future__ import annotations

from pathlib import PurePosixPath

from ..prepare.shell import pin_versions, quote, quote_all, split_git_source
from .task import ExportTask

__all__ = ["KILL_AFTER_S", "build_fetch_commands", "build_install_commands", "build_run_command"]

KILL_AFTER_S = 60  # between SIGTERM and SIGKILL, for a last checkpoint
_PACKAGES = {"tpu": "jax[tpu]", "cpu": "jax", "gpu": "jax[cuda12]"}


def build_fetch_commands(task: ExportTask) -> list[str]:
    """Return the commands that clone a git source at its revision and enter its folder."""
    kind, place = task.source
    if kind != "git":
        return []
    url, reference = split_git_source(place)
    lines = [f"[ -d code ] || git clone -q -- {quote(url)} code", "cd code"]
    return [*lines, f"git checkout -q {quote(reference)}"] if reference else lines


def build_install_commands(task: ExportTask) -> list[str]:
    """Return the command that installs packages; none for a container image."""
    if task.spec.requirements:
        return [f"pip install -q -r {quote(task.spec.requirements)}"]
    if task.source[0] == "image":
        return []
    packages = pin_versions(("keras", _PACKAGES[_kind(task)]), task.spec.packages)
    return [f"pip install -q {quote_all(packages)}"]


def build_run_command(task: ExportTask) -> str:
    """Return the command that runs the script: SIGTERM at the deadline, SIGKILL a minute later."""
    spec = task.spec
    script = str(PurePosixPath(spec.script))
    deadline = f"timeout --signal=TERM --kill-after={KILL_AFTER_S} {task.offer.cap_s}"
    backend = "" if task.source[0] == "image" or spec.requirements else "KERAS_BACKEND=jax "
    return f"{backend}{deadline} {quote_all(['python', script, *spec.arguments])}"


def _kind(task: ExportTask) -> str:
    """Return the kind of device: `tpu`, `cpu` or `gpu`."""
    name = task.offer.accelerator
    return "tpu" if name.startswith("TPU") else "cpu" if name == "CPU" else "gpu"
