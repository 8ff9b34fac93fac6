"""Pods of an export: container, devices, and the nodes that may run it."""

from __future__ import annotations

from typing import Any

from ..clouds.google.zones import machine_type
from .task import KILL_AFTER_S, ExportTask
from .tpu_slices import find_tpu_slice

PROVIDERS = ("aws", "gcp", "azure")
TASK_LABEL = "gpuplan-task"
# Node labels: kubernetes.io/docs/reference/labels-annotations-taints, and each cloud's own for spot.
_SPOT_LABELS = {
    "aws": {"eks.amazonaws.com/capacityType": "SPOT"},
    "gcp": {"cloud.google.com/gke-spot": "true"},
    "azure": {"kubernetes.azure.com/scalesetpriority": "spot"},
}


def build_pod_template(task: ExportTask, container: dict[str, Any]) -> dict[str, Any]:
    """Return the template of a pod for nodes of this kind, without permissions in the cluster.

    Pods of several machines never share a node: pods that ask for no devices would.

    Args:
        task: The task.
        container: Its container, without devices.
    """
    devices = _devices(task)
    if devices:
        container = {**container, "resources": {"limits": devices, "requests": dict(devices)}}
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": KILL_AFTER_S,
        "nodeSelector": _node(task),
        "tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in _taints(task)],
        "containers": [container],
    }
    if task.hosts == 1:
        return {"spec": spec}
    labels = {TASK_LABEL: task.name}
    return {"metadata": {"labels": labels}, "spec": {**spec, "affinity": _apart(labels)}}


def _apart(labels: dict[str, str]) -> dict[str, Any]:
    """Return the rule that each pod with these labels gets a node of its own."""
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _devices(task: ExportTask) -> dict[str, str]:
    """Return the device requests of the container."""
    name = task.offer.accelerator
    if name == "CPU":
        return {}
    if name.startswith("TPU"):
        return {"google.com/tpu": str(find_tpu_slice(task).chips_per_host)}
    return {"nvidia.com/gpu": str(task.devices)}


def _node(task: ExportTask) -> dict[str, str]:
    """Return the node selector."""
    offer = task.offer
    found = {} if offer.region == "any" else {"topology.kubernetes.io/region": offer.region}
    if offer.accelerator.startswith("TPU"):
        tpu = find_tpu_slice(task)
        found["cloud.google.com/gke-tpu-accelerator"] = tpu.accelerator
        found["cloud.google.com/gke-tpu-topology"] = tpu.topology
    elif task.provider == "gcp":
        base, attached = machine_type(offer.instance_type)
        found["node.kubernetes.io/instance-type"] = base
        if attached:
            found["cloud.google.com/gke-accelerator"] = attached[0]
    else:
        found["node.kubernetes.io/instance-type"] = offer.instance_type
    return {**found, **(_SPOT_LABELS[task.provider] if offer.purchase == "spot" else {})}


def _taints(task: ExportTask) -> list[str]:
    """Return the taints of the nodes."""
    spot = task.offer.purchase == "spot" and task.provider == "azure"
    return [*_devices(task), *(["kubernetes.azure.com/scalesetpriority"] if spot else [])]
