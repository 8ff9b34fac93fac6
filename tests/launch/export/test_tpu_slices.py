"""TPU slices of several hosts on GKE: labels of a published table, one pod a host, all in one node pool."""

from __future__ import annotations

import math
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from gpuplan.errors import NoAnswerError
from launch.export.crds import problems
from launch.export.plans import OFFERS, export_planned, offer

ACCELERATOR, TOPOLOGY = "cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-tpu-topology"


@pytest.mark.parametrize(
    ("instance_type", "name", "chips", "label", "topology", "hosts"),
    [
        ("tpu-v4-8", "TPU-v4", 4, "tpu-v4-podslice", "2x2x1", 1),
        ("tpu-v4-16", "TPU-v4", 8, "tpu-v4-podslice", "2x2x2", 2),
        ("tpu-v4-128", "TPU-v4", 64, "tpu-v4-podslice", "4x4x4", 16),
        ("tpu-v5litepod-4", "TPU-v5e", 4, "tpu-v5-lite-podslice", "2x2", 1),
        ("tpu-v5litepod-8", "TPU-v5e", 8, "tpu-v5-lite-podslice", "2x4", 1),
        ("tpu-v5litepod-16", "TPU-v5e", 16, "tpu-v5-lite-podslice", "4x4", 4),
        ("tpu-v5litepod-64", "TPU-v5e", 64, "tpu-v5-lite-podslice", "8x8", 16),
        ("tpu-v5p-16", "TPU-v5p", 8, "tpu-v5p-slice", "2x2x2", 2),
        ("tpu-v5p-32", "TPU-v5p", 16, "tpu-v5p-slice", "2x2x4", 4),
        ("tpu-v6e-16", "TPU-v6e", 16, "tpu-v6e-slice", "4x4", 4),
        ("tpu-v6e-32", "TPU-v6e", 32, "tpu-v6e-slice", "4x8", 8),
    ],
)
def test_a_slice_becomes_an_indexed_job_on_its_node_pool(  # noqa: PLR0917 - one argument a column
    instance_type: str, name: str, chips: int, label: str, topology: str, hosts: int, tmp_path: Path
) -> None:
    """xpk's table of system characteristics (AI-Hypercomputer/xpk, 367c838), whose v5e and v6e have 8 chips on two
    hosts; on one: GKE's ct5lp-hightpu-8t and ct6e-standard-8t. Cloud TPU counts cores of v4 and v5p, two a chip.
    """
    found = export_planned(tmp_path, offer("gcp", instance_type, name, chips, region="us-east5"), "kubernetes")
    document = found["document"]
    job = document["spec"]["replicatedJobs"][0]["template"]["spec"]
    pod = job["template"]["spec"]

    assert problems(document) == []
    assert (job["parallelism"], job["completions"]) == (hosts, hosts)
    assert (pod["nodeSelector"][ACCELERATOR], pod["nodeSelector"][TOPOLOGY]) == (label, topology)
    assert pod["containers"][0]["resources"]["limits"] == {"google.com/tpu": str(chips // hosts)}
    assert ("annotations" in document["metadata"]) == (hosts > 1)
    assert (job.get("completionMode") == "Indexed") == (hosts > 1)
    assert any("keras.distribution.initialize()" in line for line in found["open"]) == (hosts > 1)


def test_the_pods_of_a_slice_stay_in_one_pool_and_find_one_another_through_gke(tmp_path: Path) -> None:
    """The placement of JobSet's own example (jobset.sigs.k8s.io/docs/tasks/tpu_multislice); no addresses of ours.

    A preempted host ends the slice: there is nothing to retry.
    """
    found = export_planned(tmp_path, {**OFFERS["gcp-slice"], "purchase": "spot"}, "kubernetes")
    document = found["document"]
    job = document["spec"]["replicatedJobs"][0]["template"]["spec"]

    pool = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
    assert document["metadata"]["annotations"] == pool
    assert job["backoffLimit"] == 0
    assert "KERAS_DISTRIBUTION" not in job["template"]["spec"]["containers"][0]["command"][-1]
    assert job["template"]["spec"]["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert any("4 hosts of the slice" in line for line in found["open"])


NODES = tomllib.loads(files("gpuplan.launch.export").joinpath("gke_nodes.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("accelerator", NODES)
def test_a_topology_has_as_many_chips_as_its_slice(accelerator: str, tmp_path: Path) -> None:
    """The product of its sides; hosts have all of them."""
    for size, topology in NODES[accelerator]["topologies"].items():
        chips = int(size)
        planned = offer("gcp", "tpu-of-a-test", accelerator, chips, region="us-east5")
        job = export_planned(tmp_path, planned, "kubernetes")["document"]["spec"]["replicatedJobs"][0]
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        per_host = int(container["resources"]["limits"]["google.com/tpu"])
        assert math.prod(map(int, topology.split("x"))) == chips
        assert per_host * job["template"]["spec"]["completions"] == chips


@pytest.mark.parametrize(
    ("planned", "engine", "says"),
    [
        (offer("gcp", "tpu-v3-32", "TPU-v3", 16), "kubernetes", "no known nodes of GKE with 16 chips"),
        (offer("gcp", "tpu-v6e-12", "TPU-v6e", 12), "kubernetes", "no known nodes of GKE with 12 chips"),
        (offer("gcp", "tpu-v6e-16", "TPU-v6e", 32, hosts=2), "kubernetes", "cannot export 2 slices of tpu-v6e-16"),
        (OFFERS["gcp-slice"], "dstack", "cannot export tpu-v6e-16 to dstack: it has 4 hosts"),
        (OFFERS["gcp-slice"], "ray", "to Ray: TPUs are not supported"),
    ],
)  # fmt: skip
def test_other_slices_are_refused_in_a_line(
    planned: dict[str, object], engine: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(NoAnswerError, match=says) as caught:
        export_planned(tmp_path, planned, engine)
    assert "\n" not in str(caught.value)
