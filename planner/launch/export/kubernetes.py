"""Export to a JobSet of Kubernetes: https://jobset.sigs.k8s.io."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .joined_hosts import build_join_commands, describe_joining, describe_preemption, require_gpu_hosts
from .pods import build_pod_template
from .task import (
    EngineDocument,
    ExportTask,
    build_fetch_commands,
    build_install_commands,
    build_run_command,
)
from .tpu_slices import count_slice_hosts

KEPT_S = 600  # retention of a finished job and its log
SPOT_RETRIES = 3
POD = "train"
LABELS = {"app.kubernetes.io/managed-by": "gpuplan"}
# One job, one node pool: jobset.sigs.k8s.io/docs/tasks/tpu_multislice. The links of a slice join no others.
ONE_NODE_POOL = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}


def build_jobset(task: ExportTask) -> EngineDocument:
    """Return the JobSet: one pod on each node, with a deadline that Kubernetes enforces.

    Pods of several machines are joined by the names that JobSet gives them. Those of a TPU slice find one another
    by what GKE tells pods of an Indexed job with a headless service, which JobSet makes: `TPU_WORKER_HOSTNAMES`
    and `TPU_WORKER_ID`, read by JAX (`jax/_src/clusters/cloud_tpu_cluster.py`).
    """
    task.require_source("git", "image", engine="Kubernetes")
    require_gpu_hosts(task, engine="Kubernetes")
    name, cap = task.name, task.offer.cap_s
    in_a_slice = count_slice_hosts(task.offer.accelerator, task.devices) > 1
    placement = {"annotations": dict(ONE_NODE_POOL)} if in_a_slice else {}
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": dict(LABELS), **placement},
        "spec": {
            "ttlSecondsAfterFinished": KEPT_S,
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [{"name": POD, "replicas": 1, "template": {"spec": _build_job(task)}}],
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
        open=(*_list_limits(), *describe_joining(task), *describe_preemption(task)),
    )


def _build_job(task: ExportTask) -> dict[str, Any]:
    """Return the job: a pod for each machine, or for each host of a TPU slice."""
    pods = task.hosts * count_slice_hosts(task.offer.accelerator, task.devices)
    join = _build_join_commands(task) if task.hosts > 1 else ()
    command = ["bash", "-c", build_container_script(task, join)]
    template = build_pod_template(task, {"name": "train", "image": task.container, "command": command})
    return {
        "parallelism": pods,
        "completions": pods,
        **({"completionMode": "Indexed"} if pods > 1 else {}),
        "backoffLimit": SPOT_RETRIES if task.offer.purchase == "spot" and pods == 1 else 0,
        "activeDeadlineSeconds": task.offer.cap_s,
        "template": {**template, "spec": {"restartPolicy": "Never", **template["spec"]}},
    }


def build_container_script(task: ExportTask, join: Sequence[str]) -> str:
    """Return the script of a container.

    Args:
        task: The task.
        join: Commands that tell `keras.distribution.initialize()` the other machines.
    """
    commands = [*build_fetch_commands(task), *build_install_commands(task), build_run_command(task)]
    return "\n".join(["set -e", *join, *commands])


def _build_join_commands(task: ExportTask) -> list[str]:
    """Return the commands that join the pods, by the names that JobSet and Indexed jobs give them."""
    return build_join_commands(
        first=f"{task.name}-{POD}-0-0.{task.name}", hosts=str(task.hosts), index='"$JOB_COMPLETION_INDEX"'
    )


def _list_limits() -> tuple[str, ...]:
    """Return the limits of Kubernetes."""
    return (
        "the cluster must have such nodes: nodes are billed, not jobs, and only the cluster's autoscaler removes "
        "an idle node",
        "the deadline counts from the start of the job, including the wait for a node",
        "no checkpoints: files that the script does not save elsewhere are lost with the pod",
    )
