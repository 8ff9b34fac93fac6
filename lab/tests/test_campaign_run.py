"""Kernels and steps of a campaign, really run on this machine's CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from gpuplan.profile.measuring_process import CHILD
from gpuplan.records import to_plain
from gpuplan.workload.options import WorkloadOptions

from lab.campaign import build_request
from lab.campaign_kernels import Kernel, list_kernels
from lab.campaign_plan import QUICK_RULES, Session
from lab.campaign_process import OPERATIONS, _linearize, build_program
from lab.campaign_round import RoundLimits, run_round
from lab.campaign_rows import ROOT

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
TINY = "benchmarks/workloads.py:mlp?width=16&depth=1"
# The first kernel of an operation, in each direction.
TRIED = ("matmul", "conv_transpose", "cross_entropy", "embedding", "attention")


def find_kernels(op: str) -> list[Kernel]:
    return [one for one in list_kernels(["float32"], quick=True) if one.op == op][:3]


@pytest.mark.parametrize("op", TRIED)
def test_a_kernel_returns_what_its_direction_asks_for(op: str) -> None:
    """Shapes of the result, or of the arguments whose gradients they are."""
    import jax

    for kernel in find_kernels(op):
        step, synchronize = build_program(kernel, "jax")(2)
        found = [leaf.shape for leaf in jax.tree.leaves(step())]
        synchronize()
        if kernel.direction == "forward":
            assert found == [kernel.out]
        elif kernel.argument is None:
            assert found == list(kernel.shapes)
        else:
            assert found == [kernel.shapes[kernel.argument]]


def test_a_gradient_is_that_of_calculus() -> None:
    """The gradient of a product x w is g wᵀ for x, and xᵀ g for w."""
    import jax.numpy as jnp
    import numpy as np

    kernel = find_kernels("matmul")[0]
    random = np.random.default_rng(0)
    x, w, g = (jnp.asarray(random.standard_normal(shape), "float32") for shape in (*kernel.shapes, kernel.out))
    function = OPERATIONS["matmul"](kernel)
    for one, expected in enumerate((g @ w.T, x.T @ g)):
        pull, gradient = _linearize(function, one, [x, w], g)
        np.testing.assert_allclose(pull(gradient)[0], expected, rtol=1e-4, atol=1e-4)


def test_an_optimizer_runs_on_its_own_state() -> None:
    """Twice: its first state was donated."""
    kernel = next(one for one in list_kernels(["float32"], quick=True) if one.settings.get("kind") == "adam")
    step, synchronize = build_program(kernel, "jax")(1)
    for _ in range(2):
        step()
    synchronize()


def run_steps(*models: str, limits: RoundLimits | None = None, seconds: float = 300.0) -> dict[str, Any]:
    """Return the results of one round of a JAX step of each model."""
    options = WorkloadOptions(batch_size=4, precision="float32").to_json()
    requests = [
        (
            CHILD,
            {
                "base": str(ROOT), "backend": "jax", "device": "cpu", "reference": model, "options": options,
                "argv": [], "data": "synthetic", "pipeline": False, "rules": to_plain(QUICK_RULES),
            },
        )
        for model in models
    ]  # fmt: skip
    found = run_round(requests, limits=limits or RoundLimits(), stop_at_s=time.monotonic() + seconds)
    return {models[place]: result for place, result in found}


@pytest.mark.slow
def test_a_model_that_fails_does_not_end_the_round() -> None:
    """One of two breaks while it is built: it has a reason, and the other is measured, its compilation apart."""
    broken, fine = run_steps("benchmarks/workloads.py:no_such_model", TINY).values()
    assert (broken.status, fine.status) == ("failed", "measured")
    assert "no_such_model" in broken.message
    assert fine.values["step"]["median_s"] > 0
    assert fine.values["prepare"]["compile_s"] > 10 * fine.values["fit"]["median_s"]


@pytest.mark.slow
def test_a_process_that_takes_too_much_memory_or_time_ends_alone() -> None:
    """64 MiB are less than Python with JAX holds; half a second is less than importing Keras takes."""
    [full] = run_steps(TINY, limits=RoundLimits(host_bytes=64 * 2**20)).values()
    assert full.status == "out_of_memory"
    assert "GiB of host memory" in full.message
    [late] = run_steps(TINY, limits=RoundLimits(prepare_s=0.5)).values()
    assert (late.status, late.is_late) == ("failed", True)


def run_command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lab", "campaign", *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip


def test_a_cpus_rows_stay_out_of_the_accelerators_folder() -> None:
    """Without --output a CPU is refused, before anything is measured."""
    done = run_command("--quick", "--device", "cpu")
    assert done.returncode == 2
    assert "name a folder with --output" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", pytest.param("torch", marks=pytest.mark.long)])
def test_every_kernel_and_kind_of_step_runs_once(backend: str, tmp_path: Path) -> None:
    """Nothing fails on a CPU; a second campaign measures nothing again; files of both lists can be converted."""
    if find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    command = ("--quick", "--device", "cpu", "--backend", backend, "-o", tmp_path, "--budget-s", "800")
    done = run_command(*command)
    assert done.returncode == 0, done.stderr
    profile = json.loads((tmp_path / f"cpu-{backend}.json").read_text())
    failed = [row for row in (*profile["rows"], *profile["kernels"]) if row["status"] != "measured"]
    assert not failed
    assert {row["op"] for row in profile["kernels"]} == {one.op for one in list_kernels(quick=True)}
    assert {(row["mode"], row["jit_compile"]) for row in profile["rows"]} >= {("train", None), ("infer", None)}
    for row in profile["rows"]:
        assert row["step_ms"] > 0
        assert row["fit"]["step_ms"] > 0
        assert row["prepare"]["float32_products"]
    again = run_command(*command)
    assert "0 rows to measure" in again.stderr
    csv = tmp_path / "rows.csv"
    assert run_command("--to-csv", csv, tmp_path / f"cpu-{backend}.json").returncode == 0
    assert len(csv.read_text().splitlines()) == 1 + len(profile["rows"])


def test_a_kernels_request_is_plain_json() -> None:
    """It is written to a file for the process."""
    session = Session(
        platform="cpu", profiles={}, limits=RoundLimits(), together=1, stop_at_s=0.0, quick=True, retry=False
    )
    module, request = build_request("jax", tuple(find_kernels("matmul")), session)
    assert module == "lab.campaign_process"
    assert json.loads(json.dumps(request))["kernels"][0]["op"] == "matmul"
