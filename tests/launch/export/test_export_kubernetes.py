"""JobSet and RayJob against the fields of their API types, strictly; their pods against Kubernetes' client."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from gpuplan.errors import NoAnswerError, UsageError
from launch.export.crds import problems
from launch.export.plans import export_of

pytest.importorskip("kubeflow_trainer_api", reason="JobSet's types are not installed: pip install '.[test]'")

CLOUDS = ("aws", "aws-spot", "gcp-attached", "gcp-spot", "gcp-cpu", "azure", "azure-spot")


@pytest.mark.parametrize("source", ["git:https://example.org/me/repo.git@v1", "image:example.org/me/train:1"])
@pytest.mark.parametrize("key", [*CLOUDS, "gcp-tpu", "gcp-slice"])
def test_a_jobset_has_no_field_that_is_unknown(key: str, source: str, tmp_path: Path) -> None:
    document = export_of(tmp_path, key, "kubernetes", source=source)["document"]

    assert problems(document) == []


@pytest.mark.parametrize("source", ["git:https://example.org/me/repo.git@v1", "image:example.org/me/train:1"])
@pytest.mark.parametrize("key", CLOUDS)
def test_a_rayjob_has_no_field_that_is_unknown(key: str, source: str, tmp_path: Path) -> None:
    document = export_of(tmp_path, key, "ray", source=source)["document"]

    assert problems(document) == []


@pytest.mark.parametrize(
    ("engine", "path", "spoilt"),
    [
        ("kubernetes", "spec.replicatedJobs.0.template.spec.paralellism", 1),
        ("kubernetes", "spec.replicatedJobs.0.template.spec.activeDeadlineSeconds", "9900"),
        ("kubernetes", "spec.replicatedJobs.0.template.spec.template.spec.containers.0.imagge", "x"),
        ("kubernetes", "spec.failurePolicy.maxRestart", 0),
        ("kubernetes", "spec.ttlSecondsAfterFinished", "600"),
        ("kubernetes", "spec.replicatedJobs.0.name", 1),
        ("ray", "spec.shutdownAfterJobFinish", True),
        ("ray", "spec.submissionMode", "Kubernetes"),
        ("ray", "spec.rayClusterSpec.headGroupSpec.template.spec.nodeSelectors", {}),
        ("ray", "spec.rayClusterSpec.headGroupSpec.template.spec.containers.0.resources.limit", {}),
        ("ray", "spec.rayClusterSpec.headGroupSpec.serviceType", "Cluster"),
        ("ray", "spec.rayClusterSpec.workerGroupSpecs", [{"groupName": "workers", "replicas": 1}]),
        ("ray", "spec.activeDeadlineSeconds", 0),
        ("ray", "spec.shutdownAfterJobFinishes", False),
    ],
)
def test_the_check_sees_what_is_wrong(engine: str, path: str, spoilt: Any, tmp_path: Path) -> None:
    """Each of these would be dropped or refused by a cluster."""
    document = copy.deepcopy(export_of(tmp_path, "aws", engine)["document"])
    place, last = place_of(document, path)
    place[last] = spoilt

    assert problems(document) != []


@pytest.mark.parametrize(
    ("engine", "path"),
    [
        ("kubernetes", "spec.replicatedJobs.0.template"),
        ("kubernetes", "spec.replicatedJobs.0.template.spec.template.spec.containers.0.name"),
        ("ray", "spec.entrypoint"),
        ("ray", "spec.rayClusterSpec.headGroupSpec.rayStartParams"),
        ("ray", "spec.rayClusterSpec.headGroupSpec.template.spec.containers"),
    ],
)
def test_the_check_sees_what_is_missing(engine: str, path: str, tmp_path: Path) -> None:
    """A cluster would refuse each of these."""
    document = copy.deepcopy(export_of(tmp_path, "aws", engine)["document"])
    place, last = place_of(document, path)
    del place[last]

    assert problems(document) != []


def place_of(document: dict[str, Any], path: str) -> tuple[Any, str]:
    """Return what holds the last name of a path, and that name."""
    *folders, last = path.split(".")
    place: Any = document
    for name in folders:
        place = place[int(name) if name.isdecimal() else name]
    return place, last


def test_the_deadline_is_kept_by_the_engine_and_by_the_shell(tmp_path: Path) -> None:
    """1.5 x 5,400 s + 1,800 s, as `gpuplan launch` has it; Kubernetes counts its retries within."""
    jobset = export_of(tmp_path, "aws-spot", "kubernetes")["document"]
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (job["activeDeadlineSeconds"], job["backoffLimit"]) == (9900, 3)
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 0
    rayjob = export_of(tmp_path, "aws", "ray")["document"]["spec"]
    assert (rayjob["activeDeadlineSeconds"], rayjob["backoffLimit"]) == (9900, 0)
    assert rayjob["shutdownAfterJobFinishes"] is True
    head = rayjob["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    script = next(one["value"] for one in head["env"] if one["name"] == "GPUPLAN_SCRIPT")
    assert "timeout --signal=TERM --kill-after=60 9900 python train.py" in script


def test_the_pod_asks_for_that_node_and_for_no_rights(tmp_path: Path) -> None:
    """Labels of nodes as each cloud sets them."""

    def pod(key: str) -> dict[str, Any]:
        jobset = export_of(tmp_path, key, "kubernetes")["document"]
        found: dict[str, Any] = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        assert found["automountServiceAccountToken"] is False
        return found

    assert pod("aws-spot")["nodeSelector"] == {
        "topology.kubernetes.io/region": "us-east-1",
        "node.kubernetes.io/instance-type": "p3.8xlarge",
        "eks.amazonaws.com/capacityType": "SPOT",
    }
    assert pod("aws-spot")["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert pod("gcp-attached")["nodeSelector"]["cloud.google.com/gke-accelerator"] == "nvidia-tesla-t4"
    tpu = pod("gcp-tpu")
    assert tpu["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "2x4"
    assert tpu["containers"][0]["resources"]["requests"] == {"google.com/tpu": "8"}
    assert {one["key"] for one in pod("azure-spot")["tolerations"]} == {
        "nvidia.com/gpu",
        "kubernetes.azure.com/scalesetpriority",
    }


@pytest.mark.parametrize(
    ("key", "engine", "source", "error", "says"),
    [
        ("aws", "kubernetes", ".", UsageError, "Kubernetes takes its code from git:URL@REF or image:NAME"),
        ("lambda", "kubernetes", "git:https://x/y", NoAnswerError, "cannot be launched by Kubernetes"),
        ("colab", "skypilot", ".", NoAnswerError, "cannot be launched by SkyPilot"),
        ("gcp-tpu", "ray", "git:https://x/y", NoAnswerError, "to Ray: TPUs are not supported"),
        ("trainium", "kubernetes", "git:https://x/y", NoAnswerError, "cannot export Trainium1"),
        ("gcp-part", "dstack", ".", NoAnswerError, "engines count whole devices|no known name of"),
        ("aws", "dstack", "s3:bucket/key", UsageError, "dstack takes its code from a folder"),
    ],
)
def test_what_cannot_go_there_is_refused_in_a_line(  # noqa: PLR0917 - one argument a column
    key: str, engine: str, source: str, error: type[Exception], says: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says) as caught:
        export_of(tmp_path, key, engine, source=source)
    assert "\n" not in str(caught.value)
