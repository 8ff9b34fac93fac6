"""`gpuplan.estimate()` changes nothing of the process that calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import gpuplan
import pytest
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.options import WorkloadOptions

EXAMPLES = Path(__file__).parents[1] / "examples"
# Looks at the process before and after an estimate, and at every switch of the collector in between.
SCRIPT = """
import gc, json, os, signal, sys, threading

switched = []

def watched(name):
    switch = getattr(gc, name)
    def call(*arguments):
        switched.append(name)
        return switch(*arguments)
    return call

for name in ("disable", "enable", "freeze", "unfreeze", "set_threshold"):
    setattr(gc, name, watched(name))

def state():
    return {
        "environment": dict(os.environ), "folder": os.getcwd(), "path": sys.path,
        "threads": [thread.name for thread in threading.enumerate()],
        "collector": [gc.isenabled(), gc.get_freeze_count(), gc.get_threshold()],
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)],
    }

import gpuplan

model = sys.argv[1]
if model == "keras.Model":
    import keras
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)], name="given")
    model.compile("adam", "mse")
    switched.clear()
before = json.loads(json.dumps(state()))
found = gpuplan.estimate(model, accelerators=["T4"])
after = json.loads(json.dumps(state()))
print(json.dumps({"before": before, "after": after, "switched": switched, "offers": len(found.offers)}))
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The MNIST example as a saved workload."""
    path = tmp_path_factory.mktemp("saved") / "mnist.json"
    workload = load_workload(str(EXAMPLES / "mnist_cnn.py"), options=WorkloadOptions())
    path.write_text(json.dumps(workload.to_json()))
    return path


@pytest.mark.parametrize("form", ["saved workload", "keras.Model"])
def test_an_estimate_leaves_the_process_as_it_was(form: str, saved: Path, tmp_path: Path) -> None:
    """Environment, threads, collector, signals and folders, though the project's file sets the cache folder."""
    (tmp_path / "gpuplan.toml").write_text('cache_dir = "kept here"\n')
    environment = {name: value for name, value in os.environ.items() if name != "GPUPLAN_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, form if form == "keras.Model" else str(saved)],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    found = json.loads(done.stdout)

    assert found["offers"] > 10
    assert found["after"] == found["before"]
    # The trace of a model object pauses the collector (trace/jax/step.py), and leaves it as it was.
    traces = len(found["switched"]) // 2  # a second one for the part of the batch of one of several devices
    assert found["switched"] == ["disable", "enable"] * traces
    assert (traces == 0) == (form == "saved workload")
    assert not (tmp_path / "kept here").exists()  # neither a saved workload nor a model object is kept


def test_no_thread_outlives_an_estimate(saved: Path) -> None:
    """The caller has the threads that it had before."""
    before = threading.enumerate()
    gpuplan.estimate(str(saved), accelerators=["T4"])

    assert threading.enumerate() == before
