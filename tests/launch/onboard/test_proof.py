"""The proof before training: what a backend reports, against what a plan expects."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpuplan.launch.agent import proof
from gpuplan.launch.core.request import LaunchRequest, RunSpec
from gpuplan.launch.core.startup import build_job
from launch.fake_cloud import START, candidate

# Names as NVIDIA's driver and JAX report them; a fraction of an A10 is a virtual GPU.
SEEN = {
    "K80-board": "Tesla K80", "M60": "Tesla M60", "P100-PCIe": "Tesla P100-PCIE-16GB", "T4": "Tesla T4",
    "V100-16GB": "Tesla V100-SXM2-16GB", "V100-32GB-PCIe": "Tesla V100-PCIE-32GB", "A10G": "NVIDIA A10G",
    "A10": "NVIDIA A10-4Q", "QuadroRTX6000": "Quadro RTX 6000", "RTX6000Ada": "NVIDIA RTX 6000 Ada Generation",
    "RTXPRO6000": "NVIDIA RTX PRO 6000 Blackwell Server Edition", "A100-40GB": "NVIDIA A100-SXM4-40GB",
    "A100-80GB-PCIe": "NVIDIA A100 80GB PCIe", "L4": "NVIDIA L4", "L40S": "NVIDIA L40S",
    "H100-SXM": "NVIDIA H100 80GB HBM3", "H100-NVL": "NVIDIA H100 NVL", "H200": "NVIDIA H200",
    "GH200": "NVIDIA GH200 480GB", "B200": "NVIDIA B200", "GB200": "NVIDIA GB200", "B300": "NVIDIA B300 SXM6 AC",
    "RTX4090": "NVIDIA GeForce RTX 4090", "TPU-v5e": "TPU v5 lite", "TPU-v6e": "TPU v6 lite",
    "MI300X": "AMD Instinct MI300X",
}  # fmt: skip


def expected(accelerator: str, devices: float = 1) -> dict[str, Any]:
    """Return what the supervisor of a plan is told to expect."""
    one = candidate().model_copy(update={"accelerator": accelerator, "devices": devices})
    spec = RunSpec(script="train.py", source="folder:/x")
    request = LaunchRequest(run="r1", owner="me", made_at=START, provider="aws", candidates=(one,), spec=spec)
    found: dict[str, Any] = build_job(request, one, 1, work="/work", folder=None)["expects"]
    return found


def problem(found: list[str], accelerator: str, devices: float = 1) -> str:
    """Return the difference between devices and a plan."""
    return proof.find_device_problem(found, backend="jax", expected=expected(accelerator, devices))


@pytest.mark.parametrize("accelerator", sorted(SEEN))
def test_the_accelerator_of_the_plan_is_recognized(accelerator: str) -> None:
    assert problem([SEEN[accelerator]] * 8, accelerator, 8) == ""
    assert problem([SEEN[accelerator]], accelerator, 8).startswith("jax sees 1 accelerator (")


@pytest.mark.parametrize(
    ("found", "accelerator", "devices", "said"),
    [
        ([], "T4", 1, "jax sees 0 accelerators (only the CPU), and the plan has 1 (T4)"),
        (["Tesla T4"], "L4", 1, "jax sees 1 accelerator (Tesla T4), and the plan has 1 (L4)"),
        (["TPU v5 lite"] * 4, "TPU-v5e", 8, "jax sees 4 accelerators (TPU v5 lite), and the plan has 8 (TPU-v5e)"),
        (["NVIDIA A10-4Q"], "A10", 0.1667, ""),
        (["TPU v3"] * 8, "TPU-v3", 4, ""),  # two cores a chip
        # A GPU that the catalog does not have is told from others too.
        (["Tesla T4"], "RTX9090", 1, "jax sees 1 accelerator (Tesla T4), and the plan has 1 (RTX9090)"),
        ([], "CPU", 1, ""),
    ],
)
def test_number_and_kind(found: list[str], accelerator: str, devices: float, said: str) -> None:
    assert problem(found, accelerator, devices) == said


def test_what_runs_here_is_not_proven() -> None:
    """On this computer the script runs in gpuplan's own environment, which costs nothing."""
    one = candidate()
    spec = RunSpec(script="train.py", source="folder:/x")
    request = LaunchRequest(run="r1", owner="me", made_at=START, provider="local", candidates=(one,), spec=spec)
    assert build_job(request, one, 1, work="/work", folder=None)["expects"] is None


