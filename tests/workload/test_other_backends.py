"""The backends on which a step that cannot be traced is tried, in their order."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from gpuplan.errors import GpuplanError
from gpuplan.workload import backend
from gpuplan.workload.capture import tracing_process
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.errors import BackendError, CaptureError
from gpuplan.workload.options import WorkloadOptions

Outcome = GpuplanError | None


class FakeTraces:
    """Traces that fail as they are told to, by backend; those that no one mentions succeed."""

    def __init__(self, outcomes: dict[str, Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
        self.outcomes = outcomes
        monkeypatch.setattr(tracing_process, "_trace_on_mesh", self)
        monkeypatch.setattr(tracing_process, "find_spec", lambda name: name)
        self.tried: list[tuple[str, str | None, bool]] = []

    def __call__(self, text: str, *, backend: str, runs_on: str | None, is_last: bool = False, **how: Any) -> Any:
        self.tried.append((backend, runs_on, is_last))
        outcome = None if is_last else self.outcomes.get(backend)
        if outcome is not None:
            raise outcome
        return {"workload": backend}

    def trace(self) -> Any:
        return tracing_process.trace_in_child("train.py", base=Path(), options=WorkloadOptions(), argv=())


def fail(backend: str | None, *, reached: bool = False, text: str = "fails") -> BackendError:
    return BackendError(text, backend=backend, reached=reached)


@pytest.mark.parametrize(
    ("outcomes", "tried"),
    [
        ({}, [("jax", None, False)]),
        ({"jax": fail("torch")}, [("jax", None, False), ("torch", "torch", False)]),
        ({"jax": fail(None)}, [("jax", None, False), ("tensorflow", None, False)]),
        (
            {"jax": fail("torch"), "torch": fail(None)},
            [("jax", None, False), ("torch", "torch", False), ("tensorflow", None, False)],
        ),
        (
            {"jax": fail("tensorflow", reached=True), "tensorflow": fail(None, reached=True), "torch": fail(None)},
            [
                ("jax", None, False),
                ("tensorflow", "tensorflow", False),
                ("torch", None, False),
                ("jax", None, True),
            ],
        ),
    ],
)
def test_the_named_backend_comes_first_then_the_others(
    outcomes: dict[str, Outcome], tried: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If none can trace every phase, the first that could trace some of them is asked for those."""
    traces = FakeTraces(outcomes, monkeypatch)

    assert traces.trace() == {"workload": tried[-1][0]}
    assert traces.tried == tried


@pytest.mark.parametrize(
    ("outcomes", "raised"),
    [
        ({"jax": fail(None, text="jax"), "tensorflow": fail(None), "torch": fail(None)}, "jax"),
        ({"jax": fail("torch"), "tensorflow": fail(None), "torch": fail(None, text="torch")}, "torch"),
        ({"jax": fail(None, text="jax"), "tensorflow": CaptureError("its data is not here")}, "jax"),
        ({"jax": CaptureError("no such file")}, "no such file"),
    ],
)
def test_the_error_is_that_of_the_users_backend(
    outcomes: dict[str, Outcome], raised: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one that is named, that of JAX; what is no matter of backends is not tried on others."""
    traces = FakeTraces(outcomes, monkeypatch)

    with pytest.raises(GpuplanError, match=raised):
        traces.trace()
    assert traces.tried[0] == ("jax", None, False)
    assert len(traces.tried) == len(outcomes)


@pytest.mark.parametrize(
    ("settings", "installed", "found"),
    [
        (None, ("tensorflow",), "tensorflow"),  # as in Keras's own config.py
        ("{", ("tensorflow",), "tensorflow"),
        ({"floatx": "float32"}, ("tensorflow",), "tensorflow"),
        ({"backend": "tensorflow"}, ("torch",), None),  # cannot run there: JAX is always installed
        ({"backend": "torch"}, ("tensorflow", "torch"), "torch"),
        ({"backend": "jax"}, ("tensorflow",), None),
    ],
)
def test_the_default_backend_is_that_of_keras(
    settings: Any, installed: tuple[str, ...], found: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its file of settings, or its built-in default; only where it is installed."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(backend, "find_spec", lambda name: name if name in installed else None)
    if settings is not None:
        text = settings if isinstance(settings, str) else json.dumps(settings)
        (tmp_path / "keras.json").write_text(text, encoding="utf-8")
    assert backend.find_keras_default() == found


FITS = """
import keras, numpy as np
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
model.compile("sgd", "mse")
model.fit(np.zeros((32, 4)), np.zeros((32, 2)))
"""


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed")
@pytest.mark.parametrize(
    ("begin", "stated", "runs_on"),
    [
        ("", None, "tensorflow"),
        ("import os\nos.environ.setdefault('KERAS_BACKEND', 'jax')\n", None, "jax"),
        ("import os\nassert 'KERAS_BACKEND' not in os.environ\n", None, "tensorflow"),
        ("", "jax", "jax"),
    ],
)
def test_a_script_runs_on_the_backend_that_keras_takes(
    begin: str, stated: str | None, runs_on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the script sets, else the environment, else Keras's settings; a function of a file stays on JAX."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    (tmp_path / "keras.json").write_text('{"backend": "tensorflow"}', encoding="utf-8")
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    if stated is not None:
        monkeypatch.setenv("KERAS_BACKEND", stated)
    (tmp_path / "train.py").write_text(begin + FITS, encoding="utf-8")
    workload = load_workload("train.py", options=WorkloadOptions(use_cache=False), base=tmp_path)

    assert workload.backend == runs_on
    told = [note for note in workload.notes if "on which Keras runs here" in note]
    assert len(told) == (1 if runs_on == "tensorflow" else 0)
