"""Sizes of the layers that hold parameters, counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

from factories import make_product, make_workload
from gpuplan.workload.capture.load import load_workload
from gpuplan.workload.model import LayerSizes, Workload
from gpuplan.workload.options import WorkloadOptions

BUILDER = """
import keras
from keras import layers


def build():
    x = keras.Input((8,))
    inner = keras.Sequential([layers.Dense(8), layers.BatchNormalization()])
    shared = layers.Dense(8, use_bias=False)
    frozen = layers.Dense(8, use_bias=False, trainable=False)
    adapted = layers.Dense(8, use_bias=False)
    model = keras.Model(x, layers.Dense(1)(adapted(frozen(shared(shared(inner(x)))))))
    adapted.enable_lora(2)
    model.compile("adam", "mse")
    return model
"""


def test_layers_by_hand(tmp_path: Path) -> None:
    """float32: a nested model counts by its layers, statistics and seeds do not count, a shared layer counts once.

    Dense 8 x 8 + 8, scale and offset of 8 each, shared 8 x 8, frozen 8 x 8, LoRA's 8 x 2 + 2 x 8 beside its frozen
    8 x 8, and 8 + 1 of the head.
    """
    (tmp_path / "models.py").write_text(BUILDER)
    workload = load_workload("models.py:build", options=WorkloadOptions(batch_size=4), base=tmp_path)

    assert workload.layer_sizes == LayerSizes(
        parameter_bytes=(4 * 72, 4 * 16, 4 * 64, 4 * 64, 4 * 96, 4 * 9),
        trainable_bytes=(4 * 72, 4 * 16, 4 * 64, 0, 4 * 32, 4 * 9),
    )
    assert sum(workload.layer_sizes.trainable_bytes) == workload.memory.parameter_bytes
    assert workload.layer_sizes.frozen_bytes == 4 * (64 + 64)
    assert Workload.from_json(json.loads(json.dumps(workload.to_json()))) == workload


def test_a_workload_that_was_traced_earlier_has_no_sizes(tmp_path: Path) -> None:
    """A saved workload without them is read as before."""
    (tmp_path / "models.py").write_text(BUILDER)
    workload = load_workload("models.py:build", options=WorkloadOptions(batch_size=4), base=tmp_path)
    document = workload.to_json()
    del document["layer_sizes"]

    assert Workload.from_json(document).layer_sizes is None


def test_calls_of_layers_that_were_saved_once_are_not_read() -> None:
    workload = make_workload(ops=(make_product(),))
    document = workload.to_json()
    document["ops"][0]["layer_call"] = 0
    document["layer_calls"] = {"names": ["dense"]}

    assert Workload.from_json(document) == workload
