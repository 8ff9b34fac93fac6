"""Export to a RayJob of KubeRay (https://docs.ray.io/en/latest/cluster/kubernetes) with one head node."""

from __future__ import annotations

import shlex
from typing import Any

from ...errors import NoAnswerError
from .kubernetes import KEPT_S, PROVIDERS, build_pod, build_script
from .task import EngineDocument, ExportTask

__all__ = ["PROVIDERS", "build_rayjob"]

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
            f"KubeRay ends the job {cap} s after it began (`activeDeadlineSeconds`)",
            f"it removes the Ray cluster {KEPT_S} s after the job's end (`shutdownAfterJobFinishes`)",
        ),
        open=_open(),
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


def _open() -> tuple[str, ...]:
    """Return the limits of KubeRay."""
    return (
        "the cluster must run KubeRay and have such nodes: only its autoscaler removes an idle node",
        "while KubeRay's operator is down, only `timeout` around the script enforces the deadline",
        "a custom container must contain the same version of Ray",
        "no checkpoints: files that the script does not save elsewhere are lost with the pod",
    )
