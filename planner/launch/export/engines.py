"""Engines, and the values of the templates of each."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...errors import GpuplanError, NoAnswerError, UsageError
from ...offers.aliases import find_kinetic_name, read_kinetic_table
from ...offers.clouds import CLOUDS, HYPERSCALERS, find_tier
from ...plan.money import compute_rental_usd
from ...units import Interval, format_duration_range, format_usd
from ..clouds.google.options import runtime_version
from ..select_offer import Renter
from .names import describe_shared_name, find_engine_name, find_skypilot_name, list_dstack_regions
from .task import BY_ACCELERATOR, CHIPS_PER_HOST, KILL_AFTER_S, ExportTask, require_gpu_hosts

RAY_VERSION = "2.46.0"
RAY_IMAGE = f"rayproject/ray:{RAY_VERSION}-py312"  # GPU libraries come with the packages
RUN_DRIVER = "import os; exec(os.environ['GPUPLAN_DRIVER'])"
# Node labels: kubernetes.io/docs/reference/labels-annotations-taints, and each cloud's own for spot.
_SPOT_LABELS = {
    "aws": {"eks.amazonaws.com/capacityType": "SPOT"},
    "gcp": {"cloud.google.com/gke-spot": "true"},
    "azure": {"kubernetes.azure.com/scalesetpriority": "spot"},
}


def find_kubernetes_values(task: ExportTask) -> dict[str, Any]:
    """Return the number of pods, one for each machine or host of a TPU slice, and what they need."""
    require_gpu_hosts(task, engine="Kubernetes")
    return {"pods": task.hosts * task.slice_hosts, **_find_pod_values(task)}


def find_ray_values(task: ExportTask) -> dict[str, Any]:
    """Return what head and workers need, and the entry point, which runs the driver on the head node."""
    if task.tpu:
        raise NoAnswerError(
            f"cannot export {task.offer.instance_type} to Ray: TPUs are not supported",
            hint="`--to kubernetes` or `--to skypilot` take TPUs",
        )
    gpus = 0 if task.offer.accelerator == "CPU" else task.devices
    driver = files("gpuplan.launch.export").joinpath("ray_driver.py").read_text(encoding="utf-8")
    return {
        "entrypoint": f"{shlex.join(['python', '-c', RUN_DRIVER])} {task.hosts} {gpus}",
        "ray_version": RAY_VERSION,
        "image": task.container if task.source[0] == "image" else RAY_IMAGE,
        "driver": driver,
        **_find_pod_values(task),
    }


def _find_pod_values(task: ExportTask) -> dict[str, Any]:
    """Return the nodes of a pod, its devices, and the taints that it tolerates."""
    kind = "google.com/tpu" if task.tpu else "nvidia.com/gpu"
    devices = {} if task.offer.accelerator == "CPU" else {kind: str(task.devices // task.slice_hosts)}
    taints = [*devices, *(_SPOT_LABELS["azure"] if task.spot and task.provider == "azure" else ())]
    return {"nodes": _select_nodes(task), "devices": devices, "taints": taints, "kill_after_s": KILL_AFTER_S}


def _select_nodes(task: ExportTask) -> dict[str, str]:
    """Return the node selector; raise NoAnswerError for a TPU slice without known nodes of GKE."""
    offer = task.offer
    found = {} if offer.region == "any" else {"topology.kubernetes.io/region": offer.region}
    if task.tpu:
        nodes = tomllib.loads(files(__package__).joinpath("gke_nodes.toml").read_text(encoding="utf-8"))
        kind = nodes.get(offer.accelerator, {"topologies": {}})
        topology = kind["topologies"].get(str(task.devices))
        if topology is None:
            raise NoAnswerError(
                f"cannot export {offer.instance_type} to Kubernetes: no known nodes of GKE with "
                f"{task.devices} chips of {offer.accelerator}",
                hint=f"choose another offer: `--rank N`; known are slices of {', '.join(nodes)}",
            )
        found["cloud.google.com/gke-tpu-accelerator"] = kind["label"]
        found["cloud.google.com/gke-tpu-topology"] = topology
    else:
        found["node.kubernetes.io/instance-type"], attached = task.machine
        if attached:
            found["cloud.google.com/gke-accelerator"] = attached[0]
    return {**found, **(_SPOT_LABELS[task.provider] if task.spot else {})}


RENTING = tuple(cloud.name for cloud in CLOUDS if cloud.is_rented)
PRICE_ROOM = 1.1  # engines compare with their own prices, read on another day
_GITHUB = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?(?:@([\w./-]+))?")

Values = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine(Renter):
    """An engine: what its template needs besides the task, and the kinds of source that it fetches."""

    find_values: Callable[[ExportTask], Values]
    providers: tuple[str, ...] = RENTING
    sources: tuple[str, ...] = ("folder", "git", "image")


def find_skypilot_values(task: ExportTask) -> Values:
    """Return SkyPilot's names of the machine."""
    require_gpu_hosts(task, engine="SkyPilot")
    offer, provider = task.offer, task.provider
    by_name, typed = provider in BY_ACCELERATOR or ":" in offer.instance_type, offer.instance_type
    names: Values = {"instance_type": None, "accelerators": None, "runtime": None}
    if task.tpu:
        names |= {"accelerators": f"{typed}:1", "runtime": runtime_version(offer.accelerator)}
    elif not by_name:
        names["instance_type"] = task.machine[0]
    if not task.tpu and (by_name or (provider == "gcp" and offer.accelerator != "CPU")):
        name = find_skypilot_name(provider, typed, offer.accelerator)
        names["accelerators"] = f"{name}:{task.devices}"
        if tier := find_tier(typed) if provider == "runpod" else "":  # sky/provision/runpod/utils.py, `cloud_type`
            names |= {"instance_type": f"{task.devices}x_{name}_{tier.upper()}", "accelerators": None}
    return {
        "infra": provider if offer.region == "any" else f"{provider}/{offer.region}",
        **names,
        "max_usd_per_hour": round(float(offer.usd_per_hour) * PRICE_ROOM, 4) if by_name else None,
        "shared_names": describe_shared_name(offer.accelerator, "vast") if provider == "vast" else (),
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
        "regions": list_dstack_regions(offer.region, find_tier(offer.instance_type)),
        "needs_community": find_tier(offer.instance_type) == "community",
    }


