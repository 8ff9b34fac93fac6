"""JobSet and RayJob as their API types have them, every field of what is written; pods as Kubernetes' own client
has them.

Fields and their types are those of the Go types from which both projects generate their definitions (Apache-2.0):
kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go, 0336a8fd; ray-project/kuberay,
ray-operator/apis/ray/v1/rayjob_types.go, 0057210e, and raycluster_types.go. A `*` stands for any key.
"""

from __future__ import annotations

import re
from typing import Any

from kubernetes.client import models
from pydantic import ValidationError

__all__ = ["problems"]

Shape = dict[str, Any]

JOBSET: Shape = {
    "replicatedJobs": [{
        "name": str, "groupName": str, "template": "V1JobTemplateSpec", "replicas": int,
        "dependsOn": [{"name": str, "status": str}],
    }],
    "network": {"enableDNSHostnames": bool, "subdomain": str, "publishNotReadyAddresses": bool},
    "successPolicy": {"operator": str, "targetReplicatedJobs": [str]},
    "failurePolicy": {
        "maxRestarts": int, "restartStrategy": str,
        "rules": [{
            "name": str, "action": str, "onJobFailureReasons": [str], "targetReplicatedJobs": [str],
            "onJobFailureMessagePatterns": [str],
        }],
    },
    "startupPolicy": {"startupPolicyOrder": str},
    "suspend": bool,
    "coordinator": {"replicatedJob": str, "jobIndex": int, "podIndex": int},
    "managedBy": str,
    "ttlSecondsAfterFinished": int,
}  # fmt: skip
RAYJOB: Shape = {
    "activeDeadlineSeconds": int, "backoffLimit": int, "submitterPodTemplate": "V1PodTemplateSpec",
    "metadata": {"*": str}, "clusterSelector": {"*": str}, "submitterConfig": {"backoffLimit": int},
    "managedBy": str, "entrypoint": str, "runtimeEnvYAML": str, "jobId": str,
    "submissionMode": ("K8sJobMode", "HTTPMode", "InteractiveMode"), "entrypointResources": str,
    "entrypointNumCpus": float, "entrypointNumGpus": float, "ttlSecondsAfterFinished": int,
    "shutdownAfterJobFinishes": bool, "suspend": bool,
    "rayClusterSpec": {
        "suspend": bool, "headServiceAnnotations": {"*": str}, "enableInTreeAutoscaling": bool, "rayVersion": str,
        "headGroupSpec": {
            "serviceType": str, "enableIngress": bool, "rayStartParams": {"*": str},
            "template": "V1PodTemplateSpec",
        },
        "workerGroupSpecs": [{
            "groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int,
            "rayStartParams": {"*": str}, "template": "V1PodTemplateSpec",
        }],
    },
}  # fmt: skip
KINDS: dict[tuple[str, str], Shape] = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): JOBSET,
    ("ray.io/v1", "RayJob"): RAYJOB,
}


def problems(document: dict[str, Any]) -> list[str]:
    """Return all that is wrong with a resource: unknown fields, wrong types, missing ones."""
    kind = (document["apiVersion"], document["kind"])
    whole: Shape = {"apiVersion": str, "kind": str, "metadata": "V1ObjectMeta", "spec": KINDS[kind]}
    found = list(_check(document, whole, "$"))
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", document["metadata"]["name"]):
        found.append("$.metadata.name: no DNS label")
    return found


def _check(value: Any, shape: Any, where: str) -> list[str]:  # noqa: PLR0911 - one a kind of shape
    """Return what is wrong with a value."""
    if isinstance(shape, str):
        return _check_model(value, shape, where)
    if isinstance(shape, tuple):
        return [] if value in shape else [f"{where}: {value!r} is none of {shape}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{where}: no list"]
        return [one for i, item in enumerate(value) for one in _check(item, shape[0], f"{where}[{i}]")]
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"{where}: no object"]
        unknown = [] if "*" in shape else [f"{where}.{key}: unknown" for key in value if key not in shape]
        known = {key: shape.get(key, shape.get("*")) for key in value if key in shape or "*" in shape}
        return unknown + [
            one for key, of in known.items() for one in _check(value[key], of, f"{where}.{key}")
        ]
    numbers = (int, float) if shape is float else (shape,)
    right = isinstance(value, numbers) and (shape is bool or not isinstance(value, bool))
    return [] if right else [f"{where}: {value!r} is no {shape.__name__}"]


def _check_model(value: Any, name: str, where: str) -> list[str]:
    """Return what a type of Kubernetes' own client says of a value; it takes no field that it does not know."""
    try:
        getattr(models, name).model_validate(value, strict=True)
    except ValidationError as error:
        return [f"{where}.{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return []
