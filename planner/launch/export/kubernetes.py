"""JobSet and RayJob: their pods, the nodes that may run them, and how several machines find one another."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from ...errors import NoAnswerError
from .task import KILL_AFTER_S, ExportTask, build_join_commands, require_gpu_hosts

RAY_VERSION = "2.46.0"
RAY_IMAGE = f"rayproject/ray:{RAY_VERSION}-py312"  # GPU libraries come with the packages
RUN_DRIVER = "import os; exec(os.environ['GPUPLAN_DRIVER'])"
# Node labels: kubernetes.io/docs/reference/labels-annotations-taints, and each cloud's own for spot.
_SPOT_LABELS = {
    "aws": {"eks.amazonaws.com/capacityType": "SPOT"},
    "gcp": {"cloud.google.com/gke-spot": "true"},
    "azure": {"kubernetes.azure.com/scalesetpriority": "spot"},
}
# Topologies by chips. github.com/AI-Hypercomputer/xpk, src/xpk/core/system_characteristics.py, 367c838: labels of
# GKE's nodes, and the default shape of each size. Slices of one host with 1, 4 and 8 chips of v5e and v6e:
# cloud.google.com/kubernetes-engine/docs/how-to/tpus.
_FLAT = {
    1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16",
}  # fmt: skip
_CUBES = {
    4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8", 256: "4x8x8", 512: "8x8x8",
    768: "8x8x12", 1024: "8x8x16", 2048: "8x16x16",
}  # fmt: skip
_NODES = {
    "TPU-v4": ("tpu-v4-podslice", _CUBES),
    "TPU-v5e": ("tpu-v5-lite-podslice", _FLAT),
    "TPU-v5p": ("tpu-v5p-slice", _CUBES),
    "TPU-v6e": ("tpu-v6e-slice", _FLAT),
}


def find_jobset_values(task: ExportTask) -> dict[str, Any]:
    """Return the number of pods, one for each machine or host of a TPU slice, and their template."""
    require_gpu_hosts(task, engine="Kubernetes")
    first = f"{task.name}-train-0-0.{task.name}"  # the names that JobSet and Indexed jobs give
    join = build_join_commands(first=first, hosts=str(task.hosts), index='"$JOB_COMPLETION_INDEX"')
    command = ["bash", "-c", _build_script(task, join)]
    container = {"name": "train", "image": task.container, "command": command}
    return {
        "pods": task.hosts * task.slice_hosts,
        "pod": _build_pod(task, container, restart={"restartPolicy": "Never"}),
    }


def find_rayjob_values(task: ExportTask) -> dict[str, Any]:
    """Return the templates of head and workers, and the entry point, which runs the driver on the head node."""
    if task.tpu:
        raise NoAnswerError(
            f"cannot export {task.offer.instance_type} to Ray: TPUs are not supported",
            hint="`--to kubernetes` or `--to skypilot` take TPUs",
        )
    gpus = 0 if task.offer.accelerator == "CPU" else task.devices
    join = build_join_commands(first='"$1"', hosts=str(task.hosts), index='"$2"')
    driver = files("gpuplan.launch.export").joinpath("ray_driver.py").read_text(encoding="utf-8")
    variables = {"GPUPLAN_DRIVER": driver, "GPUPLAN_SCRIPT": _build_script(task, join)}
    container = {
        "image": task.container if task.source[0] == "image" else RAY_IMAGE,
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }
    return {
        "entrypoint": f"{shlex.join(['python', '-c', RUN_DRIVER])} {task.hosts} {gpus}",
        "ray_version": RAY_VERSION,
        "head": _build_pod(task, {"name": "ray-head", **container}),
        "worker": _build_pod(task, {"name": "ray-worker", **container}),
    }


def _build_script(task: ExportTask, join: Sequence[str]) -> str:
    """Return the script of a container, with the commands that join several machines."""
    return "\n".join(["set -e", *(join if task.hosts > 1 else ()), *task.setup_commands, task.run_command])


def _build_pod(
    task: ExportTask, container: dict[str, Any], *, restart: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return the template of a pod for nodes of this kind, without permissions in the cluster.

    Pods of several machines never share a node: pods that ask for no devices would.
    """
    nodes, devices = _select_nodes(task), {}
    if task.offer.accelerator != "CPU":
        kind = "google.com/tpu" if task.tpu else "nvidia.com/gpu"
        devices = {kind: str(task.devices // task.slice_hosts)}
        container = {**container, "resources": {"limits": devices, "requests": devices}}
    taints = [*devices, *(_SPOT_LABELS["azure"] if task.spot and task.provider == "azure" else ())]
    spec = {
        **(restart or {}),
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": KILL_AFTER_S,
        "nodeSelector": nodes,
        "tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in taints],
        "containers": [container],
    }
    if task.hosts == 1:
        return {"spec": spec}
    labels = {"gpuplan-task": task.name}
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {"metadata": {"labels": labels}, "spec": {**spec, "affinity": apart}}


def _select_nodes(task: ExportTask) -> dict[str, str]:
    """Return the node selector; raise NoAnswerError for a TPU slice without known nodes of GKE."""
    offer = task.offer
    found = {} if offer.region == "any" else {"topology.kubernetes.io/region": offer.region}
    if task.tpu:
        label, topologies = _NODES.get(offer.accelerator, ("", {}))
        if task.devices not in topologies:
            raise NoAnswerError(
                f"cannot export {offer.instance_type} to Kubernetes: no known nodes of GKE with "
                f"{task.devices} chips of {offer.accelerator}",
                hint=f"choose another offer: `--rank N`; known are slices of {', '.join(_NODES)}",
            )
        found["cloud.google.com/gke-tpu-accelerator"] = label
        found["cloud.google.com/gke-tpu-topology"] = topologies[task.devices]
    else:
        found["node.kubernetes.io/instance-type"], attached = task.machine
        if attached:
            found["cloud.google.com/gke-accelerator"] = attached[0]
    return {**found, **(_SPOT_LABELS[task.provider] if task.spot else {})}
