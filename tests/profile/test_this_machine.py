"""Steps that are timed on this machine: windows of a made-up process, and a real model that sleeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories import make_accelerator, make_workload
from gpuplan.profile import measuring_process, this_machine
from gpuplan.profile.this_machine import LONGEST_STEP_S, measure_step
from gpuplan.units import GIB
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.model import Workload
from gpuplan.workload.options import WorkloadOptions

CPU = replace(make_accelerator("CPU"), kind="cpu")


def measure(model: str, workload: Workload, tell: Callable[[str], None] = lambda line: None) -> Any:
    return measure_step(model, workload, CPU, options=WorkloadOptions(), argv=(), tell=tell)


class FakeProcess:
    """A measuring process that sends given messages once it may begin."""

    messages: tuple[tuple[str, float], ...] = ()
    is_late, message = False, None
    load: dict[str, float] | None = None

    def __init__(self, request: Any, on_event: Callable[[dict[str, Any]], None], terms: object, **_: Any) -> None:
        self.listen, self.request = on_event, request
        self.result = SimpleNamespace(message=self.message, is_late=self.is_late, load=self.load)
        self.limits_s: list[float | None] = []

    def run(self, *, until: str = "done") -> SimpleNamespace:
        """Send the messages, unless the process is only to get ready."""
        assert self.request["brief"]
        for event, step_s in self.messages if until == "done" else ():
            self.listen({"event": event, "step_s": step_s})
        return self.result

    def start(self, *, limit_s: float | None) -> None:
        """Allow it to measure."""
        self.limits_s.append(limit_s)

    def stop(self) -> None:
        """End."""


@pytest.mark.parametrize(
    ("messages", "is_late", "expected"),
    [
        # the median of the windows, and a tenth to both sides or 80 % of the windows
        ((("warm", 9.0), ("window", 1.0), ("window", 2.0), ("window", 1.1)), False, (1.1, 1.0, 2.0)),
        ((("window", 1.0),) * 3, False, (1.0, 1 / 1.1, 1.1)),
        # slow steps, of which the first is left out where there are more
        ((("warm", 4.0), ("warm", 2.0), ("warm", 2.2)), True, (2.1, 2.1 / 1.1, 2.31)),
        ((("warm", 4.5),), True, (4.5, 4.5 / 1.1, 4.95)),
    ],
)
def test_the_time_of_a_step_is_the_median_of_its_windows(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    messages: tuple[tuple[str, float], ...],
    expected: tuple[float, ...],
    *,
    is_late: bool,
) -> None:
    """By hand, and progress for each."""
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path))
    fake = type("FakeSteps", (FakeProcess,), {"messages": messages, "is_late": is_late})
    monkeypatch.setattr(measuring_process, "MeasuringProcess", fake)
    told: list[str] = []
    small = make_workload(memory=make_workload().memory, parameters=7)
    monkeypatch.setattr(this_machine, "_fits", lambda workload: True)
    found = measure("train.py", small, told.append)

    assert (found.step_s, found.low_s, found.high_s) == pytest.approx(expected)
    assert found.least_s is None
    assert len(told) == 1 + len(messages)
    assert this_machine.load_step(small, CPU) == found


@pytest.mark.parametrize(("is_late", "least_s"), [(True, LONGEST_STEP_S), (False, None)])
def test_a_step_that_does_not_end_is_a_lower_bound(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, least_s: float | None, *, is_late: bool
) -> None:
    """No second step within 10 s: each takes over 5 s. A process that failed says nothing."""
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(this_machine, "_fits", lambda workload: True)
    monkeypatch.setattr(
        measuring_process, "MeasuringProcess", type("FakeSlow", (FakeProcess,), {"is_late": is_late})
    )
    found = measure("train.py", make_workload())

    assert (found.step_s, found.least_s) == (None, least_s)
    assert this_machine.load_step(make_workload(), CPU) == found


def test_a_busy_machine_is_marked_and_measured_again_once_it_is_quiet(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Others used 40 % of it: the note says so, and it is due as soon as they use under a tenth."""
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(this_machine, "_fits", lambda workload: True)
    kinds = {"messages": (("window", 1.0),), "load": {"other_share": 0.4}}
    monkeypatch.setattr(measuring_process, "MeasuringProcess", type("FakeBusy", (FakeProcess,), kinds))
    workload = make_workload()
    found = measure("train.py", workload)
    row = this_machine.build_row(this_machine.load_step(workload, CPU), workload, CPU)

    assert row is not None
    assert row.source == f"a few steps on this machine, {found.day}, of which others used 40%"
    for busy, is_due in ((0.5, False), (0.05, True)):
        monkeypatch.setattr(this_machine, "measure_others_share", lambda share=busy: share)
        assert found.is_due is is_due
    assert not replace(found, others_share=0.05).is_due


