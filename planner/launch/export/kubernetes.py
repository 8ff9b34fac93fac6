"""Export to Kubernetes: a JobSet, or a RayJob of KubeRay with one head node.

https://jobset.sigs.k8s.io and https://docs.ray.io/en/latest/cluster/kubernetes
"""

from __future__ import annotations

import shlex
from typing import Any

from ...errors import NoAnswerError
from ..clouds.google.zones import machine_type
from .joined_hosts import JOINING_LIMIT, build_join_commands, require_gpu_hosts
from .task import (
    KILL_AFTER_S,
    EngineDocument,
    ExportTask,
    build_fetch_commands,
    build_install_commands,
    build_run_command,
)

__all__ = ["PROVIDERS", "build_jobset", "build_pod", "build_rayjob", "build_script"]

PROVIDERS = ("aws", "gcp", "azure")
KEPT_S = 600  # retention of a finished job and its log
SPOT_RETRIES = 3
POD = "train"
# Node labels: kubernetes.io/docs/reference/labels-annotations-taints, and each cloud's own for spot.
_SPOT_LABELS = {
    "aws": {"eks.amazonaws.com/capacityType": "SPOT"},
    "gcp": {"cloud.google.com/gke-spot": "true"},
    "azure": {"kubernetes.azure.com/scalesetpriority": "spot"},
}
# cloud.google.com/kubernetes-engine/docs/how-to/tpus: slices of one host
_TPU_KINDS = {"TPU-v5e": "tpu-v5-lite-podslice", "TPU-v6e": "tpu-v6e-slice"}
_TPU_TOPOLOGIES = {1: "1x1", 4: "2x2", 8: "2x4"}


def build_jobset(task: ExportTask) -> EngineDocument:
    """Return the JobSet: one pod on each node, with a deadline that Kubernetes enforces."""
    task.require_source("git", "image", engine="Kubernetes")
    require_gpu_hosts(task, engine="Kubernetes")
    name, cap = task.name, task.offer.cap_s
    is_retried = task.offer.purchase == "spot" and task.hosts == 1
    job = {
        "parallelism": task.hosts,
        "completions": task.hosts,
        **({"completionMode": "Indexed"} if task.hosts > 1 else {}),
        "backoffLimit": SPOT_RETRIES if is_retried else 0,
        "activeDeadlineSeconds": cap,
        "template": {"spec": build_pod(task, command=["bash", "-c", build_script(task)])},
    }
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "gpuplan"}},
        "spec": {
            "ttlSecondsAfterFinished": KEPT_S,
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [{"name": POD, "replicas": 1, "template": {"spec": job}}],
        },
    }
    return EngineDocument(
        document=document,
        apply="kubectl apply -f FILE",
        stop=f"kubectl delete jobset {name}",
        stops=(
            f"Kubernetes ends the job {cap} s after its start, all retries included (`activeDeadlineSeconds`)",
            f"its objects are removed {KEPT_S} s after its end (`ttlSecondsAfterFinished`)",
        ),
        open=(*_list_kubernetes_limits(), *(_list_joining_limits(task) if task.hosts > 1 else ())),
    )


def build_script(task: ExportTask) -> str:
    """Return the script of the container."""
    return "\n".join(
        [
            "set -e",
            *(_build_join_commands(task) if task.hosts > 1 else ()),
            *build_fetch_commands(task),
            *build_install_commands(task),
            build_run_command(task),
        ]
    )


def _build_join_commands(task: ExportTask) -> list[str]:
    """Return the commands that join the pods, by the names that JobSet and Indexed jobs give them."""
    return build_join_commands(
        first=f"{task.name}-{POD}-0-0.{task.name}", hosts=str(task.hosts), index='"$JOB_COMPLETION_INDEX"'
    )


def _list_joining_limits(task: ExportTask) -> tuple[str, ...]:
    spot = "a pod that fails, or whose spot machine is preempted, ends the run on all machines"
    return (JOINING_LIMIT, spot) if task.offer.purchase == "spot" else (JOINING_LIMIT,)


def build_pod(task: ExportTask, *, command: list[str] | None) -> dict[str, Any]:
    """Return a pod for nodes of this kind, without permissions in the cluster.

    Args:
        task: The task.
        command: Command of the container; None: the image's own.
    """
    devices = _devices(task)
    container: dict[str, Any] = {"name": "train", "image": task.container}
    if command is not None:
        container["command"] = command
    if devices:
        container["resources"] = {"limits": devices, "requests": dict(devices)}
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": KILL_AFTER_S,
        "nodeSelector": _node(task),
        "tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in _taints(task)],
        "containers": [container],
    }


def _devices(task: ExportTask) -> dict[str, str]:
    """Return the device requests of the container."""
    name = task.offer.accelerator
    if name == "CPU":
        return {}
    if name.startswith("TPU"):
        return {"google.com/tpu": str(task.devices)}
    return {"nvidia.com/gpu": str(task.devices)}


