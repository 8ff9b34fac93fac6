"""Models that stay built for further traces: each trace equals that of a freshly built model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import pytest
from gpuplan.errors import GpuplanError
from gpuplan.workload.build.assemble import ModelAssembler, RunProperties
from gpuplan.workload.capture import tracing_process
from gpuplan.workload.capture.load import WorkloadOptions, load_workload
from gpuplan.workload.capture.materialize import abstract_variables
from gpuplan.workload.capture.tracing_process import keep_models_built, kept_models
from gpuplan.workload.options import ScriptOptions
from keras import layers

OPTIONS = [
    WorkloadOptions(batch_size=8),
    WorkloadOptions(batch_size=2, derives=True),
    WorkloadOptions(batch_size=2),
    WorkloadOptions(batch_size=8, remat=True),
    WorkloadOptions(batch_size=8, tensor=2),
    WorkloadOptions(batch_size=8, remat=True, tensor=4),
    WorkloadOptions(batch_size=8, tensor=4),
    WorkloadOptions(batch_size=8),
]
MODELS = """
import keras
from keras import layers


def build(width: int = 8):
    return keras.Sequential([keras.Input((4,)), layers.Dense(width), layers.Dense(2)])


def fail_at_two(width: int = 8):
    class Picky(layers.Layer):
        def call(self, x):
            if x.shape[0] == 2:
                raise ValueError("not two")
            return x

    return keras.Sequential([keras.Input((4,)), layers.Dense(width), Picky()])
"""


def build_text() -> Any:
    """Attention, dropout, compiled."""
    ids = keras.Input((16,), dtype="int32")
    x = layers.Embedding(64, 32)(ids)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 8, dropout=0.1)(x, x, use_causal_mask=True))
    model = keras.Model(ids, layers.Dense(64)(layers.Dropout(0.1)(x)))
    model.compile("adamw", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def build_pictures() -> Any:
    """Statistics that a step updates, and a loop; not compiled, which a note says."""
    inputs = keras.Input((8, 8, 3))
    x = layers.BatchNormalization()(layers.Conv2D(4, 3)(inputs))
    x = layers.LSTM(8)(layers.Reshape((36, 4))(x))
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))


class Own(keras.Model):
    """A model without outputs of its own until it is called, which makes a layer in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = layers.Dense(16), layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.head(layers.Activation("relu")(self.hidden(x)))


def build_own() -> Any:
    model = Own()
    model(keras.KerasTensor((None, 6)))
    return model


@pytest.mark.parametrize("build", [pytest.param(build_text, marks=pytest.mark.slow), build_pictures, build_own])
def test_a_trace_is_that_of_a_model_built_anew(build: Any) -> None:
    """Every number, name and note, whatever was traced before."""

    def build_fresh() -> Any:
        keras.backend.clear_session()
        return build()

    run = RunProperties(text="model")
    with abstract_variables():
        fresh = [ModelAssembler(build_fresh(), run=run).assemble(one).to_json() for one in OPTIONS]
        kept = ModelAssembler(build_fresh(), run=run)
        again = [kept.assemble(one).to_json() for one in OPTIONS]

    assert again == fresh
    assert fresh[0] != fresh[1]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Processes that were started."""
    started = []

    class Counted(tracing_process.ScriptProcess):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)

    monkeypatch.setattr(tracing_process, "ScriptProcess", Counted)
    return started


@pytest.fixture
def models(tmp_path: Path) -> str:
    (tmp_path / "models.py").write_text(MODELS)
    return str(tmp_path / "models.py")


def test_one_process_traces_a_model_several_times(models: str, processes: list[Any]) -> None:
    """Batch sizes and recomputation by one, another model or precision by another; none is left."""
    with keep_models_built():
        found = [
            load_workload(
                f"{models}:build", options=WorkloadOptions(batch_size=size, remat=remat, use_cache=False)
            )
            for size, remat in ((4, False), (2, False), (2, True))
        ]
        assert len(processes) == 1
        assert not processes[0]._over.is_set()
        load_workload(f"{models}:build?width=16", options=WorkloadOptions(batch_size=4, use_cache=False))
        assert len(processes) == 2

    assert [one.batch_size for one in found] == [4, 2, 2]
    assert all(one._over.is_set() for one in processes)
    assert kept_models.get() is None


def test_what_fails_at_one_size_is_traced_at_another(models: str, processes: list[Any]) -> None:
    """The user's error is that of a process of its own; a process that ended is started again."""
    options = [WorkloadOptions(batch_size=size, use_cache=False) for size in (4, 2, 3)]
    with pytest.raises(GpuplanError) as alone:
        load_workload(f"{models}:fail_at_two", options=options[1])
    with keep_models_built():
        load_workload(f"{models}:fail_at_two", options=options[0])
        share = replace(options[1], derives=True)  # of a batch among devices, whose code is not run
        assert load_workload(f"{models}:fail_at_two", options=share).batch_size == 2
        with pytest.raises(GpuplanError) as caught:
            load_workload(f"{models}:fail_at_two", options=options[1])
        assert load_workload(f"{models}:fail_at_two", options=options[2]).batch_size == 3
        assert len(processes) == 2
        processes[1].stop()
        assert load_workload(f"{models}:fail_at_two", options=options[0]).batch_size == 4

    assert (str(caught.value), caught.value.hint) == (str(alone.value), alone.value.hint)
    assert len(processes) == 3


def test_each_trace_has_the_time_limit_for_itself(models: str, processes: list[Any]) -> None:
    """The time between two traces, in which the user's code rests, does not count."""
    options = WorkloadOptions(batch_size=4, use_cache=False, script=ScriptOptions(timeout_s=20.0))
    with keep_models_built():
        load_workload(f"{models}:build", options=options)
        processes[0]._begun_s -= 30.0
        assert load_workload(f"{models}:build", options=options).batch_size == 4

    assert len(processes) == 1