def test_a_disk_is_written_and_needs_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert proof.find_disk_problem(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []
    assert "cannot be written: [Errno 2]" in proof.find_disk_problem(tmp_path / "missing")
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(2**29))
    assert proof.find_disk_problem(tmp_path) == "the disk has 0.50 GiB left, and needs 1"


def test_the_devices_of_each_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of PyTorch and TensorFlow by fakes: this computer has no GPU."""
    cpu, gpu = (SimpleNamespace(platform=name, device_kind=f"a {name}") for name in ("cpu", "gpu"))
    cuda = SimpleNamespace(device_count=lambda: 2, get_device_name=lambda index: f"GPU {index}")
    details = SimpleNamespace(get_device_details=lambda device: {"device_name": device})
    config = SimpleNamespace(list_physical_devices=lambda kind: [f"a {kind}"], experimental=details)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(devices=lambda: [cpu, gpu]))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(config=config))

    assert [proof.list_devices(name) for name in ("jax", "torch", "tensorflow")] == [
        ["a gpu"],
        ["GPU 0", "GPU 1"],
        ["a GPU"],
    ]


STAND_IN = """
import os, time
if os.environ["KERAS_BACKEND"] == "jax": time.sleep(60)
class ops: convert_to_numpy = matmul = staticmethod(lambda *a: 0); ones = staticmethod(lambda shape: 1)
class backend: backend = staticmethod(lambda: os.environ["KERAS_BACKEND"])
"""


@pytest.mark.parametrize(
    ("script", "log"),
    [
        ('import os; os.environ["KERAS_BACKEND"] = "torch"', "gpuplan: torch sees 0 accelerators (only the CPU)"),
        ("os.environ.setdefault('KERAS_BACKEND', 'torch')", "gpuplan: torch sees 0 accelerators (only the CPU)"),
        ("os.environ['KERAS_BACKEND'] = 'jax'", "gpuplan: proof: no answer in 1 s"),
    ],
)
def test_the_backend_is_that_of_the_script_and_a_proof_that_hangs_has_failed(
    script: str, log: str, tmp_path: Path
) -> None:
    """Keras and PyTorch are stand-ins; with JAX, the one of Keras hangs, as a driver may."""
    (tmp_path / "keras.py").write_text(STAND_IN)
    (tmp_path / "torch.py").write_text("class cuda: device_count = staticmethod(lambda: 0)")
    (tmp_path / "train.py").write_text(script)
    params = {"work": str(tmp_path), "cwd": str(tmp_path), "script": "train.py", "cap_s": 60, "attempt": 1}
    params |= {"watchdog_s": None, "notices": None, "restarts": 0, "expects": expected("T4")}
    (tmp_path / "params.json").write_text(json.dumps(params))
    program = "import sys, pathlib; from gpuplan.launch.agent import supervise as s"
    with (tmp_path / "log-1.txt").open("w") as file:
        subprocess.run(
            [
                sys.executable,
                "-c",
                f"{program}; s.PROOF_S = 1; s.Supervisor(pathlib.Path(sys.argv[1])).run()",
                str(tmp_path),
            ],
            env={"PYTHONPATH": str(tmp_path)},
            stderr=file,
            check=False,
        )

    outcome = json.loads((tmp_path / "outcome.json").read_text())
    assert (outcome["status"], outcome["stage"]) == ("failed_before_training", "proof")
    assert log in outcome["log"]
