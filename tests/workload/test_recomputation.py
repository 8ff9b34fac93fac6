"""`remat`: layers recompute their activations, as under `keras.RematScope` in the user's code."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import keras
import pytest
from gpuplan.errors import UsageError
from gpuplan.workload.capture.load import load_workload, trace_keras_model
from gpuplan.workload.model import Workload
from gpuplan.workload.options import ArraySpec, WorkloadOptions

WIDTH, LENGTH, DEPTH = 64, 128, 3


@keras.saving.register_keras_serializable()
class Block(keras.layers.Layer):
    """A feed-forward block of a Transformer, with an activation four times as wide as its input."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.inner = keras.layers.Dense(4 * WIDTH, activation="gelu")
        self.outer = keras.layers.Dense(WIDTH)

    def build(self, shape: tuple[int, ...]) -> None:
        self.inner.build(shape)
        self.outer.build((*shape[:-1], 4 * WIDTH))

    def call(self, x: Any) -> Any:
        return x + self.outer(self.inner(x))


def build_model(*, scope: str | None = None, nested: bool = False) -> keras.Model:
    """Return a stack of blocks, made under a `keras.RematScope`, and inside a model of its own if nested."""
    inputs = keras.Input((LENGTH, WIDTH))
    with keras.RematScope(mode=scope) if scope else contextlib.nullcontext():
        layers = [Block() for _ in range(DEPTH)]
    x = inputs
    for layer in layers:
        x = layer(x)
    model = keras.Model(inputs, x)
    if nested:
        outer = keras.Input((LENGTH, WIDTH))
        model = keras.Model(outer, model(outer))
    model.compile("sgd", "mse")
    return model


def trace(model: keras.Model, *, remat: bool, batch_size: int = 8) -> Workload:
    """Trace a model of this process."""
    spec = ArraySpec((LENGTH, WIDTH), "float32")
    options = WorkloadOptions(batch_size=batch_size, remat=remat)
    return trace_keras_model(model, options=options, input_spec=spec, target_spec=spec)


def count_products(workload: Workload, phase: str) -> float:
    """Return the matrix products of a phase."""
    return sum(op.count for op in workload.ops if op.kind == "dot" and op.phase == phase)


@pytest.mark.parametrize("nested", [False, True])
def test_each_block_keeps_its_input_alone(nested: bool) -> None:
    """Six arrays of four widths are stored without, one at a time with; each forward product runs again."""
    kept, recomputed = (trace(build_model(nested=nested), remat=remat) for remat in (False, True))
    wide = 8 * LENGTH * 4 * WIDTH * 4

    saved = kept.memory.activation_bytes - recomputed.memory.activation_bytes
    assert saved > (DEPTH - 1) * wide
    assert count_products(recomputed, "forward") == count_products(kept, "forward") == 2 * DEPTH
    again = count_products(recomputed, "backward") - count_products(kept, "backward")
    assert DEPTH <= again <= 2 * DEPTH  # the last product of a block is not needed again


def test_a_layer_under_a_scope_of_its_own_keeps_it() -> None:
    """Blocks made under `activations` are traced alike with and without the flag."""
    own = build_model(scope="activations")
    kept, asked = (trace(own, remat=remat) for remat in (False, True))

    assert [(op.name, op.phase, op.flops) for op in asked.ops] == [
        (op.name, op.phase, op.flops) for op in kept.ops
    ]
    assert asked.memory == kept.memory


def test_the_users_model_is_not_changed() -> None:
    """A copy of it is traced."""
    model = build_model()

    trace(model, remat=True)

    modes = [layer._remat_mode for layer in model._flatten_layers()]
    assert len(modes) > 1
    assert set(modes) == {None}


def test_inference_has_nothing_to_recompute_for() -> None:
    """One line says so."""
    with pytest.raises(UsageError, match=r"`--remat`: inference has no backward pass"):
        WorkloadOptions(mode="infer", remat=True)


def test_a_saved_workload_cannot_be_recomputed(tmp_path: Path) -> None:
    """It was traced already."""
    path = tmp_path / "step.json"
    path.write_text(json.dumps(trace(build_model(), remat=False).to_json()))

    with pytest.raises(UsageError, match=r"--remat: `step\.json` was traced already"):
        load_workload(str(path), options=WorkloadOptions(remat=True))
