"""Calls of layers in a traced step, counted by hand on small models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpuplan.workload.layer_calls import LayerCalls, SharedWeights
from gpuplan.workload.load import load_workload
from gpuplan.workload.model import Workload
from gpuplan.workload.options import WorkloadOptions
from gpuplan.workload.resize import can_resize, interpolate_workload

BATCH, FLOAT_BYTES = 4, 4
MODELS = """
import keras
from keras import layers


def compiled(inputs, outputs):
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse")
    return model


def chain():
    x = keras.Input((8,))
    return compiled(x, layers.Dense(2, name="c")(layers.Dense(32, name="b")(layers.Dense(16, name="a")(x))))


def skipping():
    x = keras.Input((8,))
    a = layers.Dense(16, name="a")(x)
    b = layers.Dense(64, name="b")(a)
    c = layers.Dense(32, name="c")(b)
    return compiled(x, layers.Dense(2, name="d")(layers.Concatenate(name="join")([a, c])))


def nested():
    x = keras.Input((8,))
    y = keras.Input((16,))
    inner = keras.Model(y, layers.Dense(4, name="b")(layers.Dense(16, name="a")(y)), name="inner")
    return compiled(x, layers.Dense(2, name="head")(inner(layers.Dense(16, name="stem")(x))))


def tied():
    x = keras.Input((6,), dtype="int32")
    table = layers.ReversibleEmbedding(50, 8, tie_weights=True, name="table")
    model = keras.Model(x, table(layers.Dense(8, name="middle")(table(x)), reverse=True))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def penalized():
    x = keras.Input((8,))
    a = layers.Dense(16, name="a", kernel_regularizer="l2")(x)
    return compiled(x, layers.Dense(2, name="b")(layers.BatchNormalization(name="norm")(a)))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    (path / "models.py").write_text(MODELS)
    return path


def trace(folder: Path, name: str, *, batch_size: int = BATCH) -> Workload:
    return load_workload(f"models.py:{name}", options=WorkloadOptions(batch_size=batch_size), base=folder)


def find_calls(workload: Workload) -> LayerCalls:
    assert workload.layer_calls is not None
    return workload.layer_calls


def test_a_cut_of_a_chain_crosses_the_activations_of_one_layer(folder: Path) -> None:
    """Dense 8 x 16, 16 x 32 and 32 x 2 with their biases, on a batch of 4."""
    calls = find_calls(trace(folder, "chain"))

    assert calls.names == ("a", "b", "c")
    assert calls.parameter_bytes == tuple(FLOAT_BYTES * n for n in (8 * 16 + 16, 16 * 32 + 32, 32 * 2 + 2))
    assert calls.crossing_bytes == (0, FLOAT_BYTES * BATCH * 16, FLOAT_BYTES * BATCH * 32)
    assert calls.shared == ()


def test_a_skip_connection_crosses_every_cut_between_its_ends(folder: Path) -> None:
    """The 16 features of `a` are needed by `b` and by `join`: they cross with the 64 of `b` and the 32 of `c`."""
    calls = find_calls(trace(folder, "skipping"))

    assert calls.names == ("a", "b", "c", "join", "d")
    features = (0, 16, 16 + 64, 16 + 32, 16 + 32)
    assert calls.crossing_bytes == tuple(FLOAT_BYTES * BATCH * n for n in features)


def test_a_nested_model_counts_by_its_layers(folder: Path) -> None:
    assert find_calls(trace(folder, "nested")).names == ("stem", "inner/a", "inner/b", "head")


def test_both_calls_of_a_tied_embedding_read_its_table(folder: Path) -> None:
    """50 x 8 numbers count for the first call; the backward pass of each call belongs to it."""
    workload = trace(folder, "tied")
    calls = find_calls(workload)

    assert calls.names == ("table", "middle", "table")
    assert calls.shared == (SharedWeights(calls=(0, 2), size_bytes=FLOAT_BYTES * 50 * 8),)
    assert calls.parameter_bytes == (FLOAT_BYTES * 50 * 8, FLOAT_BYTES * (8 * 8 + 8), 0)
    products = {
        (op.phase, op.layer_call) for op in workload.ops if op.kind == "dot" and op.layer.startswith("table")
    }
    assert products == {("forward", 2), ("backward", 2)}


def test_variables_belong_to_layers_and_not_to_the_penalty_on_them(folder: Path) -> None:
    """Scale and offset of 16 are trained, mean and variance are not; the loss reads the kernel of `a` as well."""
    calls = find_calls(trace(folder, "penalized"))

    assert calls.names == ("a", "norm", "b")
    assert calls.parameter_bytes == tuple(FLOAT_BYTES * n for n in (8 * 16 + 16, 2 * 16, 16 * 2 + 2))
    assert calls.state_bytes == (0, FLOAT_BYTES * 2 * 16, 0)
    assert calls.shared == ()


@pytest.mark.parametrize("name", ["chain", "skipping", "nested", "tied", "penalized"])
def test_every_operation_of_both_passes_belongs_to_a_call(folder: Path, name: str) -> None:
    """The update belongs to none; the forward pass visits the calls in order, the backward pass in reverse."""
    workload = trace(folder, name)
    calls = find_calls(workload)
    numbers = {
        phase: [op.layer_call for op in workload.ops if op.phase == phase]
        for phase in ("forward", "backward", "update")
    }

    assert set(numbers["update"]) <= {-1}
    assert numbers["forward"] == sorted(numbers["forward"])
    assert set(numbers["forward"]) | set(numbers["backward"]) <= set(range(len(calls.names)))
    assert numbers["backward"][0] == len(calls.names) - 1
    assert sum(calls.parameter_bytes) == workload.memory.parameter_bytes


def test_what_is_kept_and_in_work_is_at_least_the_peak(folder: Path) -> None:
    """At any time, what the step holds is kept for the backward pass or belongs to the call that runs."""
    workload = trace(folder, "skipping")
    calls = find_calls(workload)

    kept = sum(one.size_bytes for one in calls.kept)
    assert kept <= (workload.memory.compiled_activation_bytes or 0) <= kept + max(calls.transient_bytes)


def test_calls_are_saved_and_may_be_missing(folder: Path) -> None:
    workload = trace(folder, "tied")
    document = json.loads(json.dumps(workload.to_json()))
    assert Workload.from_json(document) == workload

    for op in document["ops"]:
        del op["layer_call"]
    del document["layer_calls"]
    earlier = Workload.from_json(document)
    assert earlier.layer_calls is None
    assert {op.layer_call for op in earlier.ops} == {-1}


def test_sizes_between_two_batch_sizes(folder: Path) -> None:
    one, other = (trace(folder, "skipping", batch_size=size) for size in (2, 6))
    between = trace(folder, "skipping", batch_size=4)

    assert can_resize(one, other)
    assert interpolate_workload(one, other, batch_size=4).layer_calls == between.layer_calls


def test_inference_has_no_calls(folder: Path) -> None:
    """A pipeline is planned for training alone."""
    options = WorkloadOptions(batch_size=BATCH, mode="infer")
    assert load_workload("models.py:chain", options=options, base=folder).layer_calls is None