def test_weights_are_made_only_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 GiB of a step need 2.5 GiB that are available; no process is started."""
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=2.4 * GIB))

    assert measure("train.py", make_workload()) is None
    assert not this_machine._fits(make_workload())
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=2.6 * GIB))
    assert this_machine._fits(make_workload())


SLEEPING = """
import time
import jax, keras, numpy as np

class Sleep(keras.layers.Layer):
    def call(self, x):
        @jax.custom_vjp
        def wait(x):
            return jax.pure_callback(lambda v: (time.sleep(0.1), v)[1], jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        wait.defvjp(lambda x: (wait(x), None), lambda _, g: (g,))
        return wait(x)

def build():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), Sleep(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
"""


@pytest.mark.slow
def test_a_step_that_sleeps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each step sleeps for 0.1 s."""
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("sleepy.py").write_text(SLEEPING, encoding="utf-8")
    workload = load_workload("sleepy.py:build", options=WorkloadOptions(use_cache=False))
    found = measure("sleepy.py:build", workload)

    assert found.step_s is not None
    assert 0.1 <= found.step_s < 0.2


COMMON = """
import os, time
os.environ["KERAS_BACKEND"] = "{backend}"
import keras, numpy as np
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
x, y = np.ones((64, 8), "float32"), np.zeros((64, 4), "float32")
"""
LOOPS = {
    "jax": """
import jax
optimizer = keras.optimizers.Adam()
optimizer.build(model.trainable_variables)

def compute_loss(weights, x, y):
    return ((model.stateless_call(weights, [], x)[0] - y) ** 2).mean()

@jax.jit
def step(weights, state, x, y):
    gradients = jax.grad(compute_loss)(weights, x, y)
    return optimizer.stateless_apply(state, gradients, weights)

weights, state = [v.value for v in model.trainable_variables], [v.value for v in optimizer.variables]
for epoch in range(10):
    for _ in range(100):
        weights, state = step(weights, state, x, y)
        time.sleep(0.2)
    open("epochs.txt", "a").write("another")
""",
    "tensorflow": """
import tensorflow as tf
optimizer = keras.optimizers.Adam()

@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

for epoch in range(10):
    for _ in range(100):
        step(x, y)
        time.sleep(0.2)
    open("epochs.txt", "a").write("another")
""",
    "torch": """
import torch
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(10):
    for _ in range(100):
        optimizer.zero_grad()
        ((model(x) - torch.from_numpy(y)) ** 2).mean().backward()
        optimizer.step()
        time.sleep(0.2)
    open("epochs.txt", "a").write("another")
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("backend", LOOPS)
def test_a_loop_of_the_scripts_own_is_timed_as_it_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str
) -> None:
    """A step lasts until the end of the next: the script sleeps for 0.2 s in between. It writes nothing."""
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path / "cache"))
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.chdir(own)
    Path("loop.py").write_text(COMMON.format(backend=backend) + LOOPS[backend], encoding="utf-8")
    workload = load_workload("loop.py", options=WorkloadOptions(use_cache=False))
    found = measure("loop.py", workload)

    assert (workload.total_steps, workload.batch_size) == (1_000, 64)
    assert found.step_s is not None
    assert 0.2 <= found.step_s < 0.6
    assert [path.name for path in own.iterdir()] == ["loop.py"]
