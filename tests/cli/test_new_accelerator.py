"""An accelerator that does not exist: its row and a price are all that a catalog needs of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

Run = Callable[..., "object"]
GPU = """
[[accelerator]]
name = "Z100-SXM"
vendor = "NVIDIA"
kind = "gpu"
architecture = "Hopper"
compute_capability = "9.0"
sms_or_cores = 132
cuda_cores = 16896
tensor_cores = 528
boost_mhz = 1980
memory_gib = 80
memory_gb_per_s = 3350
fp32_tflop_per_s = 67.0
bf16_tensor_tflop_per_s = 989.4
tdp_w = 700
source = "the data sheet of a GPU that does not exist"
read_on = 2026-07-01
confidence = "low"
"""
TPU = """
[[accelerator]]
name = "TPU-v9"
vendor = "Google"
kind = "tpu"
architecture = "TPU v9"
memory_gib = 32
memory_gb_per_s = 1600
bf16_tensor_tflop_per_s = 900
matmul_share = 0.5
ici_gbit_per_s_per_direction = 800
chips_per_host = 8
google_runtime = "v2-alpha-tpuv9"
source = "the data sheet of a TPU that does not exist"
read_on = 2026-07-01
confidence = "low"
"""
PRICES = """\
a9-highgpu-1g,Z100-SXM,1,26,234,us-central1,on_demand,3.00,2026-11-20,karpenter-gcp,false,true,active,
tpu-v9-1,TPU-v9,1,,,us-central1,on_demand,2.00,2026-11-20,karpenter-gcp,false,true,active,
"""


@pytest.fixture(autouse=True)
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packaged catalog with both rows, as the user's own."""
    folder = tmp_path / "catalog"
    shutil.copytree(str(files("gpuplan.catalog")), folder, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    for name, text in (("accelerators.toml", GPU + TPU), ("prices/gcp.csv", PRICES)):
        (folder / name).write_text((folder / name).read_text() + text)
    monkeypatch.setenv("GPUPLAN_CATALOG_DIR", str(folder))
    monkeypatch.setenv("GPUPLAN_TODAY", "2026-11-28")
    return folder


@pytest.mark.parametrize(("name", "memory_gib"), [("Z100-SXM", 80), ("TPU-v9", 32)])
def test_a_row_is_enough_for_answers(gpuplan: Run, saved: str, catalog: Path, name: str, memory_gib: int) -> None:
    """It is valid, listed, found in any spelling, estimated in its range, and compared with a card on a desk."""
    assert gpuplan("catalog", "check", str(catalog)).code == 0
    listed = json.loads(gpuplan("accelerators", "--json").out)["accelerators"]
    assert [row["memory_gib"] for row in listed if row["name"] == name] == [memory_gib]
    (offer,) = json.loads(gpuplan("offers", "--accelerator", name.lower(), "--json").out)["offers"]
    assert offer["accelerator"] == name
    done = gpuplan("estimate", saved, "--accelerator", name, "--json")
    (estimated,) = json.loads(done.out)["offers"]
    assert 0 < estimated["step_time_s"]["low"] < estimated["step_time_s"]["mid"] < estimated["step_time_s"]["high"]
    rig = ("rig", "--accelerator", name, "--price", "20000", "--json", "--assume", "power_w=500")
    assert {row["instance_type"] for row in json.loads(gpuplan(*rig).out)["rivals"]} == {offer["instance_type"]}


def test_a_gpu_is_launched_by_its_architecture(
    gpuplan: Run, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image is the one that serves Hopper; the calls are those of any machine of Compute Engine."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import keras\n")
    gpuplan("estimate", saved, "--accelerator", "z100 sxm", "-o", "plan.json")
    asked = ("launch", "plan.json", "--script", "train.py", "--dry-run", "-O", "project=p")
    done = gpuplan(*asked, "--source", "git:https://github.com/o/r@main")

    assert done.code == 0, done.err
    assert "a9-highgpu-1g (Z100-SXM), us-central1-a" in done.out
    assert "common-cu129-ubuntu-2404-nvidia-580" in done.out


def test_a_tpu_is_launched_and_exported_by_its_row(
    gpuplan: Run, saved: str, catalog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runtime and chips of one host are those of the row: eight are one machine, and a container gets them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import keras\n")
    row = "tpu-v9-8,TPU-v9,8,,,us-central1,on_demand,16.00,2026-11-20,karpenter-gcp,false,true,active,\n"
    (catalog / "prices" / "gcp.csv").write_text((catalog / "prices" / "gcp.csv").read_text() + row)
    gpuplan("estimate", saved, "--accelerator", "TPU v9", "--devices", "8", "-o", "plan.json")
    asked = ("plan.json", "--script", "train.py", "--source")

    launched = gpuplan("launch", *asked, "image:example.org/train:1", "--dry-run", "--json", "-O", "project=p")
    assert launched.code == 0, launched.err
    assert "v2-alpha-tpuv9" in launched.out
    assert "docker run --rm --init --network host --privileged" in launched.out
    for engine, words in (("skypilot", "runtime_version: v2-alpha-tpuv9"), ("dstack", "v9-8")):
        exported = gpuplan("export", *asked, "git:https://github.com/o/r@main", "--to", engine)
        assert exported.code == 0, exported.err
        assert words in exported.out