class KineticEngine(Engine):
    """Kinetic, which starts machines of some sizes only."""

    def why_not(self, offer: Mapping[str, Any]) -> str:
        """Return the reason why an offer cannot be exported; empty if it can."""
        is_started = find_kinetic_name(**{key: offer[key] for key in ("accelerator", "devices", "instance_type")})
        return Engine.why_not(self, offer) or ("" if is_started else "is no machine that kinetic starts")


def find_kinetic_values(task: ExportTask) -> Values:
    """Return kinetic's name of the machine, time and cost of the run there, and what the script is."""
    offer, planned, known = task.offer, "", read_kinetic_table()[task.offer.accelerator]
    if offer.run_s is not None:
        usd = compute_rental_usd(duration_s=offer.run_s.mid, usd_per_hour=offer.usd_per_hour)
        time_s = Interval(**offer.run_s.model_dump())
        planned = f"a training of {format_duration_range(time_s)}, ${format_usd(float(usd))}"
    return {
        "accelerator": find_kinetic_name(**offer.model_dump(include={"accelerator", "devices", "instance_type"})),
        "planned": planned,
        "is_decorated": "kinetic.run(" in _read_files(task)[task.spec.script],
        "has_one_host": not task.tpu or task.devices <= known.get("chips_per_host", CHIPS_PER_HOST),
    }


def find_colab_values(task: ExportTask) -> Values:
    """Return Colab's names of the runtime, and the link of the notebook."""
    accelerator, _, gpu_type = find_engine_name(task.offer.accelerator, "colab").partition(":")
    link = build_colab_link(task.source[1], f"{task.name}.ipynb")
    return {"accelerator": accelerator, "gpu_type": gpu_type, "files": _read_files(task), "link": link}


def _read_files(task: ExportTask) -> dict[str, str]:
    """Return the script and the file of its packages by name, where the code lies in a folder."""
    kind, place = task.source
    names = filter(None, (task.spec.script, task.spec.requirements)) if kind == "folder" else ()
    try:
        return {name: (Path(place) / name).read_text(encoding="utf-8") for name in names}
    except (OSError, ValueError) as error:
        raise UsageError(f"{place}: {error}", hint="run the export in the folder of the script") from error


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
    "kinetic": KineticEngine(
        title="kinetic", find_values=find_kinetic_values, providers=("gcp",), sources=("folder",)
    ),
    "skypilot": Engine(
        title="SkyPilot", find_values=find_skypilot_values, joins_hosts=True, left_out=("community",)
    ),
    "dstack": Engine(title="dstack", find_values=find_dstack_values),
    "kubernetes": Engine(title="Kubernetes", find_values=find_kubernetes_values, **_CLUSTER),
    "ray": Engine(title="Ray", find_values=find_ray_values, **_CLUSTER),
    "colab": Engine(title="Colab", find_values=find_colab_values, providers=("colab",), sources=("folder", "git")),
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
