"""The benchmark of XLA's memory compiles the step that an estimate traces."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import keras
import pytest
from gpuplan.workload.trace.jax import step as tracing
from jax.experimental import topologies
from xla_memory import compiled_memory


def test_arguments_are_variables_and_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand, compiled for the CPU: three dense layers, Adam's two copies, its count and rate, the mean loss."""
    fake_topology = SimpleNamespace(devices=jax.devices("cpu"))
    monkeypatch.setattr(topologies, "get_topology_desc", lambda **_: fake_topology)
    monkeypatch.setenv("KERAS_BACKEND", "jax")  # the benchmark is a process, and leaves all of this changed
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setattr(tracing, "prepare_step", tracing.prepare_step)
    for module in (keras.config, keras.mixed_precision):
        for name in ("set_dtype_policy", "set_global_policy"):
            monkeypatch.setattr(module, name, getattr(module, name, None), raising=False)
    parameters = (784 + 1) * 16 + (16 + 1) * 16 + (16 + 1) * 10
    state, batch = 4 * (3 * parameters + 2 + 2), 4 * 64 * (784 + 1)
    found = compiled_memory("benchmarks/workloads.py:mlp?width=16&depth=2", 64, "float32", "V100-16GB")
    assert (found["argument_bytes"], found["alias_bytes"]) == (state + batch, state)
