"""JobSet and RayJob as their API types have them, strictly: nothing unknown, nothing missing, no other types.

JobSet: the types that Kubeflow generates from JobSet's own OpenAPI (PyPI: `kubeflow-trainer-api`). Jobs and pods
of both: the types of Kubernetes' own client. RayJob, which no package has: written here after the Go types that
KubeRay makes its definition of (Apache-2.0; ray-project/kuberay, ray-operator/apis/ray/v1: rayjob_types.go,
0057210e, and raycluster_types.go, 026f1433), with what its operator refuses. What no export needs is left out, and
so refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from kubernetes.client.models import V1JobTemplateSpec, V1ObjectMeta, V1PodTemplateSpec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

__all__ = ["problems"]

Count = Annotated[int, Field(ge=0, lt=2**31)]
Positive = Annotated[int, Field(gt=0, lt=2**31)]


class Wire(BaseModel):
    """Takes what is written, and nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class HeadGroup(Wire):
    """Of a Ray cluster."""

    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"] = "ClusterIP"
    enable_ingress: bool = False
    ray_start_params: dict[str, str]
    template: V1PodTemplateSpec


class WorkerGroup(Wire):
    """Of a Ray cluster."""

    group_name: str
    replicas: Count = 0
    min_replicas: Count
    max_replicas: Count
    num_of_hosts: Positive = 1
    ray_start_params: dict[str, str]
    template: V1PodTemplateSpec


class RayCluster(Wire):
    """Of a RayJob."""

    head_group_spec: HeadGroup
    worker_group_specs: list[WorkerGroup] = []
    ray_version: str = ""
    enable_in_tree_autoscaling: bool = False
    suspend: bool = False


class RayJobSpec(Wire):
    """What runs, on what, and when it ends."""

    entrypoint: str
    ray_cluster_spec: RayCluster
    active_deadline_seconds: Positive
    backoff_limit: Count = 0
    submission_mode: Literal["K8sJobMode", "HTTPMode", "InteractiveMode"] = "K8sJobMode"
    runtime_env_yaml: str = Field(default="", alias="runtimeEnvYAML")
    metadata: dict[str, str] = {}
    entrypoint_num_cpus: float = 0.0
    entrypoint_num_gpus: float = 0.0
    entrypoint_resources: str = ""
    ttl_seconds_after_finished: Count = 0
    shutdown_after_job_finishes: bool = False
    suspend: bool = False

    @model_validator(mode="after")
    def keeps_the_rules_of_the_operator(self) -> Self:
        """What KubeRay refuses although the types allow it."""
        if self.ttl_seconds_after_finished and not self.shutdown_after_job_finishes:
            raise ValueError("ttlSecondsAfterFinished without shutdownAfterJobFinishes")
        if self.suspend and not self.shutdown_after_job_finishes:
            raise ValueError("suspend without shutdownAfterJobFinishes")
        return self


class RayJob(Wire):
    """The resource."""

    api_version: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: V1ObjectMeta
    spec: RayJobSpec


def problems(document: dict[str, Any]) -> list[str]:
    """Return all that is wrong with a resource: unknown fields, wrong types, missing ones, what is not allowed."""
    found = list({"JobSet": _jobset, "RayJob": _rayjob}[document["kind"]](document))
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", document["metadata"]["name"]):
        found.append("$.metadata.name: no DNS label")
    return found


def _rayjob(document: dict[str, Any]) -> Iterator[str]:
    yield from _errors(RayJob, document, "$")


def _jobset(document: dict[str, Any]) -> Iterator[str]:
    from kubeflow_trainer_api.models import JobsetV1alpha2JobSet

    if document["apiVersion"] != "jobset.x-k8s.io/v1alpha2":
        yield "$.apiVersion: not the version that the types are of"
    yield from _errors(V1ObjectMeta, document["metadata"], "$.metadata")
    jobs = document["spec"]["replicatedJobs"]
    for i, job in enumerate(jobs):
        yield from _errors(V1JobTemplateSpec, job.get("template", {}), f"$.spec.replicatedJobs[{i}].template")
    # What is within a template is Kubernetes' own, and read above: Kubeflow's types take no `nvidia.com/gpu: "1"`.
    bare = [{**job, **({"template": {}} if "template" in job else {})} for job in jobs]
    whole = {**document, "spec": {**document["spec"], "replicatedJobs": bare}}
    wrong = list(_errors(JobsetV1alpha2JobSet, whole, "$"))
    yield from wrong
    if not wrong:
        yield from _dropped(whole, JobsetV1alpha2JobSet.from_dict(whole).to_dict(), "$")


def _errors(kind: type[BaseModel], value: Any, where: str) -> Iterator[str]:
    """Yield what a type says of a value."""
    try:
        kind.model_validate(value)
    except ValidationError as error:
        yield from (f"{where}.{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())


def _dropped(written: Any, kept: Any, where: str) -> Iterator[str]:
    """Yield what is written and not kept: generated types leave out what they do not know."""
    if isinstance(written, dict):
        for key, value in written.items():
            if not isinstance(kept, dict) or key not in kept:
                yield f"{where}.{key}: unknown"
            else:
                yield from _dropped(value, kept[key], f"{where}.{key}")
    elif isinstance(written, list):
        for i, (value, of) in enumerate(zip(written, kept, strict=True)):
            yield from _dropped(value, of, f"{where}[{i}]")
    elif written != kept:
        yield f"{where}: {written!r} became {kept!r}"
