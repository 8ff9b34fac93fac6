"""Exports of several machines: the documents, and two real processes that Keras joins by their commands."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpuplan.errors import NoAnswerError
from gpuplan.launch.export import export_offer
from gpuplan.launch.prepare.arguments import LaunchArgs
from launch.export.crds import problems
from launch.export.plans import GIT, OFFERS, offer, write_plan

TWO = offer("aws", "p4d.24xlarge", "A100-40GB", 16, hosts=2, usd_per_hour="60.00")
SCRIPT = """
import json, os
import keras
keras.distribution.initialize()
import jax
print(json.dumps([jax.process_index(), jax.process_count(), jax.device_count()]))
"""


def export_two(folder: Path, engine: str, planned: dict[str, Any] = TWO, **more: Any) -> dict[str, Any]:
    """Return the export of a plan of several machines."""
    args = LaunchArgs(path=write_plan(folder, planned), source=GIT, options={}, **more)
    return export_offer(args, engine=engine, disk_gb=100, image=None, file="f.yaml")


def test_price_and_cap_are_those_of_all_machines_and_devices_those_of_one(tmp_path: Path) -> None:
    """$60 an hour for both; 9,900 s at most."""
    found = export_two(tmp_path, "skypilot")

    assert (found["hosts"], found["document"]["num_nodes"]) == (2, 2)
    assert found["document"]["resources"]["instance_type"] == "p4d.24xlarge"
    assert float(found["worst_case_usd"]) == pytest.approx(60 * 9900 / 3600)
    assert any("keras.distribution.initialize()" in line for line in found["open"])


def test_one_machine_is_exported_as_before(tmp_path: Path) -> None:
    found = export_two(tmp_path, "skypilot", OFFERS["aws"])

    assert found["hosts"] == 1
    assert "num_nodes" not in found["document"]
    assert "KERAS_DISTRIBUTION" not in found["document"]["run"]


def test_a_jobset_has_an_indexed_pod_for_each_machine(tmp_path: Path) -> None:
    """Eight GPUs each; a preempted pod ends the run, since the others would wait for it."""
    found = export_two(tmp_path, "kubernetes", {**TWO, "purchase": "spot"})
    document = found["document"]
    job = document["spec"]["replicatedJobs"][0]["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]

    assert problems(document) == []
    assert (job["parallelism"], job["completions"], job["completionMode"]) == (2, 2, "Indexed")
    assert job["backoffLimit"] == 0
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    address = f"{found['name']}-train-0-0.{found['name']}:"
    assert f"KERAS_DISTRIBUTION_JOB_ADDRESSES={address}" in container["command"][-1]


@pytest.mark.parametrize(
    ("engine", "says"), [("ray", "has 2 machines, and Ray launches one"), ("dstack", "one")]
)
def test_an_engine_that_starts_one_machine_refuses_two(engine: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(NoAnswerError, match=says):
        export_two(tmp_path, engine)


def test_slices_of_tpus_are_not_joined(tmp_path: Path) -> None:
    two = {**OFFERS["gcp-tpu"], "hosts": 2, "devices": 16}
    with pytest.raises(NoAnswerError, match="cannot export 2 slices of tpu-v5litepod-8 to SkyPilot"):
        export_two(tmp_path, "skypilot", two)


@pytest.mark.parametrize("engine", ["skypilot", "kubernetes"])
def test_keras_joins_two_processes_by_the_commands_of_an_export(engine: str, tmp_path: Path) -> None:
    """Two processes on loopback run the lines that set the environment, then a real script."""
    found = export_two(tmp_path, engine)
    if engine == "skypilot":
        text = found["document"]["run"]
    else:
        job = found["document"]["spec"]["replicatedJobs"][0]["template"]["spec"]
        text = job["template"]["spec"]["containers"][0]["command"][-1]
        text = text.replace(f"{found['name']}-train-0-0.{found['name']}", "127.0.0.1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lines = [line.replace(":12355", f":{port}") for line in text.splitlines() if "KERAS_DISTRIBUTION" in line]
    (tmp_path / "train.py").write_text(SCRIPT)
    command = "\n".join(["set -e", *lines, f"{sys.executable} train.py"])

    def start(index: int) -> subprocess.Popen[str]:
        environment = {
            **os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "",
            "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.1", "SKYPILOT_NUM_NODES": "2",
            "SKYPILOT_NODE_RANK": str(index), "JOB_COMPLETION_INDEX": str(index),
        }  # fmt: skip
        return subprocess.Popen(
            ["bash", "-c", command],
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
