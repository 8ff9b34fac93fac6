"""A handover as a JobSet on a cluster that has such nodes (https://jobset.sigs.k8s.io), and the pod of it."""

from __future__ import annotations

from typing import Any

from ...errors import NoAnswerError
from ..clouds.google.zones import machine_type
from .shell import KILL_AFTER_S, fetching, installing, running
from .task import Export, Handover

__all__ = ["PROVIDERS", "jobset", "pod", "script"]

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


def jobset(handover: Handover) -> Export:
    """Return the JobSet: one pod on one such node, with a deadline that Kubernetes keeps."""
    handover.require_source("git", "image", engine="Kubernetes")
    name, cap = handover.name, handover.offer.cap_s
    job = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": SPOT_RETRIES if handover.offer.purchase == "spot" else 0,
        "activeDeadlineSeconds": cap,
        "template": {"spec": pod(handover, command=["bash", "-c", script(handover)])},
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
    return Export(
        document=document, apply="kubectl apply -f FILE", stop=f"kubectl delete jobset {name}",
        stops=(
            f"Kubernetes ends the job {cap} s after it began, all retries included (`activeDeadlineSeconds`)",
            f"what is left of it is removed {KEPT_S} s after its end (`ttlSecondsAfterFinished`)",
        ),
        open=_open(),
    )  # fmt: skip


def script(handover: Handover) -> str:
    """Return what the container runs."""
    return "\n".join(["set -e", *fetching(handover), *installing(handover), running(handover)])


def pod(handover: Handover, *, command: list[str] | None) -> dict[str, Any]:
    """Return a pod that only such a node can take, without rights of its own in the cluster.

    Args:
        handover: The machine.
        command: What its container runs; None: what the container runs by itself.
    """
    devices = _devices(handover)
    container: dict[str, Any] = {"name": "train", "image": handover.container}
    if command is not None:
        container["command"] = command
    if devices:
        container["resources"] = {"limits": devices, "requests": dict(devices)}
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": KILL_AFTER_S,
        "nodeSelector": _node(handover),
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in _taints(handover)
        ],
        "containers": [container],
    }


def _devices(handover: Handover) -> dict[str, str]:
    """Return the devices that the container asks for."""
    name = handover.offer.accelerator
    if name == "CPU":
        return {}
    if name.startswith("TPU"):
        return {"google.com/tpu": str(handover.devices)}
    return {"nvidia.com/gpu": str(handover.devices)}


def _node(handover: Handover) -> dict[str, str]:
    """Return the labels of the node."""
    offer = handover.offer
    found = {} if offer.region == "any" else {"topology.kubernetes.io/region": offer.region}
    if offer.accelerator.startswith("TPU"):
        found |= _tpu_node(handover)
    elif handover.provider == "gcp":
        base, attached = machine_type(offer.instance_type)
        found["node.kubernetes.io/instance-type"] = base
        if attached:
            found["cloud.google.com/gke-accelerator"] = attached[0]
    else:
        found["node.kubernetes.io/instance-type"] = offer.instance_type
    return {**found, **(_SPOT_LABELS[handover.provider] if offer.purchase == "spot" else {})}


def _tpu_node(handover: Handover) -> dict[str, str]:
    """Return the labels of a node with a TPU slice of one host."""
    offer = handover.offer
    if offer.accelerator not in _TPU_KINDS or handover.devices not in _TPU_TOPOLOGIES:
        raise NoAnswerError(
            f"{offer.instance_type} is not exported to Kubernetes: TPU v5e and v6e with 1, 4 or 8 chips are",
            hint="choose another offer: `--rank N`",
        )
    return {
        "cloud.google.com/gke-tpu-accelerator": _TPU_KINDS[offer.accelerator],
        "cloud.google.com/gke-tpu-topology": _TPU_TOPOLOGIES[handover.devices],
    }


def _taints(handover: Handover) -> list[str]:
    """Return the taints of such nodes."""
    spot = handover.offer.purchase == "spot" and handover.provider == "azure"
    return [*_devices(handover), *(["kubernetes.azure.com/scalesetpriority"] if spot else [])]


def _open() -> tuple[str, ...]:
    """Return what Kubernetes does not do."""
    return (
        "the cluster must exist and have such nodes: nodes are paid for, not jobs, and only the cluster's "
        "autoscaler takes an idle node away",
        "the deadline counts from the job's begin: time that its pod waits for a node is lost to it",
        "no checkpoints are kept: what the script does not save itself is lost with the pod",
    )
