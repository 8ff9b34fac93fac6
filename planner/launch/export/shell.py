"""The lines that fetch the code, install what it needs, and run it until its deadline."""

from __future__ import annotations

from pathlib import PurePosixPath

from ..prepare.fetch_code import git_place
from ..prepare.packages import pinned
from ..prepare.shell import quoted, quoted_all
from .task import Handover

__all__ = ["KILL_AFTER_S", "fetching", "installing", "running"]

KILL_AFTER_S = 60  # for a last checkpoint, between SIGTERM and SIGKILL
_PACKAGES = {"tpu": "jax[tpu]", "cpu": "jax", "gpu": "jax[cuda12]"}


def fetching(handover: Handover) -> list[str]:
    """Return the lines that bring code from git, at the revision that was named, and go into its folder."""
    kind, place = handover.source
    if kind != "git":
        return []
    url, reference = git_place(place)
    lines = [f"[ -d code ] || git clone -q -- {quoted(url)} code", "cd code"]
    return [*lines, f"git checkout -q {quoted(reference)}"] if reference else lines


def installing(handover: Handover) -> list[str]:
    """Return the line that installs what the script needs; nothing when it comes in a container of its own."""
    if handover.spec.requirements:
        return [f"pip install -q -r {quoted(handover.spec.requirements)}"]
    if handover.source[0] == "image":
        return []
    packages = pinned(("keras", _PACKAGES[_kind(handover)]), handover.spec.packages)
    return [f"pip install -q {quoted_all(packages)}"]


def running(handover: Handover) -> str:
    """Return the line that runs the script: asked to end at the deadline, made to a minute later."""
    spec = handover.spec
    script = str(PurePosixPath(spec.script))
    deadline = f"timeout --signal=TERM --kill-after={KILL_AFTER_S} {handover.offer.cap_s}"
    backend = "" if handover.source[0] == "image" or spec.requirements else "KERAS_BACKEND=jax "
    return f"{backend}{deadline} {quoted_all(['python', script, *spec.arguments])}"


def _kind(handover: Handover) -> str:
    """Return what the packages must run on."""
    name = handover.offer.accelerator
    return "tpu" if name.startswith("TPU") else "cpu" if name == "CPU" else "gpu"
