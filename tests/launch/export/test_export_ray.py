"""A RayJob of several machines: its cluster, the way of its entry point, and its driver on a real Ray cluster."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launch.export.crds import problems
from launch.export.plans import OFFERS, TWO, export_planned

PROGRAM = Path(__file__).with_name("ray_program.py")
JOINED = """
import json, os, pathlib, sys
import keras
keras.distribution.initialize()
import jax
said = [jax.process_count(), os.environ["CUDA_VISIBLE_DEVICES"], os.environ["OMP_NUM_THREADS"]]
pathlib.Path(sys.argv[1], f"process-{jax.process_index()}.json").write_text(json.dumps(said))
"""


def environment(document: dict[str, Any]) -> dict[str, str]:
    """Return the environment of the head's container."""
    head = document["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    return {one["name"]: one["value"] for one in head["env"]}


def test_head_and_workers_are_the_machines_of_the_plan(tmp_path: Path) -> None:
    """Four machines of eight GPUs: a head and three workers, none of which the autoscaler changes."""
    planned = {**TWO, "hosts": 4, "devices": 32, "purchase": "spot"}
    found = export_planned(tmp_path, planned, "ray")
    cluster = found["document"]["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    head = cluster["headGroupSpec"]["template"]["spec"]

    assert problems(found["document"]) == []
    assert (workers["replicas"], workers["minReplicas"], workers["maxReplicas"]) == (3, 3, 3)
    assert workers["template"]["spec"]["nodeSelector"] == head["nodeSelector"]
    for pod in (head, workers["template"]["spec"]):
        assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
        assert "KERAS_DISTRIBUTION_NUM_PROCESSES=4" in pod["containers"][0]["env"][1]["value"]
    assert found["document"]["spec"]["entrypoint"].endswith(" 4 8")
    assert any("ends the run on all machines" in line for line in found["open"])


def test_one_machine_has_no_workers_and_joins_nothing(tmp_path: Path) -> None:
    found = export_planned(tmp_path, OFFERS["aws-spot"], "ray")
    document = found["document"]

    assert "workerGroupSpecs" not in document["spec"]["rayClusterSpec"]
    assert "KERAS_DISTRIBUTION" not in environment(document)["GPUPLAN_SCRIPT"]
    assert document["spec"]["entrypoint"].endswith(" 1 4")


def test_the_entry_point_reaches_the_head_through_two_shells(tmp_path: Path) -> None:
    """KubeRay's submitter splits it in a shell, and `ray job submit` joins it by `list2cmdline` for another."""
    entrypoint = export_planned(tmp_path, TWO, "ray")["document"]["spec"]["entrypoint"]
    (tmp_path / "python").symlink_to(sys.executable)
    done = subprocess.run(
        ["bash", "-c", subprocess.list2cmdline(shlex.split(entrypoint))],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "GPUPLAN_DRIVER": SAYS_ARGUMENTS},
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(done.stdout) == ["2", "8"]


SAYS_ARGUMENTS = "import json, sys; print(json.dumps(sys.argv[1:]))"


def run_on_ray(folder: Path, script: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run an export's entry point on two nodes of a real cluster, with a script of the test's own."""
    document = export_planned(folder, TWO, "ray", **more)["document"]
    variables = {**environment(document), "GPUPLAN_SCRIPT": script}
    told = {"entrypoint": document["spec"]["entrypoint"], "env": variables, "nodes": 2, "gpus": 8}
    (folder / "told.json").write_text(json.dumps(told))
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(folder / "told.json")],
        env={
            **os.environ, "RAY_USAGE_STATS_ENABLED": "0", "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )  # fmt: skip


needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install ray"
)


@needs_ray
def test_ray_starts_one_process_on_each_machine_and_keras_joins_them(tmp_path: Path) -> None:
    """On a real cluster: two processes of one computation, each with the eight GPUs and all cores of its node."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "train.py").write_text(JOINED)
    script = environment(export_planned(tmp_path, TWO, "ray")["document"])["GPUPLAN_SCRIPT"]
    joins = [line.replace(":12355", f":{port}") for line in script.splitlines() if "KERAS_DISTRIBUTION" in line]
    command = shlex.join([sys.executable, str(tmp_path / "train.py"), str(tmp_path)])
    done = run_on_ray(tmp_path, "\n".join(["set -e", *joins, command]))

    assert done.returncode == 0, done.stderr[-3000:]
    said = [json.loads((tmp_path / f"process-{index}.json").read_text()) for index in range(2)]
    assert said == [[2, "0,1,2,3,4,5,6,7", "2"]] * 2


@needs_ray
def test_a_process_that_fails_fails_the_job(tmp_path: Path) -> None:
    """The second machine's script ends with 3, while the first would go on for minutes."""
    done = run_on_ray(tmp_path, 'if [ "$2" = 1 ]; then exit 3; fi; sleep 250')

    assert done.returncode == 1
    assert "returned non-zero exit status 3" in done.stderr
