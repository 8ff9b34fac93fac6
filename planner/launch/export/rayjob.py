"""Export to a RayJob of KubeRay: https://docs.ray.io/en/latest/cluster/kubernetes.

The head node is the first machine, so that a plan of N machines takes N nodes; a driver (`ray_driver`) starts the
script on each. Driver and script travel in the environment of the containers: an entry point passes through two
shells on its way (`BuildJobSubmitCommand` of KubeRay, controllers/ray/common/job.go, and `list2cmdline` of Ray,
dashboard/modules/job/cli.py), of which the second expands `$`.
"""

from __future__ import annotations

import shlex
from importlib.resources import files
from typing import Any

from ...errors import NoAnswerError
from .joined_hosts import build_join_commands, describe_joining, describe_preemption
from .kubernetes import KEPT_S, LABELS, build_container_script
from .pods import build_pod_template
from .task import EngineDocument, ExportTask

RAY_VERSION = "2.46.0"
RAY_IMAGE = f"rayproject/ray:{RAY_VERSION}-py312"  # GPU libraries come with the packages
RUN_DRIVER = "import os; exec(os.environ['GPUPLAN_DRIVER'])"


def build_rayjob(task: ExportTask) -> EngineDocument:
    """Return the RayJob: a cluster of a head node and further machines, deleted after the job."""
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
        "metadata": {"name": name, "labels": dict(LABELS)},
        "spec": {
            "entrypoint": _build_entrypoint(task),
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": KEPT_S,
            "activeDeadlineSeconds": cap,
            "backoffLimit": 0,
            "submissionMode": "K8sJobMode",
            "rayClusterSpec": {
                "rayVersion": RAY_VERSION,
                "headGroupSpec": {
                    "rayStartParams": {"dashboard-host": "0.0.0.0"},
                    "template": _build_template(task, "ray-head"),
                },
                **_build_workers(task),
            },
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
        open=(*_list_limits(), *describe_joining(task), *describe_preemption(task)),
    )


def _build_entrypoint(task: ExportTask) -> str:
    """Return the entry point, which runs on the head node: the driver for the machines and their GPUs."""
    gpus = 0 if task.offer.accelerator == "CPU" else task.devices
    return f"{shlex.join(['python', '-c', RUN_DRIVER])} {task.hosts} {gpus}"


def _build_environment(task: ExportTask) -> list[dict[str, str]]:
    """Return the environment of every container."""
    join = build_join_commands(first='"$1"', hosts=str(task.hosts), index='"$2"') if task.hosts > 1 else ()
    driver = files("gpuplan.launch.export").joinpath("ray_driver.py").read_text(encoding="utf-8")
    return [
        {"name": "GPUPLAN_DRIVER", "value": driver},
        {"name": "GPUPLAN_SCRIPT", "value": build_container_script(task, join)},
    ]


def _build_workers(task: ExportTask) -> dict[str, Any]:
    """Return the worker group with all machines but the head; none for one machine."""
    if task.hosts == 1:
        return {}
    workers = task.hosts - 1
    group = {
        "groupName": "workers",
        "replicas": workers,
        "minReplicas": workers,
        "maxReplicas": workers,
        "rayStartParams": {},
        "template": _build_template(task, "ray-worker"),
    }
    return {"workerGroupSpecs": [group]}


def _build_template(task: ExportTask, name: str) -> dict[str, Any]:
    """Return the template of a node of the Ray cluster; KubeRay adds command and restart policy."""
    image = task.container if task.source[0] == "image" or task.image else RAY_IMAGE
    return build_pod_template(task, {"name": name, "image": image, "env": _build_environment(task)})


def _list_limits() -> tuple[str, ...]:
    """Return the limits of KubeRay."""
    return (
        "the cluster must run KubeRay and have such nodes: only its autoscaler removes an idle node",
        "while KubeRay's operator is down, only `timeout` around the script enforces the deadline",
        "a custom container must contain the same version of Ray",
        "no checkpoints: files that the script does not save elsewhere are lost with the pod",
    )