def _node(task: ExportTask) -> dict[str, str]:
    """Return the node selector."""
    offer = task.offer
    found = {} if offer.region == "any" else {"topology.kubernetes.io/region": offer.region}
    if offer.accelerator.startswith("TPU"):
        found |= _tpu_node(task)
    elif task.provider == "gcp":
        base, attached = machine_type(offer.instance_type)
        found["node.kubernetes.io/instance-type"] = base
        if attached:
            found["cloud.google.com/gke-accelerator"] = attached[0]
    else:
        found["node.kubernetes.io/instance-type"] = offer.instance_type
    return {**found, **(_SPOT_LABELS[task.provider] if offer.purchase == "spot" else {})}


def _tpu_node(task: ExportTask) -> dict[str, str]:
    """Return the node selector of a single-host TPU slice."""
    offer = task.offer
    if offer.accelerator not in _TPU_KINDS or task.devices not in _TPU_TOPOLOGIES:
        raise NoAnswerError(
            f"cannot export {offer.instance_type} to Kubernetes: only TPU v5e and v6e with 1, 4 or 8 chips",
            hint="choose another offer: `--rank N`",
        )
    return {
        "cloud.google.com/gke-tpu-accelerator": _TPU_KINDS[offer.accelerator],
        "cloud.google.com/gke-tpu-topology": _TPU_TOPOLOGIES[task.devices],
    }


def _taints(task: ExportTask) -> list[str]:
    """Return the taints of the nodes."""
    spot = task.offer.purchase == "spot" and task.provider == "azure"
    return [*_devices(task), *(["kubernetes.azure.com/scalesetpriority"] if spot else [])]


def _list_kubernetes_limits() -> tuple[str, ...]:
    """Return the limits of Kubernetes."""
    return (
        "the cluster must have such nodes: nodes are billed, not jobs, and only the cluster's autoscaler removes "
        "an idle node",
        "the deadline counts from the start of the job, including the wait for a node",
        "no checkpoints: files that the script does not save elsewhere are lost with the pod",
    )


RAY_VERSION = "2.46.0"
RAY_IMAGE = f"rayproject/ray:{RAY_VERSION}-py312"  # GPU libraries come with the packages
HEAD = "ray-head"


def build_rayjob(task: ExportTask) -> EngineDocument:
    """Return the RayJob: a cluster of one head node, deleted after the job."""
    task.require_source("git", "image", engine="Ray")
    if task.offer.accelerator.startswith("TPU"):
        raise NoAnswerError(
            f"cannot export {task.offer.instance_type} to Ray: TPUs are not supported",
            hint="`--to kubernetes` or `--to skypilot` take TPUs",
        )
    name, cap = task.name, task.offer.cap_s
    document: dict[str, Any] = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "gpuplan"}},
        "spec": {
            "entrypoint": shlex.join(["bash", "-c", build_script(task)]),
            **_reserved(task),
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": KEPT_S,
            "activeDeadlineSeconds": cap,
            "backoffLimit": 0,
            "submissionMode": "K8sJobMode",
            "rayClusterSpec": {"rayVersion": RAY_VERSION, "headGroupSpec": _head(task)},
        },
    }
    return EngineDocument(
        document=document,
        apply="kubectl apply -f FILE",
        stop=f"kubectl delete rayjob {name}",
        stops=(
            f"KubeRay ends the job {cap} s after its start (`activeDeadlineSeconds`)",
            f"it removes the Ray cluster {KEPT_S} s after the job's end (`shutdownAfterJobFinishes`)",
        ),
        open=_list_ray_limits(),
    )


def _reserved(task: ExportTask) -> dict[str, Any]:
    """Return the GPUs reserved for the entry point."""
    return {} if task.offer.accelerator == "CPU" else {"entrypointNumGpus": task.devices}


def _head(task: ExportTask) -> dict[str, Any]:
    """Return the head node, which runs the job."""
    spec = build_pod(task, command=None)
    container = {**spec["containers"][0], "name": HEAD}
    if task.source[0] != "image" and task.image is None:
        container["image"] = RAY_IMAGE
    spec = {key: value for key, value in spec.items() if key != "restartPolicy"}  # KubeRay sets its own
    return {
        "rayStartParams": {"dashboard-host": "0.0.0.0"},
        "template": {"spec": {**spec, "containers": [container]}},
    }


def _list_ray_limits() -> tuple[str, ...]:
    """Return the limits of KubeRay."""
    return (
        "the cluster must run KubeRay and have such nodes: only its autoscaler removes an idle node",
        "while KubeRay's operator is down, only `timeout` around the script enforces the deadline",
        "a custom container must contain the same version of Ray",
        "no checkpoints: files that the script does not save elsewhere are lost with the pod",
    )
