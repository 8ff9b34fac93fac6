"""A handover as a JobSet on a cluster that has such nodes (https://jobset.sigs.k8s.io), and the pod of it."""

from __future__ import annotations

from typing import Any

from ...errors import NoAnswerError
from ..clouds.google.zones import machine_type
from .shell import KILL_AFTER_S, build_fetch_commands, build_install_commands, build_run_command
from .task import EngineDocument, ExportTask

__all__ = ["PROVIDERS", "build_jobset", "build_pod", "build_script"]

PROVIDERS = ("aws", "gcp", "azure")
KEPT_S = 600  # a finished job and its log
SPOT_RETRIES = 3
# Labels of nodes: kubernetes.io/docs/reference/labels-annotations-taints, and each cloud's own for spot.
_SPOT_LABELS = {
    "aws": {"eks.amazonaws.com/capacityType": "SPOT"},
    "gcp": {"cloud.google.com/gke-spot": "true"},
    "azure": {"kubernetes.azure.com/scalesetpriority": "spot"},
}
# cloud.google.com/kubernetes-engine/docs/how-to/tpus: slices of one host
_TPU_KINDS = {"TPU-v5e": "tpu-v5-lite-podslice", "TPU-v6e": "tpu-v6e-slice"}
_TPU_TOPOLOGIES = {1: "1x1", 4: "2x2", 8: "2x4"}


def build_jobset(task: ExportTask) -> EngineDocument:
    """Return the JobSet: one pod on one such node, with a deadline that Kubernetes keeps."""
    task.require_source("git", "image", engine="Kubernetes")
    name, cap = task.name, task.offer.cap_s
    job = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": SPOT_RETRIES if task.offer.purchase == "spot" else 0,
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
            "replicatedJobs": [{"name": "train", "replicas": 1, "template": {"spec": job}}],
        },
    }
    return EngineDocument(
        document=document, apply="kubectl apply -f FILE", stop=f"kubectl delete jobset {name}",
        stops=(
            f"Kubernetes ends the job {cap} s after it began, all retries included (`activeDeadlineSeconds`)",
            f"what is left of it is removed {KEPT_S} s after its end (`ttlSecondsAfterFinished`)",
        ),
        open=_open(),
    )  # fmt: skip


def build_script(task: ExportTask) -> str:
    """Return what the container runs."""
    return "\n".join(
        ["set -e", *build_fetch_commands(task), *build_install_commands(task), build_run_command(task)]
    )


def build_pod(task: ExportTask, *, command: list[str] | None) -> dict[str, Any]:
    """Return a pod that only such a node can take, without rights of its own in the cluster.

    Args:
        handover: The machine.
        command: What its container runs; None: what the container runs by itself.
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
    """Return the devices that the container asks for."""
    name = task.offer.accelerator
    if name == "CPU":
        return {}
    if name.startswith("TPU"):
        return {"google.com/tpu": str(task.devices)}
    return {"nvidia.com/gpu": str(task.devices)}


def _node(task: ExportTask) -> dict[str, str]:
    """Return the labels of the node."""
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
    """Return the labels of a node with a TPU slice of one host."""
    offer = task.offer
    if offer.accelerator not in _TPU_KINDS or task.devices not in _TPU_TOPOLOGIES:
        raise NoAnswerError(
            f"{offer.instance_type} is not exported to Kubernetes: TPU v5e and v6e with 1, 4 or 8 chips are",
            hint="choose another offer: `--rank N`",
        )
    return {
        "cloud.google.com/gke-tpu-accelerator": _TPU_KINDS[offer.accelerator],
        "cloud.google.com/gke-tpu-topology": _TPU_TOPOLOGIES[task.devices],
    }


def _taints(task: ExportTask) -> list[str]:
    """Return the taints of such nodes."""
    spot = task.offer.purchase == "spot" and task.provider == "azure"
    return [*_devices(task), *(["kubernetes.azure.com/scalesetpriority"] if spot else [])]


def _open() -> tuple[str, ...]:
    """Return what Kubernetes does not do."""
    return (
        "the cluster must exist and have such nodes: nodes are paid for, not jobs, and only the cluster's "
        "autoscaler takes an idle node away",
        "the deadline counts from the job's begin: time that its pod waits for a node is lost to it",
        "no checkpoints are kept: what the script does not save itself is lost with the pod",
    )
