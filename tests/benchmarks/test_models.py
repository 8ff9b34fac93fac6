"""The timed models are what they say, and are fed what they take."""

from __future__ import annotations

import pytest
from gpuplan.workload.load import load_workload
from gpuplan.workload.options import WorkloadOptions
from measuring.models import ROOT, batch_for, build
from measuring.plan import QUICK, Subject

OWN = "benchmarks/workloads.py:"
SEQUENTIAL = Subject(model="examples/models.py:vgg13?image_size=32&classes=10", batch_sizes=(4,))
BERT_BASE = 109_482_240  # huggingface.co/bert-base-uncased: 512 positions, two segments, pooler, no head
FEWER_POSITIONS, NO_SEGMENTS, HEAD = (512 - 128) * 768, 2 * 768, 768 * 2 + 2


@pytest.mark.parametrize(
    ("model", "millions", "tolerance"),
    [
        (f"{OWN}encoder", (BERT_BASE - FEWER_POSITIONS - NO_SEGMENTS + HEAD) / 1e6, 1e-6),
        (
            f"{OWN}wide_resnet?widen=10&classes=10",
            36.5,
            0.06,
        ),  # Zagoruyko and Komodakis 2016, table 4: 36.5 M
        (f"{OWN}vision_transformer", 22.05, 0.01),  # Touvron et al. 2021, table 1: 22 M (DeiT-S)
    ],
)
def test_parameter_counts_are_the_published_ones(model: str, millions: float, tolerance: float) -> None:
    """Counted by gpuplan from the very reference that is timed; nothing is allocated."""
    options = WorkloadOptions(batch_size=1, precision="float32")
    workload = load_workload(model, options=options, base=ROOT)

    assert workload.parameters / 1e6 == pytest.approx(millions, abs=tolerance)


@pytest.mark.usefixtures("keras_as_found")
@pytest.mark.parametrize("subject", [*QUICK, SEQUENTIAL], ids=lambda subject: subject.model)
def test_batches_fit_their_models(subject) -> None:
    """Shapes as the model wants them; whole numbers inside the vocabulary and the classes; never all zeros."""
    import keras

    model = build(subject.model, precision="float32")
    x, y = batch_for(model, 3)

    for array, tensor in zip(keras.tree.flatten(x), model.inputs, strict=True):
        assert array.shape == (3, *tensor.shape[1:])
        assert str(array.dtype) == tensor.dtype
        assert array.any()
    assert y.min() >= 0
    assert y.max() < model.outputs[0].shape[-1]
    if "vocabulary" in subject.model:
        assert x.max() < 100


@pytest.mark.usefixtures("keras_as_found")
def test_weights_are_random_and_keras_is_left_as_it_was() -> None:
    """Variance one over the inputs: 64 inputs give a deviation of 1/8. Keras's own initializers come back."""
    import keras
    import numpy as np

    before = keras.initializers.VarianceScaling.__call__
    model = build(f"{OWN}mlp?width=64&depth=3", precision="float32")
    kernel = np.asarray(model.layers[2].kernel)

    assert kernel.std() == pytest.approx(1 / 8, rel=0.05)
    assert keras.initializers.VarianceScaling.__call__ is before
