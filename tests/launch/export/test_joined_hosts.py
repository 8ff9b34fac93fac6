"""Exports of several machines: the documents, and two real processes that Keras joins by their commands."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpuplan.errors import NoAnswerError
from launch.export.crds import problems
from launch.export.plans import OFFERS, TWO, export_planned, offer

JOINING = ("skypilot", "kubernetes", "ray")
SCRIPT = """
import json, os
import keras
keras.distribution.initialize()
import jax
print(json.dumps([jax.process_index(), jax.process_count(), jax.device_count()]))
"""


@pytest.mark.parametrize("engine", JOINING)
def test_the_cap_is_that_of_all_machines_together(engine: str, tmp_path: Path) -> None:
    """$60 an hour for both: 9,900 s are $165; $90 are 5,400 s, which every engine enforces."""
    assert export_planned(tmp_path, TWO, engine)["worst_case_usd"] == Decimal(60) * 9900 / 3600

    found = export_planned(tmp_path, TWO, engine, max_usd=90.0)
    assert (found["hosts"], found["offer"]["cap_s"], found["worst_case_usd"]) == (2, 5400, 90)
    text = json.dumps(found["document"])
    assert "timeout --signal=TERM --kill-after=60 5400 python train.py" in text
    assert engine == "skypilot" or '"activeDeadlineSeconds": 5400' in text


def test_price_and_cap_are_those_of_all_machines_and_devices_those_of_one(tmp_path: Path) -> None:
    """$60 an hour for both; 9,900 s at most."""
    found = export_planned(tmp_path, TWO, "skypilot")

    assert (found["hosts"], found["document"]["num_nodes"]) == (2, 2)
    assert found["document"]["resources"]["instance_type"] == "p4d.24xlarge"
    assert float(found["worst_case_usd"]) == pytest.approx(60 * 9900 / 3600)
    assert any("keras.distribution.initialize()" in line for line in found["open"])


def test_one_machine_is_exported_as_before(tmp_path: Path) -> None:
    found = export_planned(tmp_path, OFFERS["aws"], "skypilot")

    assert found["hosts"] == 1
    assert "num_nodes" not in found["document"]
    assert "KERAS_DISTRIBUTION" not in found["document"]["run"]


def test_a_jobset_has_an_indexed_pod_for_each_machine(tmp_path: Path) -> None:
    """Eight GPUs each; a preempted pod ends the run, since the others would wait for it."""
    found = export_planned(tmp_path, {**TWO, "purchase": "spot"}, "kubernetes")
    document = found["document"]
    job = document["spec"]["replicatedJobs"][0]["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]

    assert problems(document) == []
    assert (job["parallelism"], job["completions"], job["completionMode"]) == (2, 2, "Indexed")
    assert job["backoffLimit"] == 0
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    address = f"{found['name']}-train-0-0.{found['name']}:"
    assert f"KERAS_DISTRIBUTION_JOB_ADDRESSES={address}" in container["command"][-1]


@pytest.mark.parametrize("engine", ["kubernetes", "ray"])
def test_machines_without_devices_to_ask_for_do_not_share_a_node(engine: str, tmp_path: Path) -> None:
    """Two pods that ask for nothing would fit on one node: each keeps off nodes with a pod of its task."""
    planned = offer("gcp", "n2-standard-8", "CPU", 2, hosts=2, region="us-central1")
    found = export_planned(tmp_path, planned, engine)
    pods = list(pods_of(found["document"]))

    assert problems(found["document"]) == []
    for pod in pods:
        (term,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert term["labelSelector"]["matchLabels"] == pod["metadata"]["labels"]
    assert len({json.dumps(pod["metadata"]["labels"]) for pod in pods}) == 1


def pods_of(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the templates of all pods of a JobSet or RayJob."""
    if document["kind"] == "JobSet":
        yield document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        return
    cluster = document["spec"]["rayClusterSpec"]
    yield from (group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]))


@pytest.mark.parametrize("engine", ["dstack"])
def test_an_engine_that_starts_one_machine_refuses_two(engine: str, tmp_path: Path) -> None:
    with pytest.raises(NoAnswerError, match="has 2 machines, and dstack launches one"):
        export_planned(tmp_path, TWO, engine)


def test_slices_of_tpus_are_not_joined(tmp_path: Path) -> None:
    two = {**OFFERS["gcp-tpu"], "hosts": 2, "devices": 16}
    with pytest.raises(NoAnswerError, match="cannot export 2 slices of tpu-v5litepod-8 to SkyPilot"):
        export_planned(tmp_path, two, "skypilot")


def join_commands(engine: str, folder: Path) -> list[str]:
    """Return the lines of an export that join its machines, those of JobSet with loopback for the first pod."""
    found = export_planned(folder, TWO, engine)
    if engine == "skypilot":
        text = found["document"]["run"]
    elif engine == "ray":
        head = next(pods_of(found["document"]))["spec"]["containers"][0]
        text = next(one["value"] for one in head["env"] if one["name"] == "GPUPLAN_SCRIPT")
    else:
        text = next(pods_of(found["document"]))["spec"]["containers"][0]["command"][-1]
        text = text.replace(f"{found['name']}-train-0-0.{found['name']}", "127.0.0.1")
    return [line for line in text.splitlines() if "KERAS_DISTRIBUTION" in line]


@pytest.mark.parametrize("engine", JOINING)
def test_keras_joins_two_processes_by_the_commands_of_an_export(engine: str, tmp_path: Path) -> None:
    """Two processes on loopback run the lines that set the environment, then a real script."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lines = [line.replace(":12355", f":{port}") for line in join_commands(engine, tmp_path)]
    (tmp_path / "train.py").write_text(SCRIPT)
    command = "\n".join(["set -e", *lines, f"{sys.executable} train.py"])

    def start(index: int) -> subprocess.Popen[str]:
        environment = {
            **os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "",
            "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.1", "SKYPILOT_NUM_NODES": "2",
            "SKYPILOT_NODE_RANK": str(index), "JOB_COMPLETION_INDEX": str(index),
        }  # fmt: skip
        return subprocess.Popen(
            ["bash", "-c", command, "run", "127.0.0.1", str(index)],  # as Ray's driver does
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    running = [start(index) for index in range(2)]
    said = [one.communicate(timeout=120) for one in running]

    assert [one.returncode for one in running] == [0, 0], said[0][1][-2000:]
    assert [json.loads(out.splitlines()[-1]) for out, _ in said] == [[0, 2, 2], [1, 2, 2]]
