"""A handover as a RayJob of KubeRay (https://docs.ray.io/en/latest/cluster/kubernetes), one node with a head."""

from __future__ import annotations

import shlex
from typing import Any

from ...errors import NoAnswerError
from .kubernetes import KEPT_S, PROVIDERS, pod, script
from .task import Export, Handover

__all__ = ["PROVIDERS", "rayjob"]

RAY_VERSION = "2.46.0"
RAY_IMAGE = f"rayproject/ray:{RAY_VERSION}-py312"  # GPU libraries come with the packages
HEAD = "ray-head"


def rayjob(handover: Handover) -> Export:
    """Return the RayJob: a cluster of one head on that machine, gone when the job is."""
    handover.require_source("git", "image", engine="Ray")
    if handover.offer.accelerator.startswith("TPU"):
        raise NoAnswerError(
            f"{handover.offer.instance_type} is not exported to Ray: machines with GPUs are",
            hint="`--to kubernetes` or `--to skypilot` take TPUs",
        )
    name, cap = handover.name, handover.offer.cap_s
    document: dict[str, Any] = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "gpuplan"}},
        "spec": {
            "entrypoint": shlex.join(["bash", "-c", script(handover)]),
            **_reserved(handover),
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": KEPT_S,
            "activeDeadlineSeconds": cap,
            "backoffLimit": 0,
            "submissionMode": "K8sJobMode",
            "rayClusterSpec": {"rayVersion": RAY_VERSION, "headGroupSpec": _head(handover)},
        },
    }
    return Export(
        document=document, apply="kubectl apply -f FILE", stop=f"kubectl delete rayjob {name}",
        stops=(
            f"KubeRay ends the job {cap} s after it began (`activeDeadlineSeconds`)",
            f"it removes the Ray cluster {KEPT_S} s after the job's end (`shutdownAfterJobFinishes`)",
        ),
        open=_open(),
    )  # fmt: skip


def _reserved(handover: Handover) -> dict[str, Any]:
    """Return the devices that the entry point holds."""
    return {} if handover.offer.accelerator == "CPU" else {"entrypointNumGpus": handover.devices}


def _head(handover: Handover) -> dict[str, Any]:
    """Return the head: it runs the job itself."""
    spec = pod(handover, command=None)
    container = {**spec["containers"][0], "name": HEAD}
    if handover.source[0] != "image" and handover.image is None:
        container["image"] = RAY_IMAGE
    spec = {key: value for key, value in spec.items() if key != "restartPolicy"}  # KubeRay sets its own
    return {
        "rayStartParams": {"dashboard-host": "0.0.0.0"},
        "template": {"spec": {**spec, "containers": [container]}},
    }


def _open() -> tuple[str, ...]:
    """Return what KubeRay does not do."""
    return (
        "the cluster must exist, run KubeRay and have such nodes: only its autoscaler takes an idle node away",
        "while KubeRay's operator is down, nothing keeps the deadline but `timeout` around the script",
        "a container of your own must hold Ray of the same version",
        "no checkpoints are kept: what the script does not save itself is lost with the pod",
    )
