"""Estimates written by hand: the few keys of `plan.json` that launching reads, for offers of the catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import gpuplan
from gpuplan.launch.arguments import LaunchArgs
from gpuplan.launch.export import export_offer

__all__ = [
    "GIT",
    "OFFERS",
    "TWO",
    "export_of",
    "export_plan",
    "export_planned",
    "offer",
    "write_plan",
    "write_sharded_plan",
]

GIT = "git:https://example.org/me/repo.git@v1"


def offer(provider: str, instance_type: str, accelerator: str, devices: float = 1, **more: Any) -> dict[str, Any]:
    """Return an entry of `offers[]`: an hour and a half at $1 an hour, one day's price."""
    return {
        "provider": provider,
        "instance_type": instance_type,
        "accelerator": accelerator,
        "devices": devices,
        "region": "us-east-1",
        "purchase": "on_demand",
        "usd_per_hour": "1.00",
        "price_as_of": "2026-08-01",
        "train_time_s": {"low": 3000.0, "mid": 3600.0, "high": 5400.0},
        "step_time_s": {"low": 0.09, "mid": 0.1, "high": 0.15},
        "complete": True,
        "memory_fits": True,
        "status": "active",
        **more,
    }


OFFERS = {
    "aws": offer("aws", "g4dn.xlarge", "T4"),
    "aws-spot": offer("aws", "p3.8xlarge", "V100-16GB", 4, purchase="spot"),
    "gcp-attached": offer("gcp", "n1-standard-8+2xT4", "T4", 2, region="us-central1"),
    "gcp-spot": offer("gcp", "a2-highgpu-1g", "A100-40GB", region="us-central1", purchase="spot"),
    "gcp-cpu": offer("gcp", "n2-standard-8", "CPU", region="us-central1"),
    "gcp-tpu": offer("gcp", "tpu-v5litepod-8", "TPU-v5e", 8, region="us-west4"),
    "gcp-slice": offer("gcp", "tpu-v6e-16", "TPU-v6e", 16, region="us-east5"),
    "azure": offer("azure", "Standard_NC4as_T4_v3", "T4", region="eastus"),
    "azure-spot": offer("azure", "Standard_NC24ads_A100_v4", "A100-80GB-PCIe", region="eastus", purchase="spot"),
    "lambda": offer("lambda", "gpu_1x_a10", "A10", region="any"),
    "runpod": offer("runpod", "NVIDIA GeForce RTX 4090 [secure]", "RTX4090", region="any"),
    "runpod-community": offer("runpod", "NVIDIA GeForce RTX 4090 [community]", "RTX4090", region="any"),
    "vast": offer("vast", "1x A100 SXM4 40GB [lowest]", "A100-40GB", region="any"),
    "colab": offer("colab", "payg-t4", "T4", region="any"),
    "gcp-part": offer("gcp", "g4-standard-12", "RTXPRO6000", 0.25, region="us-central1"),
    "trainium": offer("aws", "trn1.2xlarge", "Trainium1"),
}  # fmt: skip
TWO = offer("aws", "p4d.24xlarge", "A100-40GB", 16, hosts=2, usd_per_hour="60.00")


def write_plan(folder: Path, *offers: Mapping[str, Any], model: str = "train.py") -> Path:
    """Write an estimate that recommends its first offer."""
    path = folder / "plan.json"
    plan = {
        "schema": "gpuplan.estimate/1",
        "workload": {"model": model},
        "offers": offers,
        "recommendation": {"cheapest": {"offer": 0}},
    }
    path.write_text(json.dumps(plan))
    return path


def write_sharded_plan(path: Path) -> Path:
    """Write the estimate of `--provider aws --accelerator A100-40GB --devices 8 --hosts 2 --shard fsdp`."""
    found = gpuplan.estimate(
        "MobileNetV2",
        batch_size=64,
        samples=1_281_167,
        epochs=10,
        providers=["aws"],
        accelerators=["A100-40GB"],
        purchase="on-demand",
        devices=[8],
        hosts=[2],
        shard="fsdp",
    )
    path.write_text(json.dumps(found.to_json()))
    return path


def export_of(folder: Path, key: str, engine: str, *, source: str = GIT, **more: Any) -> dict[str, Any]:
    """Return what `gpuplan export` says of one offer."""
    return export_planned(folder, OFFERS[key], engine, source=source, **more)


def export_planned(
    folder: Path, planned: Mapping[str, Any], engine: str, *, source: str = GIT, **more: Any
) -> dict[str, Any]:
    """Return what `gpuplan export` says of a plan's only offer."""
    return export_plan(write_plan(folder, planned), engine, source=source, **more)


def export_plan(path: Path, engine: str, *, source: str = GIT, **more: Any) -> dict[str, Any]:
    """Return what `gpuplan export` says of a plan."""
    args = LaunchArgs(path=path, source=source, **{"script": "train.py", **more})
    found = export_offer(args, engine=engine, file="f.yaml")
    assert isinstance(found["worst_case_usd"], Decimal)
    return found
