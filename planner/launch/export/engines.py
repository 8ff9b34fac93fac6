"""Engines, and the values of the templates of SkyPilot, dstack and Colab; `kubernetes` has the others."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import GpuplanError, NoAnswerError, UsageError
from ...offers.clouds import CLOUDS, HYPERSCALERS
from ..clouds.google.options import runtime_version
from ..select_offer import Renter
from . import kubernetes
from .names import describe_shared_name, find_engine_name, find_skypilot_name
from .task import BY_ACCELERATOR, ExportTask, build_join_commands, require_gpu_hosts

RENTING = tuple(cloud.name for cloud in CLOUDS if cloud.is_rented)
PRICE_ROOM = 1.1  # dstack compares with its own prices, read on another day
# Notebook metadata of Colab's runtimes.
_RUNTIMES = {
    "T4": ("GPU", "T4"), "L4": ("GPU", "L4"), "A100-40GB": ("GPU", "A100"), "A100-80GB": ("GPU", "A100"),
    "H100-SXM": ("GPU", "H100"), "TPU-v5e": ("TPU", "V5E1"), "TPU-v6e": ("TPU", "V6E1"), "CPU": ("", ""),
}  # fmt: skip
_GITHUB = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?(?:@([\w./-]+))?")

Values = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine(Renter):
    """An engine: its template, what that needs besides the task, and the kinds of source that it fetches."""

    template: str
    find_values: Callable[[ExportTask], Values]
    providers: tuple[str, ...] = RENTING
    sources: tuple[str, ...] = ("folder", "git", "image")


def find_skypilot_values(task: ExportTask) -> Values:
    """Return SkyPilot's names of the machine, and the commands of its setup and run."""
    require_gpu_hosts(task, engine="SkyPilot")
    offer, provider = task.offer, task.provider
    # docs.skypilot.co/en/latest/running-jobs/distributed-jobs.html
    join = build_join_commands(
        first='"$(echo "$SKYPILOT_NODE_IPS" | head -n1)"',
        hosts='"$SKYPILOT_NUM_NODES"',
        index='"$SKYPILOT_NODE_RANK"',
    )
    enter = ["cd code"] if task.source[0] == "git" else []
    by_name, typed = provider in BY_ACCELERATOR or ":" in offer.instance_type, offer.instance_type
    names: Values = {"instance_type": None, "accelerators": None, "runtime": None}
    if task.tpu:
        names |= {"accelerators": f"{typed}:1", "runtime": runtime_version(typed.removeprefix("tpu-"))}
    elif not by_name:
        names["instance_type"] = task.machine[0]
    if not task.tpu and (by_name or (provider == "gcp" and offer.accelerator != "CPU")):
        name = find_skypilot_name(provider, typed, offer.accelerator)
        names["accelerators"] = f"{name}:{task.devices}"
    return {
        "infra": provider if offer.region == "any" else f"{provider}/{offer.region}",
        **names,
        "shared_names": describe_shared_name(offer.accelerator, "vast") if provider == "vast" else (),
        "setup": task.setup_commands,
        "run": [*(join if task.hosts > 1 else ()), *enter, task.run_command],
    }


def find_dstack_values(task: ExportTask) -> Values:
    """Return dstack's names of the machine, and its maximum price, against which dstack holds its own prices."""
    offer = task.offer
    if task.slice_hosts > 1:
        raise NoAnswerError(
            f"cannot export {offer.instance_type} to dstack: it has {task.slice_hosts} hosts",
            hint="`--to skypilot` and `--to kubernetes` take slices of several hosts",
        )
    by_name = task.provider in BY_ACCELERATOR
    gpu = None
    if task.tpu:
        gpu = f"{offer.instance_type.removeprefix('tpu-')}:1"
    elif offer.accelerator != "CPU":
        gpu = f"{find_engine_name(offer.accelerator, 'dstack')}:{task.devices}"
    return {
        "gpu": gpu,
        "instance_type": None if by_name or ":" in offer.instance_type or task.tpu else task.machine[0],
        "shared_names": describe_shared_name(offer.accelerator, "dstack") if by_name else (),
        "max_usd_per_hour": float(offer.usd_per_hour) * PRICE_ROOM,
    }


def find_colab_values(task: ExportTask) -> Values:
    """Return Colab's names of the runtime, the link of the notebook, and the text of its first cells."""
    offer = task.offer
    if offer.accelerator not in _RUNTIMES:
        raise NoAnswerError(
            f"no known name of {offer.accelerator} in Colab", hint="choose another offer: `--rank N`"
        )
    accelerator, gpu_type = _RUNTIMES[offer.accelerator]
    link = build_colab_link(task.source[1], f"{task.name}.ipynb")
    badge = f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({link})\n\n"
    about = (
        f"`{task.spec.script}` on {offer.accelerator}, ${offer.usd_per_hour} an hour, "
        f"{offer.cap_s} s at most. Runtime > Run all."
    )
    return {
        "accelerator": accelerator,
        "gpu_type": gpu_type,
        "link": link,
        "about": f"{badge}{about}" if link else about,
    }


def build_colab_link(place: str, file: str) -> str:
    """Return the Colab link of a notebook in a GitHub repository; empty for another address.

    Example:
        >>> build_colab_link("https://github.com/me/repo.git@v1", "run.ipynb")
        'https://colab.research.google.com/github/me/repo/blob/v1/run.ipynb'
        >>> build_colab_link("https://example.org/me/repo", "run.ipynb")
        ''
    """
    found = _GITHUB.fullmatch(place)
    if found is None:
        return ""
    owner, name, reference = found.groups()
    return f"https://colab.research.google.com/github/{owner}/{name}/blob/{reference or 'main'}/{file}"


_CLUSTER: Values = {"providers": HYPERSCALERS, "sources": ("git", "image"), "joins_hosts": True}
ENGINES = {
    "skypilot": Engine(title="SkyPilot", template="skypilot", find_values=find_skypilot_values, joins_hosts=True),
    "dstack": Engine(title="dstack", template="dstack", find_values=find_dstack_values),
    "kubernetes": Engine(
        title="Kubernetes", template="jobset", find_values=kubernetes.find_jobset_values, **_CLUSTER
    ),
    "ray": Engine(title="Ray", template="rayjob", find_values=kubernetes.find_rayjob_values, **_CLUSTER),
    "colab": Engine(
        title="Colab", template="colab", find_values=find_colab_values, providers=("colab",), sources=("git",)
    ),
}


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
    """Start a task of `export_offer` with SkyPilot; GpuplanError if that fails."""
    done = subprocess.run([require_sky(), "launch", "-y", "-c", task["name"], str(file)], check=False)
    if done.returncode:
        raise GpuplanError(
            f"`sky launch` failed with exit code {done.returncode}: a machine may exist",
            hint=f"check with `sky status --refresh`, end it with `{task['stop']}`",
        )
