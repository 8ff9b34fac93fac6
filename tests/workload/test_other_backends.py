"""The backends on which a step that cannot be traced is tried, in their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpuplan.errors import GpuplanError
from gpuplan.workload.capture import tracing_process
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
